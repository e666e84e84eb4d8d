"""What an evaluation has played so far, stored so that it can be resumed.

    eval/<step>/unfinished/<scenario>.npz      the outcomes of all episodes
    eval/<step>/unfinished/<scenario>.jsonl    those episodes that are kept

A scenario is stored when all of its episodes have been played.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from openagent_jax import files
from openagent_jax.evaluation.evaluate import Played
from openagent_jax.report import trajectories
from openagent_jax.report.trajectories import Line
from openagent_jax.types import Outcome

FOLDER = "unfinished"
_FINGERPRINT = "fingerprint"  # the name under which it is stored, as an array
_NUM_LINES = "num_lines"
_SEPARATOR = "/"  # between the name of a tuple and that of its field


class Unfinished:
    """The scenarios that an evaluation has played.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Unfinished(Path(folder), "of step 3").load("unsolvable") is None
    True
    """

    def __init__(self, folder: Path, fingerprint: str):
        """
        Args:
          folder: the folder of the report.
          fingerprint: equal for evaluations that play the same episodes. What was
            stored with another one is not read.
        """
        self._folder, self._fingerprint = folder / FOLDER, fingerprint

    def load(self, name: str) -> tuple[Played, list[Line]] | None:
        """Return the outcomes of a scenario and its kept episodes; None if it is not
        stored, or its files are damaged."""
        try:
            # Of a path, np.load would leave a damaged file open.
            with (self._folder / f"{name}.npz").open("rb") as file:
                stored = np.load(file, allow_pickle=False)
                arrays = {array: stored[array] for array in stored.files}
            if str(arrays.pop(_FINGERPRINT)) != self._fingerprint:
                return None
            num_lines = int(arrays.pop(_NUM_LINES))
            lines = [*trajectories.read(self._folder, name)]
            return (_played(arrays), lines) if len(lines) == num_lines else None
        except Exception:  # NumPy raises nearly anything when a file is damaged
            return None

    def save(self, name: str, played: Played, lines: Sequence[Line]) -> None:
        """Store a scenario, replacing any earlier copy.

        Args:
          name: the scenario.
          played: its episodes, in NumPy and without a recording.
          lines: those of its episodes that are kept.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name}.npz"
        file.unlink(missing_ok=True)  # it says that the other file is complete
        trajectories.write(self._folder, name, lines)
        arrays: dict[str, Any] = {
            _FINGERPRINT: np.array(self._fingerprint),
            _NUM_LINES: np.array(len(lines)),
            **_arrays(played),
        }
        with files.replacing(file) as part, part.open("wb") as opened:
            np.savez_compressed(opened, **arrays)


def clear(folder: Path) -> None:
    """Remove what is stored, because the report in the folder has it."""
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def _arrays(played: Played) -> dict[str, np.ndarray]:
    """Return the arrays of episodes by name, such as `bounds/counts/success`."""
    arrays: dict[str, Any] = played._asdict()
    del arrays["recording"]
    outcomes = {"outcome": arrays.pop("outcome")}
    for agent, outcome in (arrays.pop("bounds") or {}).items():
        outcomes[f"bounds{_SEPARATOR}{agent}"] = outcome
    for name, outcome in outcomes.items():
        fields = outcome._asdict().items()
        arrays |= {f"{name}{_SEPARATOR}{field}": x for field, x in fields}
    return {name: np.asarray(x) for name, x in arrays.items() if x is not None}


def _played(arrays: dict[str, np.ndarray]) -> Played:
    """Return the episodes whose `_arrays` these are."""
    plain: dict[str, Any] = {}
    outcomes: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        prefix, _, field = name.rpartition(_SEPARATOR)
        if prefix:
            outcomes.setdefault(prefix, {})[field] = array
        else:
            plain[field] = array
    plain["outcome"] = Outcome(**outcomes.pop("outcome"))
    bounds = {
        prefix.partition(_SEPARATOR)[2]: Outcome(**x) for prefix, x in outcomes.items()
    }
    return Played(**plain, bounds=bounds or None, recording=None)
