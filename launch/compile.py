"""Compile a training step and an evaluation for chips that are not here.

    python -m launch.compile --config=configs/sft.py --topology=v5e:4x4
    python -m launch.compile --config=configs/sft.py --topology=local
    python -m launch.compile --table=docs/results/pods

It prints, for one chip, the memory by use, and the operations of each program
(the batch, the update, which contains the rollout of GRPO and PPO, and the rollout of
the evaluation), what they send to other chips, and the least time that a training step
of full rows takes at full speed. All of that is computed, not measured. The exit code
is 1 if a program does not fit. A TPU is not needed, but its compiler is: pip install -e
".[tpu]". "local" means the devices of this machine. --table prints a table of a folder
of files that --json wrote.
"""

import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", "configs/base.py", "Config whose step is compiled.", lock_config=True
)
TOPOLOGY = flags.DEFINE_string(
    "topology", None, 'A chip and a shape, such as v5e:4x4, or "local".'
)
SHAPE = flags.DEFINE_string(
    "shape",
    None,
    "A config.json of a Hugging Face model, or a name in launch/compilation/shapes: "
    "the model gets this shape, and keeps the tokenizer of init_from.",
)
JSON = flags.DEFINE_string("json", None, "File to write the figures to.")
TABLE = flags.DEFINE_string(
    "table", None, "Only print a table of this folder, whose files --json wrote."
)


def main() -> None:
    if TABLE.value:
        other = "compiling, not for --table"
        cli.refuse_unused(CONFIG, TOPOLOGY, SHAPE, JSON, other=other)
        print_table(Path(TABLE.value))
        return
    if not TOPOLOGY.value:
        raise cli.UsageError("--topology is missing")
    from launch.common import backbones, build, checks, compiled_step, config
    from launch.compilation import programs, report, topology
    from openagent_jax import files

    c = config.resolve(CONFIG.value)
    checks.check(c)
    checks.check_training(c)
    target = topology.find(str(TOPOLOGY.value))
    model = backbones.backbone(c)
    if SHAPE.value:
        model = topology.reshaped(c, model, SHAPE.value)
    source = build.world(c, model, c.sandbox.domain)
    arrays = compiled_step.abstract(c, model, source, target.devices)
    print(report.head(c, model, target, arrays.mesh), flush=True)
    held = programs.resident(arrays) | programs.transient(arrays)
    if sum(held.values()) > target.memory:
        print("\n".join(programs.lines(held)))
        print(report.lacking(c, model, source, target, sum(held.values())))
        sys.exit(cli.FAILURE)
    traced = programs.trace(c, model, source, arrays)
    try:
        made = programs.compile(traced, arrays)
    except programs.TooLarge as error:
        print("\n".join(programs.lines(held | {"temporaries": error.needed})))
        needed = sum(held.values()) + error.needed
        print(report.lacking(c, model, source, target, needed))
        sys.exit(cli.FAILURE)
    print(report.text(c, model, target, arrays, made))
    if JSON.value:
        figures = report.figures(c, model, target, arrays, made)
        named = {"model": SHAPE.value or c.init_from}
        files.write_json(Path(JSON.value), named | figures)
    if programs.peak(made) > target.memory:
        print(report.lacking(c, model, source, target, programs.peak(made)))
        sys.exit(cli.FAILURE)


def print_table(folder: Path) -> None:
    from launch.common import errors
    from launch.pages import compilation_table

    with errors.blame("--table"):
        print("\n".join(compilation_table.lines(folder)))


if __name__ == "__main__":
    cli.run(main)
