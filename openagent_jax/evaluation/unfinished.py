"""What an evaluation has played so far, stored so that it can be resumed.

    eval/<step>/unfinished/<scenario>.npz      the outcomes of all episodes
    eval/<step>/unfinished/<scenario>.jsonl    those episodes that are kept

A scenario is stored when all of its episodes have been played.
"""

import shutil
import zipfile
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
_KEY = "key"  # name of an array with the key
_OF = "/"  # between the names of an array: that of a tuple, and of its field


class Unfinished:
    """The scenarios that an evaluation has played.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Unfinished(Path(folder), "of step 3").load("unsolvable") is None
    True
    """

    def __init__(self, folder: Path, key: str):
        """
        Args:
          folder: the folder of the report.
          key: equal for evaluations that play the same episodes. What was stored with
            another one is not read.
        """
        self._folder, self._key = folder / FOLDER, key

    def load(self, name: str) -> tuple[Played, list[Line]] | None:
        """Return the outcomes of a scenario and its kept episodes; None if it is not
        stored, or its files are damaged."""
        try:
            # Of a path, np.load would leave a damaged file open.
            with (self._folder / f"{name}.npz").open("rb") as file:
                stored = np.load(file, allow_pickle=False)
                arrays = {key: stored[key] for key in stored.files}
            if str(arrays.pop(_KEY)) != self._key:
                return None
            return _played(arrays), [*trajectories.read(self._folder, name)]
        except (
            OSError,
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            zipfile.BadZipFile,
        ):
            return None

    def save(self, name: str, played: Played, lines: Sequence[Line]) -> None:
        """Store a scenario, replacing what is stored of it.

        Args:
          name: the scenario.
          played: its episodes, in NumPy and without a recording.
          lines: those of its episodes that are kept.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / f"{name}.npz"
        file.unlink(missing_ok=True)  # it says that the other file is complete
        trajectories.write(self._folder, name, lines)
        arrays: dict[str, Any] = {_KEY: np.array(self._key), **_arrays(played)}
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
    for agent, of_agent in (arrays.pop("bounds") or {}).items():
        outcomes[f"bounds{_OF}{agent}"] = of_agent
    for name, outcome in outcomes.items():
        arrays |= {f"{name}{_OF}{key}": x for key, x in outcome._asdict().items()}
    return {name: np.asarray(x) for name, x in arrays.items() if x is not None}


def _played(arrays: dict[str, np.ndarray]) -> Played:
    """Return the episodes whose `_arrays` these are."""
    plain: dict[str, Any] = {}
    outcomes: dict[str, dict[str, Any]] = {}
    for name, array in arrays.items():
        of, _, field = name.rpartition(_OF)
        if of:
            outcomes.setdefault(of, {})[field] = array
        else:
            plain[field] = array
    plain["outcome"] = Outcome(**outcomes.pop("outcome"))
    bounds = {of.partition(_OF)[2]: Outcome(**x) for of, x in outcomes.items()}
    return Played(**plain, bounds=bounds or None, recording=None)
