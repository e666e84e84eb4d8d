"""What a study consists of: settings that are compared, each trained with some seeds.

`launch.ablate` executes studies, and makes a page of each. A study is a Python file
with a function `get_study(arg)`, and a docstring that becomes the head of the page.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openagent_jax.environments import registry

SEEDS = (0, 1, 2, 3, 4)  # as many as a comparison needs
NUM_TASKS = 384  # of each scenario, likewise
SMOKE = "smoke"  # argument of a study or a config: runs of a few steps


@dataclass(frozen=True)
class Setting:
    """One way to train: a row of the table, with one run for each seed."""

    name: str  # of its folders; "" for the config as it is
    config: str  # the config file
    changes: Mapping[str, Any] = field(default_factory=dict)  # values, by config key
    after: str = ""  # the setting whose run with the same seed it starts from
    title: str = ""  # in tables; by default the name
    is_trained: bool = True  # False: the model is evaluated as it is

    def changed(self, label: str, changes: Mapping[str, Any]) -> "Setting":
        """Return the setting with some values changed, and a label for them."""
        return dataclasses.replace(
            self,
            name=",".join(filter(None, (self.name, label))),
            title=", ".join(filter(None, (self.title, label))) if self.title else "",
            changes={**self.changes, **changes},
        )


@dataclass(frozen=True)
class Study:
    """Settings and seeds; the first setting that is trained is the base of others."""

    settings: tuple[Setting, ...]
    seeds: tuple[int, ...] = SEEDS
    base: str = ""  # the setting that others are compared with; by default the first


def vary(
    settings: Iterable[Setting], key: str, values: Sequence[Any]
) -> tuple[Setting, ...]:
    """Return each setting with each value of a key.

    A single value is a change of all settings, and is not part of their names.

    >>> [x.name for x in vary([Setting("", "sft.py")], "train.num_steps", (50, 100))]
    ['train.num_steps=50', 'train.num_steps=100']
    """
    return tuple(
        setting.changed(f"{key}={value}" if len(values) > 1 else "", {key: value})
        for setting in settings
        for value in values
    )


def config(name: str, arg: str) -> str:
    """Return the file of a config, with its argument."""
    return f"configs/{name}.py" + (f":{arg}" if arg else "")


def evaluation(arg: str) -> dict[str, Any]:
    """Return what the runs of a study are evaluated on.

    It is the suite of the environment, which every run plays at its end, so that no
    choice of rows decides what a page says.
    """
    if arg == SMOKE:
        return {}
    # By names: "default" is the whole catalogue where nothing is trained.
    return {"eval.num_tasks": NUM_TASKS, "eval.scenarios": registry.spec("poi").suite}
