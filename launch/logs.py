"""Turn your own logs into tasks, and write demonstrations as logs.

    python -m launch.logs check my_logs.jsonl [--config=configs/paft.py]
    python -m launch.logs export --config=configs/paft.py --out=demos.jsonl --num=1000
    python -m launch.logs textcraft --out=textcraft.jsonl

A log is a JSON Lines file with `messages` and `tools` in each line. The conversations
that can be mapped to tasks form a domain, which every command accepts:
--config.sandbox.domain=my_logs.jsonl

`check` prints which conversations are mapped, and why the others are not, under the
limits in --config (default: configs/base.py). Limits on tokens count if they are set,
since an evaluation or a run raises the others. `textcraft` writes the gold trajectories
of the package platoon-textcraft, or of the folder of its data files that --source
names. docs/own_logs.md has the rules.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli
from openagent_jax import files

CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(Path(__file__).parents[1] / "configs/base.py"),
    "Check: the model whose tokens are counted, and the sizes of an episode. Export: "
    "the tasks that are demonstrated, and the share that is perturbed.",
    lock_config=True,
)
OUT = flags.DEFINE_string("out", None, "Export, textcraft: file to write.")
NUM = flags.DEFINE_integer("num", 1000, "Export: number of demonstrations.", 1)
SPLIT = flags.DEFINE_string("split", "train", "Export, textcraft: split of the tasks.")
SOURCE = flags.DEFINE_string("source", None, "Textcraft: folder of its data files.")


def main(command: str, file: str = "") -> None:
    own = {
        "check": (CONFIG,),
        "export": (CONFIG, OUT, NUM, SPLIT),
        "textcraft": (OUT, SPLIT, SOURCE),
    }
    cli.check_flags(command, own)
    {"check": lambda: check(file), "export": export, "textcraft": gold}[command]()


def check(file: str) -> None:
    """Print which conversations of a log become tasks, and why others do not."""
    from launch.common import backbones, build, checks, compile_cache, config, sizing
    from openagent_jax.environments.logs import logs
    from openagent_jax.environments.world import SPLITS

    if not logs.is_log(file):
        raise cli.UsageError(f"{file} is not a log: its name must end with .jsonl")
    c = config.resolve(CONFIG.value)
    c = c.replace({"sandbox.domain": file, "eval.domain": ""})
    compile_cache.use(c.compile_cache)
    try:
        checks.check(c)
        model = backbones.backbone(c)
        given = config_flags.get_override_values(flags.FLAGS["config"])
        c = sizing.wide(c, model, file, sizing.fixed(c, given))
        source = build.world(c, model, file)
        print_log(source.source, source.summary, source.notes)
    except cli.UsageError as error:
        if not isinstance(error.__cause__, logs.NothingMapped):
            raise
        log = error.__cause__.log
        print_log(log.file, log.summary(), log.report())
        raise cli.UsageError(f"{file}: no conversation is mapped") from None
    for split in SPLITS:
        try:
            source.check(split)
        except ValueError as error:
            print(f"  {error}")


def print_log(file: str, summary: str, notes: Iterable[str]) -> None:
    """Print how much of a log is mapped, and why the rest is not."""
    print(f"{file}: {summary}")
    for line in notes:
        print(f"  {line}")


def export() -> None:
    """Write demonstrations as a log."""
    from launch.common import (
        agents,
        build,
        checks,
        compile_cache,
        config,
        errors,
        preflight,
    )
    from openagent_jax.data import conversations
    from openagent_jax.environments.world import SPLITS

    c = config.resolve(CONFIG.value)
    out = cli.check_out(OUT.value)
    checks.check(c)
    checks.check_training(c)
    checks.check_unpaired(c)
    errors.check_names("--split", [SPLIT.value], SPLITS)
    compile_cache.use(c.compile_cache)
    source = agents.message_world(c.sandbox, c.sandbox.domain)
    preflight.check_compositions(c, source)
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
    """Write the gold trajectories of TextCraft as a log."""
    from launch.common import errors
    from openagent_jax.interop import textcraft

    out = cli.check_out(OUT.value)
    errors.check_names("--split", [SPLIT.value], textcraft.FILES)
    with errors.blame("textcraft"):
        source = Path(SOURCE.value) if SOURCE.value else textcraft.folder()
        num = _write(out, textcraft.conversations(source, SPLIT.value))
    print(f"{out}: {num:,} conversations")


def _write(out: Path, rows: Iterable[dict]) -> int:
    """Write a log, and return the number of its lines."""
    num = 0
    with files.replacing(out) as part, part.open("w", encoding="utf-8") as opened:
        for row in rows:
            opened.write(json.dumps(row, ensure_ascii=False) + "\n")
            num += 1
    return num


if __name__ == "__main__":
    cli.run(main, commands={"check": ("FILE",), "export": (), "textcraft": ()})
