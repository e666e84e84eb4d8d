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


def episodes(tasks):
    """Make episodes from rows of numbers, one for each task, in the order of FIELDS."""
    columns = np.reshape(tasks, (-1, len(FIELDS))).T
    pairs = zip(FIELDS.items(), columns, strict=True)
    fields = {name: x.astype(t) for (name, t), x in pairs}
    return report.Episodes(**fields, answered=np.ones(columns.shape[1], bool))


def outcomes(success, changed=None, answered=None):
    """Make episodes of solvable tasks without refusals, from success alone."""
    success = np.asarray(success, bool)
    no, zero = np.zeros(len(success), bool), np.zeros(len(success), int)
    changed, answered = (
        ~no if x is None else np.array(x, bool) for x in (changed, answered)
    )
    return report.Episodes(success, ~no, no, zero, zero, zero, changed, answered)


def paired(new, old):
    return report.row(TRAP, 1.0, outcomes(new), outcomes(old))["delta"]


def make_report(policy="base", **changes):
    """Make a report with every tier but one.

    It has a scenario at two strengths, and a scenario that changed no task.
    """
    clean = outcomes([1, 1, 1, 1, 1, 1, 1, 0])
    half, none = [1, 1, 1, 1, 0, 0, 0, 0], np.zeros(8, bool)
    refuses = dataclasses.replace(clean, solvable=none, refused=np.array(half) > 0)
    rows = [
        report.row(UNSOLVABLE, 1.0, refuses, clean),  # the tables put it last
        report.row(TRAP, 0.5, outcomes([1, 1, 1, 1, 1, 1, 0, 0]), clean),
        report.row(TRAP, 1.0, outcomes([1, 0, 0, 0, 0, 0, 0, 0]), clean),
        report.row(TOOL_ORDER, 1.0, outcomes(half, none), clean),
        report.row(RULE_SHIFT, 1.0, outcomes(half, clean.success), clean),
        report.row(None, 0.0, clean, clean),
    ]
    made = {"suite": "tiny", "policy": policy, "checkpoint_step": 3, "seed": 0}
    made |= {"split": "test", "num_tasks": 8, "grading_version": 1, "rows": rows}
    return made | changes
