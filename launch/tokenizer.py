"""Train the tokenizer of the backbone `nano`, which is shipped with the package.

python -m launch.tokenizer --out=openagent_jax/backbones/nano
"""

import json
from pathlib import Path

from absl import flags

from launch.common import cli

OUT = flags.DEFINE_string("out", None, "Folder to write tokenizer.json to.")
VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 6144, "Size of the vocabulary.")


def main() -> None:
    from openagent_jax.text import style, tokenizer

    folder = Path(OUT.value or "")
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer.train(style.syntax_tokens(), VOCAB_SIZE.value)
    made.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokenizer.END,
        "pad_token": tokenizer.SPECIAL[0],
        "clean_up_tokenization_spaces": False,
    }
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(settings, indent=2) + "\n")
    print(f"{folder}: {made.get_vocab_size()} tokens")


if __name__ == "__main__":
    cli.run(main, required=("out",))
