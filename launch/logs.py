"""Your own logs: what of them becomes tasks; and demonstrations as logs for others.

    python -m launch.logs check my_logs.jsonl [--config=configs/paft.py]
    python -m launch.logs export --config=configs/paft.py --out=demos.jsonl --num=1000
    python -m launch.logs textcraft --out=textcraft.jsonl

A log is JSON Lines with `messages` and `tools` in each line. What is mapped of it is a
domain, for all commands: --config.sandbox.domain=my_logs.jsonl

`check` counts tokens and turns as --config says (default: configs/base.py). `textcraft`
writes the gold trajectories of the package platoon-textcraft, or of the folder of its
data files, --source. docs/own_logs.md tells the rules.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(Path(__file__).parents[1] / "configs/base.py"),
    "Check: the model that counts the tokens, and the room that there is. Export: what "
    "is demonstrated, and how much of it is perturbed.",
    lock_config=True,
)
OUT = flags.DEFINE_string("out", None, "Export: the file to write.")
NUM = flags.DEFINE_integer("num", 1000, "Export: how many.", 1)
SPLIT = flags.DEFINE_string("split", "train", "Export, textcraft: of the tasks.")
SOURCE = flags.DEFINE_string("source", None, "Textcraft: the folder of its data files.")


def main(command: str, file: str = "") -> None:
    {"check": lambda: check(file), "export": export, "textcraft": gold}[command]()


def check(file: str) -> None:
    from launch import backbones, build, programs, settings
    from openagent_jax.sandbox import domain, logs

    c = CONFIG.value
    if not logs.is_log(file):
        raise cli.BadUse(f"{file} is no log: its name does not end with .jsonl")
    c.sandbox.domain, c.eval.domain = file, ""
    programs.keep(c.compile_cache)
    try:
        settings.check(c)
        source = build.task_worlds(c, backbones.backbone(c), file)
        tell(source.log)
    except cli.BadUse as error:
        if not isinstance(error.__cause__, logs.NothingMapped):
            raise
        tell(error.__cause__.log)
        raise cli.BadUse(f"{file}: no conversation is mapped") from None
    for split in domain.SPLITS:
        try:
            source.check(split)
        except ValueError as error:
            print(f"  {error}")


def tell(log) -> None:
    print(f"{log.file}: {log.summary()}")
    for line in log.told():
        print(f"  {line}")


def export() -> None:
    from launch import agents, build, programs, settings
    from openagent_jax.data import conversations
    from openagent_jax.sandbox import domain

    c = CONFIG.value
    out = cli.check_out(OUT.value)
    settings.check(c)
    settings.check_apart(c)
    settings.known("--split", [SPLIT.value], domain.SPLITS)
    programs.keep(c.compile_cache)
    source = agents.spoken(c, c.sandbox.domain)
    rows = conversations.conversations(build.recipe(c, source), SPLIT.value, NUM.value)
    perturbed = 0

    def counted():
        nonlocal perturbed
        for row in rows:
            perturbed += row["perturbation"] != conversations.CLEAN
            yield row

    _write(out, counted())
    print(f"{out}: {NUM.value:,} conversations, {perturbed:,} of them perturbed")


def gold() -> None:
    from launch import settings
    from openagent_jax.interop import textcraft

    out = cli.check_out(OUT.value)
    settings.known("--split", [SPLIT.value], textcraft.FILES)
    with settings.blamed_on("textcraft"):
        source = Path(SOURCE.value) if SOURCE.value else textcraft.folder()
        num = _write(out, textcraft.conversations(source, SPLIT.value))
    print(f"{out}: {num:,} conversations")


def _write(out: Path, rows: Iterable[dict]) -> int:
    """How many; the file is there when all of it is."""
    temporary, num = out.with_name(f"{out.name}.tmp"), 0
    try:
        with temporary.open("w", encoding="utf-8") as opened:
            for row in rows:
                opened.write(json.dumps(row, ensure_ascii=False) + "\n")
                num += 1
        os.replace(temporary, out)
    finally:
        temporary.unlink(missing_ok=True)
    return num


if __name__ == "__main__":
    cli.run(main, commands={"check": ("FILE",), "export": (), "textcraft": ()})
