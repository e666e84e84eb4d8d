"""Read the episodes that an evaluation has kept: `trajectories/<scenario>.jsonl`.

`evaluation.episodes` writes these files, and describes their lines.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = "trajectories"
Line = dict[str, Any]


class Dropped(NamedTuple):
    """The end of a file that could not be read."""

    file: Path
    num_whole: int  # lines before it
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.file} is damaged behind line {self.num_whole} ({self.reason}); the "
            "lines before are shown"
        )


def scenarios(folder: Path) -> list[str]:
    """Return the sorted names of the scenarios whose episodes were kept."""
    files = (*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"))
    return sorted({file.name.split(".jsonl")[0] for file in files})


def newest(workdir: Path) -> Path:
    """Return the `trajectories` folder of a run's last evaluation that kept episodes.

    Raises:
      FileNotFoundError: there is none.
    """
    if not workdir.is_dir():
        raise FileNotFoundError(f"{workdir}: no such folder")
    folders = (step / FOLDER for step in (workdir / "eval").glob("*"))
    found = [x for x in folders if x.parent.name.isdecimal() and scenarios(x)]
    if not found:
        raise FileNotFoundError(
            f"{workdir} has no kept episodes; evaluate it with eval.keep above 0"
        )
    return max(found, key=lambda x: int(x.parent.name))


def read(folder: Path, name: str) -> Iterator[Line]:
    """Yield the episodes of a scenario.

    Args:
      folder: the `trajectories` folder of an evaluation.
      name: the name of the scenario.

    Raises:
      FileNotFoundError: no episodes of the scenario were kept.
      ValueError: the file is damaged.
    """
    for found in _lines(folder, name):
        if isinstance(found, Dropped):
            line = found.num_whole + 1
            raise ValueError(
                f"{found.file} is damaged at or behind line {line}: {found.reason}"
            )
        yield found


def whole(folder: Path, name: str) -> tuple[list[Line], Dropped | None]:
    """Return the episodes of a scenario that can be read, and what cannot.

    An evaluation that was killed, or a copy that was stopped, leaves half a line.

    Raises:
      FileNotFoundError: no episodes of the scenario were kept.
    """
    lines: list[Line] = []
    for found in _lines(folder, name):
        if isinstance(found, Dropped):
            return lines, found
        lines.append(found)
    return lines, None


def _lines(folder: Path, name: str) -> Iterator[Line | Dropped]:
    """Yield the lines of a file and, if there is one, what ends it too early."""
    plain, packed = folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"
    if not (plain.exists() or packed.exists()):
        kept = ", ".join(scenarios(folder)) or "none"
        raise FileNotFoundError(f"{plain}: no such file; kept are: {kept}")
    file = plain if plain.exists() else packed
    number = 0
    try:
        with gzip.open(file) if file == packed else file.open("rb") as opened:
            for text in opened:
                line = dict(json.loads(text))
                number += 1
                yield line
    except (ValueError, TypeError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        yield Dropped(file, number, str(error))
