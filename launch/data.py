"""Build a dataset of demonstrations, or show one.

    python -m launch.data build --config=configs/sft.py --out=data/poi
    python -m launch.data build --config=configs/paft.py --out=data/poi_paft
    python -m launch.data show data/poi [--split=train --num=3]

--config.data.num_train and --config.data.num_test set the number of tasks of each
split. paft.alpha is the share of them that is perturbed. This command needs
pip install -e ".[data]". To fine-tune on such a dataset:

    python -m launch.train --config=configs/sft.py --config.data.path=data/poi
"""

import time

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Build: the tasks, and the model that learns.", lock_config=True
)
OUT = flags.DEFINE_string("out", None, "Build: folder to write.")
SPLIT = flags.DEFINE_string("split", "train", "Show: split of the episodes.")
NUM = flags.DEFINE_integer("num", 3, "Show: number of episodes.", lower_bound=0)


def main(command: str, folder: str = "") -> None:
    from launch.common import errors

    cli.check_flags(command, {"build": (CONFIG, OUT), "show": (SPLIT, NUM)})
    with errors.needs_extra(command, "data"):
        from openagent_jax.data import store
    if command == "build":
        make(store)
        return
    try:
        stored = store.read(folder)
    except FileNotFoundError as error:
        raise cli.UsageError(str(error)) from None
    show(stored)


def make(store) -> None:
    """Build a dataset and print its sizes."""
    from launch.common import backbones, build, checks, compile_cache, config, preflight

    for name in ("config", "out"):
        if not flags.FLAGS[name].value:
            raise cli.UsageError(f"--{name} is missing")
    c = config.resolve(CONFIG.value)
    checks.check(c)
    checks.check_training(c)
    checks.check_unpaired(c)
    try:
        store.check_free(str(OUT.value))
    except FileExistsError as error:
        raise cli.UsageError(f"--out: {error}") from None
    model = backbones.backbone(c)
    compile_cache.use(c.compile_cache)
    source = build.world(c, model, c.sandbox.domain)
    preflight.check_compositions(c, source)
    recipe = build.recipe(c, source, code_version=cli.git("rev-parse", "HEAD"))
    num, start = {"train": c.data.num_train, "test": c.data.num_test}, time.time()
    print(f"{OUT.value}: making {sum(num.values()):,} demonstrations", flush=True)
    made = store.write(str(OUT.value), recipe, model.tokenizer.to_str(), num)
    describe(made)
    print(f"{time.time() - start:.0f} s")


def describe(stored) -> None:
    """Print the number of demonstrations of each split, and the size on disk."""
    counts = stored.metadata["counts"]
    for split, records in stored.splits.items():
        rest = [f"{value:,} {name}" for name, value in counts[split].items()]
        text = ", ".join(rest).replace("_", " ").replace(" longest", " in the longest")
        print(f"{split:6}{len(records):,} demonstrations ({text})")
    print(f"{stored.folder}, {stored.size}")


def show(stored) -> None:
    """Print metadata, sizes and some episodes, with « » around the loss tokens."""
    from tokenizers import Tokenizer

    if SPLIT.value not in stored.splits:
        raise cli.UsageError(
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
    """Return the text of tokens, with « » around those in the loss mask."""
    import numpy as np

    text = ""
    ends = np.flatnonzero(np.diff(mask)) + 1
    for part, in_loss in zip(np.split(tokens, ends), np.split(mask, ends), strict=True):
        piece = tokenizer.decode(part.tolist(), skip_special_tokens=False)
        text += f"«{piece}»" if in_loss[0] else piece
    return text


if __name__ == "__main__":
    cli.run(main, commands={"build": (), "show": ("DIR",)})
