"""Check a machine before a long run: devices, versions, memory, links and disk.

    python -m launch.doctor --config=configs/paft.py [--workdir=runs/paft]

Each line is one finding; those that begin with "!" say what to change. The exit code is
1 if there are any. Start it in each process of a run, with `--distributed`, to check
all of them; the first one prints.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", "configs/base.py", "Config of the run.", lock_config=True
)
WORKDIR = flags.DEFINE_string("workdir", None, "Folder of the run.")
DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "This is one of several processes; see launch.train."
)


def main() -> None:
    import jax

    from launch.common import config, processes

    if DISTRIBUTED.value:
        processes.join()
    c = config.resolve(CONFIG.value)
    workdir = Path(WORKDIR.value or Path("runs") / c.name)
    sick = False
    for finding in _findings(c, workdir):
        sick |= finding.startswith("!")
        if jax.process_index() == 0:
            print(finding, flush=True)
    sys.exit(cli.FAILURE if sick else 0)


def _findings(c, workdir: Path) -> Iterator[str]:
    """Yield lines, of which those that ask for a change begin with "!"."""
    from launch.checkup import disk, hardware, needs, software

    yield from software.findings()
    yield from hardware.findings()
    yield from needs.findings(c)
    yield from hardware.links(c)
    yield from disk.findings(workdir)


if __name__ == "__main__":
    cli.run(main)
