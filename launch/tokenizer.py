"""Train the tokenizer of the backbone `nano`, which is shipped with the package.

Its merges are learnt from a list of words and from the domains of `all_pretrain`.

    python -m launch.tokenizer --out=my_tokenizer
"""

from collections import Counter
from pathlib import Path

from absl import flags

from launch.common import cli
from openagent_jax import files

OUT = flags.DEFINE_string("out", None, "Folder to write tokenizer.json to.")
NUM_MERGES = flags.DEFINE_integer(
    "num_merges",
    3000,
    "Merges of letters; the vocabulary is about four times as large.",
)


def main() -> None:
    from openagent_jax.domains import domain_file, domain_words, library
    from openagent_jax.text import style, tokenizer

    folder = Path(OUT.value or "")
    folder.mkdir(parents=True, exist_ok=True)
    num_domains = Counter[str]()
    for name in library.PRETRAIN:
        num_domains.update(domain_words.of(domain_file.load(name)))
    made = tokenizer.train(style.syntax_tokens(), num_domains, NUM_MERGES.value)
    with files.replacing(folder / "tokenizer.json") as part:
        made.save(str(part))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": tokenizer.END,
        "pad_token": tokenizer.SPECIAL[0],
        "clean_up_tokenization_spaces": False,
    }
    files.write_json(folder / "tokenizer_config.json", settings)
    print(f"{folder}: {made.get_vocab_size()} tokens")


if __name__ == "__main__":
    cli.run(main, required=("out",))
