"""What kept episodes tell of failures: their causes, with examples.

All is counted over the episodes that were kept, which may be fewer than were played;
the page says how many. Episodes whose task a scenario left as it was are left out.
"""

import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from openagent_jax.report import causes, trajectories

_LONGEST = 200  # characters of a text that an example quotes
IGNORED = ("feedback", "not_refused")  # causes that concern what the agent was told
_ALIKE = 20  # characters by which what was told is compared


class Example(NamedTuple):
    """An episode that failed, at the place where it left the oracle's plan."""

    run: int  # of the column
    index: int  # of the task
    request: str
    heard: str  # what it had been shown just before
    did: str  # what the agent did there
    told: str  # what it was shown then
    wanted: str  # the oracle's step; "" if there is none


@dataclass
class Counts:
    """The kept episodes of a scenario, of all runs of a column."""

    kept: int = 0
    unchanged: int = 0  # left out here
    causes: Counter[str] = field(default_factory=Counter)
    solvable: Counter[str] = field(default_factory=Counter)  # values of `failure`
    unsolvable: Counter[str] = field(default_factory=Counter)
    # By cause and what was told: how many, and the first of them.
    _seen: dict[tuple[str, str], tuple[int, Example]] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)  # that the agent has written
    calls: list[int] = field(default_factory=list)
    # Why tasks cannot be solved: of all of them, and of those that failed.
    hopeless: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)  # of replies that never came

    @property
    def failed(self) -> int:
        """How many failed, without those that were never answered."""
        return sum(self.causes.values()) - self.causes["unanswered"]

    @property
    def examples(self) -> dict[str, Example]:
        """An example of each cause: the first of those that are commonest."""
        most: dict[str, tuple[int, Example]] = {}
        for (cause, _), (num, example) in self._seen.items():
            if num > most.get(cause, (0, None))[0]:
                most[cause] = num, example
        return {cause: example for cause, (_, example) in most.items()}

    @property
    def endings(self) -> Counter[str]:
        return self.solvable + self.unsolvable

    def add(self, run: int, line: Mapping[str, Any]) -> None:
        self.kept += 1
        found = causes.why(line)
        for numbers, key in (
            (self.calls, "num_calls"),
            (self.tokens, "completion_tokens"),
        ):
            if type(number := line.get(key)) is int:
                numbers.append(number)
        if not line.get("answered", True):
            self.reasons[_short(line.get("reason") or "unknown")] += 1
        hopeless = ""
        if not line.get("solvable", True):
            hopeless = str(line.get("unsolvable") or "")
        if hopeless and found.cause != "unanswered":
            self.hopeless[hopeless] += 1
        if not found.cause:
            return
        self.causes[found.cause] += 1
        ends = self.solvable if line.get("solvable", True) else self.unsolvable
        ends[str(line.get("failure", ""))] += 1
        if hopeless and found.cause == "not_refused":
            self.missed[hopeless] += 1
        if found.turn is not None:
            example = _example(run, line, found)
            ignored = found.cause in IGNORED and example.heard
            key = found.cause, (ignored or example.told)[:_ALIKE]
            num, first = self._seen.get(key, (0, example))
            self._seen[key] = num + 1, first


def of_folders(
    folders: Sequence[pathlib.Path],
) -> tuple[dict[str, Counts], list[str]]:
    """Count the kept episodes of a column.

    Args:
      folders: of its evaluations, `eval/<step>`; those without episodes are left out.

    Returns:
      The counts by scenario, and notes on what could not be read.
    """
    found: dict[str, Counts] = {}
    notes = []
    for run, folder in enumerate(folders):
        kept = folder / trajectories.FOLDER
        for name in trajectories.scenarios(kept):
            lines, lost = trajectories.salvage(kept, name)
            notes += lost
            counts = found.setdefault(name, Counts())
            for line in lines:
                if line.get("changed", True) or name == "clean":
                    counts.add(run, line)
                else:
                    counts.unchanged += 1
    return found, notes


def _example(run: int, line: Mapping[str, Any], found: causes.Why) -> Example:
    turn, plan = found.turn or 0, causes.items(line, "plan")
    results = causes.items(line, "results")
    messages = [m for m in causes.items(line, "messages") if isinstance(m, Mapping)]
    users = [m for m in messages if m.get("role") == "user"]
    told = results[turn] if turn < len(results) else None
    last = plan[-1] if plan else None
    step = plan[found.step] if found.step is not None else last
    return Example(
        run,
        line.get("index", 0),
        _short(users[0].get("content") if users else ""),
        _short(results[turn - 1]) if 0 < turn <= len(results) else "",
        in_short(line["actions"][turn]),
        _short(told),
        in_short(step) if step else "",
    )


def in_short(action: Any) -> str:
    """Return an action as one line of text.

    >>> in_short({"name": "get", "arguments": {"item": "log"}})
    'get(item="log")'
    """
    if not isinstance(action, Mapping):
        return _short(action)
    if "name" not in action:
        return _short(action.get("text"))
    arguments = action.get("arguments")
    if not isinstance(arguments, Mapping):
        return _short(f"{action['name']}({arguments})")
    pairs = (f"{k}={json.dumps(x, ensure_ascii=False)}" for k, x in arguments.items())
    return _short(f"{action['name']}({', '.join(pairs)})")


def _short(text: Any) -> str:
    text = " ".join(str("" if text is None else text).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
