"""Episodes and reports for the tests of reports."""

import dataclasses
from typing import NamedTuple

import numpy as np

from openagent_jax import report


class Entry(NamedTuple):
    """The fields of a catalogue entry that a report reads."""

    name: str
    tier: str
    family: str
    shift: str = "action"


UNSOLVABLE = Entry("unsolvable", "internalization", "train")
TRAP = Entry("semantic_trap", "perception", "train")
TOOL_ORDER = Entry("tool_order", "perception", "held_out")
RULE_SHIFT = Entry("rule_shift", "reasoning", "held_out")


FIELDS = {"success": bool, "solvable": bool, "refused": bool, "num_calls": int}
FIELDS |= {"num_errors": int, "fewest_calls": int, "changed": bool}


def episodes(tasks, **changes):
    """Make episodes from rows of numbers, one for each task, in the order of FIELDS.

    All tasks are different, and worded differently.
    """
    columns = np.reshape(tasks, (-1, len(FIELDS))).T
    pairs = zip(FIELDS.items(), columns, strict=True)
    fields = {name: x.astype(t) for (name, t), x in pairs}
    number = np.arange(columns.shape[1])
    fields |= {"task": number, "phrasing": number, "answered": number >= 0}
    return report.Episodes(**fields | {"num_needless_questions": 0 * number} | changes)


def outcomes(success, changed=None, answered=None, **changes):
    """Make episodes of solvable tasks without refusals, from success alone."""
    success = np.asarray(success, bool)
    columns = np.zeros((len(success), len(FIELDS)))
    columns[:, 0], columns[:, 1], columns[:, -1] = success, 1, 1
    for name, x in {"changed": changed, "answered": answered}.items():
        changes |= {} if x is None else {name: np.array(x, bool)}
    return episodes(columns, **changes)


def paired(new, old, **changes):
    new, old = outcomes(new, **changes), outcomes(old, **changes)
    return report.row(TRAP, 1.0, new, old)["delta"]


def without_outcomes(made):
    """The same report, as an earlier version would have written it."""
    later = {"outcomes", "tasks", "phrasings", "needless_questions"}
    rows = [{k: v for k, v in r.items() if k not in later} for r in made["rows"]]
    return {k: v for k, v in made.items() if k not in later} | {"rows": rows}


def make_report(policy="base", **changes):
    """Make a report with every tier but one.

    It has a scenario at two strengths, and a scenario that changed no task.
    """
    clean = outcomes([1, 1, 1, 1, 1, 1, 1, 0])
    half, none = [1, 1, 1, 1, 0, 0, 0, 0], np.zeros(8, bool)
    some = np.array(half) > 0
    refuses = dataclasses.replace(clean, success=some, solvable=none, refused=some)
    rows = [
        report.row(UNSOLVABLE, 1.0, refuses, clean),  # the tables put it last
        report.row(TRAP, 0.5, outcomes([1, 1, 1, 1, 1, 1, 0, 0]), clean),
        report.row(TRAP, 1.0, outcomes([1, 0, 0, 0, 0, 0, 0, 0]), clean),
        report.row(TOOL_ORDER, 1.0, outcomes(half, none), clean),
        report.row(RULE_SHIFT, 1.0, outcomes(half, clean.success), clean),
        report.row(None, 0.0, clean, clean),
    ]
    made = {"suite": "tiny", "policy": policy, "checkpoint_step": 3, "seed": 0}
    made |= {"split": "test", "num_tasks": 8, "grading_version": 1}
    made |= {"phrasings": report.number(np.arange(8)), "rows": rows}
    return made | changes
