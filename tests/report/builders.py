"""Episodes and reports for the tests of reports."""

import dataclasses

import numpy as np

from openagent_jax import report
from tests import helpers

UNSOLVABLE = helpers.CATALOGUE["unsolvable"]
TRAP = helpers.CATALOGUE["semantic_trap"]
TOOL_ORDER = helpers.CATALOGUE["tool_order"]
RULE_SHIFT = helpers.CATALOGUE["rule_shift"]
LEFT_OUT = TOOL_ORDER, RULE_SHIFT  # of training, here

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


def row(entry, strength, new, clean, *args, **more):
    """Make a row of a policy that was trained on `tiny`, under all but `LEFT_OUT`."""
    kind = "unseen_kind" if entry in LEFT_OUT else "unseen_forms"
    family = "train" if entry and entry not in LEFT_OUT else "held_out"
    standing = report.Standing(family, kind, "tiny")
    return report.row(entry, strength, new, clean, standing, *args, **more)


def paired(new, old, **changes):
    new, old = outcomes(new, **changes), outcomes(old, **changes)
    return row(TRAP, 1.0, new, old)["delta"]


def without_outcomes(made):
    """The same report, as an earlier version would have written it."""
    later = {
        "outcomes",
        "p",
        "retention",
        "tasks",
        "phrasings",
        "needless_questions",
        "claim",
        "domain",
    }
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
        row(UNSOLVABLE, 1.0, refuses, clean),  # the tables put it last
        row(TRAP, 0.5, outcomes([1, 1, 1, 1, 1, 1, 0, 0]), clean),
        row(TRAP, 1.0, outcomes([1, 0, 0, 0, 0, 0, 0, 0]), clean),
        row(TOOL_ORDER, 1.0, outcomes(half, none), clean),
        row(RULE_SHIFT, 1.0, outcomes(half, clean.success), clean),
        row(None, 0.0, clean, clean),
    ]
    made = {"suite": "tiny", "policy": policy, "checkpoint_step": 3, "seed": 0}
    made |= {"split": "test", "num_tasks": 8, "grading_version": 1}
    report.adjust(rows, None)
    made |= {"phrasings": report.number(np.arange(8)), "rows": rows}
    return made | changes


def page(made, **others):
    """The page of reports, the first of them by the name of its policy."""
    every = {made["policy"]: made} | others
    return report.page({k: report.Column(x) for k, x in every.items()}).text
