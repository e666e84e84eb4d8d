"""Make a dataset of demonstrations, or look at one.

    python -m launch.data build --config=configs/sft.py --out=data/poi
    python -m launch.data build --config=configs/paft.py --out=data/poi_paft
    python -m launch.data show data/poi [--split=train --num=3]

How many: --config.data.num_train, --config.data.num_test. A config with paft.alpha
perturbs that share. What fine-tuning reads (pip install -e ".[data]" brings what it
needs):

    python -m launch.train --config=configs/sft.py --config.data.path=data/poi
"""

import time

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Build: what is demonstrated, to which model.", lock_config=True
)
OUT = flags.DEFINE_string("out", None, "Build: the folder to make.")
SPLIT = flags.DEFINE_string("split", "train", "Show: the split to take episodes from.")
NUM = flags.DEFINE_integer("num", 3, "Show: how many episodes.", lower_bound=0)


def main(command: str, folder: str = "") -> None:
    from launch import settings

    with settings.needs_extra(command, "data"):
        from openagent_jax.data import store
    if command == "build":
        make(store)
        return
    try:
        stored = store.read(folder)
    except FileNotFoundError as error:
        raise cli.BadUse(str(error)) from None
    show(stored)


def make(store) -> None:
    from launch import backbones, build, programs, settings

    c = CONFIG.value
    for name in ("config", "out"):
        if not flags.FLAGS[name].value:
            raise cli.BadUse(f"--{name} is missing")
    settings.check(c)
    settings.check_apart(c)
    try:
        store.check_free(str(OUT.value))
    except FileExistsError as error:
        raise cli.BadUse(f"--out: {error}") from None
    model = backbones.backbone(c)
    programs.keep(c.compile_cache)
    source = build.task_worlds(c, model, c.sandbox.domain)
    recipe = build.recipe(c, source, code_version=cli.git("rev-parse", "HEAD"))
    num, start = {"train": c.data.num_train, "test": c.data.num_test}, time.time()
    print(f"{OUT.value}: making {sum(num.values()):,} demonstrations", flush=True)
    made = store.write(str(OUT.value), recipe, model.tokenizer.to_str(), num)
    describe(made)
    print(f"{time.time() - start:.0f} s")


def describe(stored) -> None:
    counts = stored.metadata["counts"]
    for split, records in stored.splits.items():
        rest = ", ".join(f"{value:,} {name}" for name, value in counts[split].items())
        print(f"{split:6}{len(records):,} demonstrations ({rest.replace('_', ' ')})")
    print(f"{stored.folder}, {stored.size}")


def show(stored) -> None:
    """Metadata, sizes, and some episodes; « » enclose what the policy must say."""
    from tokenizers import Tokenizer

    if SPLIT.value not in stored.splits:
        raise cli.BadUse(
            f'--split="{SPLIT.value}" is not one of {", ".join(stored.splits)}'
        )
    for name, value in stored.metadata.items():
        if name != "counts":
            print(f"{name:14}{value}")
    describe(stored)
    tokenizer = Tokenizer.from_str(stored.tokenizer)
    records = stored.splits[SPLIT.value]
    for i in range(min(NUM.value, len(records))):
        record = dict(records[i])
        tokens, mask = record.pop("tokens"), record.pop("loss_mask")
        about = ", ".join(
            f"{name} {value.decode() if isinstance(value, bytes) else value}"
            for name, value in record.items()
        )
        print(f"\n{about}, {len(tokens)} tokens\n{marked(tokenizer, tokens, mask)}")


def marked(tokenizer, tokens, mask) -> str:
    """The text of tokens, with marks around those of the mask."""
    import numpy as np

    text = ""
    ends = np.flatnonzero(np.diff(mask)) + 1
    for part, said in zip(np.split(tokens, ends), np.split(mask, ends), strict=True):
        piece = tokenizer.decode(part.tolist(), skip_special_tokens=False)
        text += f"«{piece}»" if said[0] else piece
    return text


if __name__ == "__main__":
    cli.run(main, commands={"build": (), "show": ("DIR",)})
