"""Suites of scenarios: short files that fix what an evaluation plays.

A suite names perturbations, compositions of them and shares of the strength, as
`eval.scenarios` does, in groups such as the four tiers of a paper. Its version is
raised by hand when it changes. A hash of the scenarios identifies its content, so that
results of different scenarios are not taken for comparable ones. A file has these keys:

    name, version, title, source
    scenarios   a list of objects with `scenario` and `group`; `theirs` lists what the
                source calls it, and `note` says where that is not the same
    missing     a list of objects with `theirs` and `note`: what no scenario stands for
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openagent_jax import perturb
from openagent_jax.curriculum import draw

FOLDER = Path(__file__).parent / "files"
SUFFIX = ".json"
SET, VERSION, HASH, GROUPS = (  # keys of a report
    "scenario_set",
    "scenario_set_version",
    "scenario_set_hash",
    "scenario_groups",
)
_KEYS = {"name": str, "version": int, "title": str, "source": str}
_LISTS = {
    "scenarios": {"scenario": str, "group": str, "theirs": list, "note": str},
    "missing": {"theirs": list, "note": str},
}
_OPTIONAL = ("theirs", "note", "missing")


@dataclass(frozen=True)
class ScenarioSuite:
    """A suite, as its file states it."""

    name: str
    version: int
    title: str
    source: str
    scenarios: Sequence[Mapping[str, Any]]
    missing: Sequence[Mapping[str, Any]] = ()

    def groups(
        self, environment: perturb.HasCatalogue, exclude: Collection[str] = ()
    ) -> dict[str, list[str]]:
        """Return the names of the scenarios, by group.

        Args:
          environment: an environment, or the spec of one.
          exclude: perturbations that are left out unless they are named themselves.

        Raises:
          ValueError: the environment lacks an entry, a composition is impossible, a
            strength is not from 0 to 1, or a scenario occurs twice.
        """
        found: dict[str, list[str]] = {}
        for one in self.scenarios:
            text = one["scenario"]
            try:
                names = draw.expand(environment, [text], draw.ALL, exclude)
            except ValueError as error:
                raise ValueError(f"the suite {self.name}: {error}") from None
            for name in names:
                if any(name in names for names in found.values()):
                    raise ValueError(f'the suite {self.name} names "{name}" twice')
                found.setdefault(one["group"], []).append(name)
        return found

    def described(self, groups: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """Return what a report says of the suite.

        Args:
          groups: what `groups` returned.
        """
        return {
            SET: self.name,
            VERSION: self.version,
            HASH: content_hash([name for names in groups.values() for name in names]),
            GROUPS: {group: [*names] for group, names in groups.items()},
        }


def builtins() -> list[str]:
    """Return the names of the suites that come with the package.

    >>> builtins()
    ['dynamic', 'full', 'hazards', 'maze', 'paper', 'tc']
    """
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def is_suite(name: str) -> bool:
    """Return whether a name is that of a builtin suite or of a file.

    >>> is_suite("paper"), is_suite("mine.json"), is_suite("tool_order")
    (True, True, False)
    """
    return name.endswith(SUFFIX) or name in builtins()


def load(name: str) -> ScenarioSuite:
    """Read a suite.

    Args:
      name: a builtin name, or a file that ends with .json.

    Raises:
      ValueError: the file cannot be read, or is not a suite; the message is one line.
    """
    file = Path(name) if name.endswith(SUFFIX) else FOLDER / f"{name}{SUFFIX}"
    try:
        made = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{file}: no suite to read ({error.strerror})") from None
    except ValueError as error:
        raise ValueError(f"{file}: not JSON ({error})") from None
    if fault := _fault(made, "", _KEYS | dict.fromkeys(_LISTS, list)):
        raise ValueError(f"{file}: not a suite: {fault}")
    for key, known in _LISTS.items():
        for i, one in enumerate(made.get(key, [])):
            if fault := _fault(one, f"{key}[{i}].", known):
                raise ValueError(f"{file}: not a suite: {fault}")
    return ScenarioSuite(**made)


def content_hash(names: Sequence[str]) -> str:
    """Return 12 hex digits that change when the scenarios do; their order is free.

    >>> content_hash(["a", "b@0.5"]) == content_hash(["b@0.5", "a"])
    True
    """
    return hashlib.sha256(json.dumps(sorted(names)).encode()).hexdigest()[:12]


def _fault(made: Any, place: str, known: Mapping[str, type]) -> str:
    """Return what is wrong with an object; "" if nothing is."""
    if not isinstance(made, dict):
        return f"{place.removesuffix('.') or 'it'} is not an object"
    for key in made:
        if key not in known:
            return f"{place}{key}: there is no such key; known: {', '.join(known)}"
    for key, kind in known.items():
        if key not in made:
            if key in _OPTIONAL:
                continue
            return f"it lacks {place}{key}"
        if type(made[key]) is not kind:
            what = {str: "a text", int: "a whole number", list: "a list"}[kind]
            return f"{place}{key} is not {what}"
    return ""
