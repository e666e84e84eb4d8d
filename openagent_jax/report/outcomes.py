"""The outcomes of tasks, as rows of a report keep them, so that seeds can be pooled.

A row has a text with one letter for each task, in the order of the tasks:

    1  solved                          R  cannot be solved, and was refused
    0  not solved, not refused         x  cannot be solved, and was not refused
    r  can be solved, but was refused
    ?  never answered                  s  solved, although the oracle says it cannot be
    .  not counted: the perturbation did not change it, or it was drawn before

Which tasks are worded alike is stored once for the report, as a text of numbers, one
for each task; a row whose requests are worded otherwise has its own. In a report of
several domains each row has the number of the domain of each task, as `domains`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from openagent_jax.report.intervals import Outcomes, domain_weights

Json = dict[str, Any]
COUNTED = "10rRxs"  # the letters of tasks that a row counts
SOLVED, REFUSED, SOLVABLE, UNSOLVABLE = "1Rs", "rR", "10r", "Rxs"
# For each rate of a row: the letters of the tasks in its denominator, and those of the
# tasks in its numerator.
RATES = {
    "success": (COUNTED, SOLVED),
    "solved": (SOLVABLE, "1"),
    "refusal_rate": (UNSOLVABLE, REFUSED),
    "false_refusal_rate": (SOLVABLE, REFUSED),
}


def encode(
    success: Bool[np.ndarray, "n"],
    solvable: Bool[np.ndarray, "n"],
    refused: Bool[np.ndarray, "n"],
    counted: Bool[np.ndarray, "n"],
    answered: Bool[np.ndarray, "n"],
) -> str:
    """Return the letters of the outcomes of one row.

    >>> yes, no = np.array([True] * 3), np.array([False, True, True])
    >>> encode(no, yes, ~no, yes, yes), encode(no, ~yes, no, yes, yes)
    ('r11', 'xRR')
    """
    letters = np.select(
        [
            ~counted,
            ~answered,
            solvable & success,
            solvable & refused,
            solvable,
            success & refused,
            success,
        ],
        list(".?1r0Rs"),
        default="x",
    )
    return "".join(letters.tolist())


def number(groups: Int[np.ndarray, "n"]) -> str:
    """Number the groups of tasks from 0, in the order in which they first occur.

    >>> number(np.array([7, 7, 3, 7]))
    '0 0 1 0'
    """
    _, first, index = np.unique(groups, return_index=True, return_inverse=True)
    return " ".join(map(str, np.argsort(np.argsort(first))[index].tolist()))


def counted(row: Mapping[str, Any]) -> Bool[np.ndarray, "n"]:
    """Return which tasks a row counts."""
    return np.isin(list(row["outcomes"]), list(COUNTED))


def letters(row: Mapping[str, Any]) -> np.ndarray | None:
    """Return the letters of a row, [seeds tasks]; None if it does not have them.

    In a row of one run `outcomes` is a text, in one of several a list of texts.
    """
    texts = row.get("outcomes")
    if texts is None:
        return None
    texts = [texts] if isinstance(texts, str) else texts
    return np.array([list(text) for text in texts])


def of_rows(rows: Sequence[Json], phrasings: str | None, rate: str) -> Outcomes | None:
    """Return the outcomes that a mean over scenarios is the mean of.

    A scenario weighs the same as any other, whatever its number of strengths and tasks.

    Args:
      rows: rows of one report, possibly of several seeds.
      phrasings: the `phrasings` of the report.
      rate: a key of `RATES`.

    Returns:
      The outcomes; None if there are none, or if a row does not have them.
    """
    among, counts = RATES[rate]
    every = _all_letters(rows)
    if every is None:
        return None
    cells = [np.isin(x, list(among)) for x in every]
    values = [np.isin(x, list(counts)) for x in every]
    return _join(rows, phrasings, cells, values)


def pairs(
    rows: Sequence[Json],
    old: Json | Sequence[Json] | None,
    phrasings: str | None,
    rate: str = "success",
) -> tuple[Outcomes, Outcomes] | None:
    """Return success under two conditions, on the same tasks.

    Args:
      rows: rows of one report, possibly of several seeds.
      old: what they are compared with: the clean row of their report, or for each row
        one of another report.
      phrasings: the `phrasings` of the report.
      rate: a key of `RATES`; tasks that are not of this rate on either side are left
        out.

    Returns:
      `(new, old)`; None if there are none, or if a row does not have its outcomes.
    """
    olds = [old] * len(rows) if isinstance(old, Mapping) else list(old or ())
    every, first = _all_letters(rows), _all_letters(olds)
    if not every or not first or [x.shape for x in every] != [x.shape for x in first]:
        return None
    among, counts = (list(x) for x in RATES[rate])
    both = zip(every, first, strict=True)
    cells = [np.isin(x, among) & np.isin(y, among) for x, y in both]
    joined = [
        _join(rows, phrasings, cells, [np.isin(x, counts) for x in found])
        for found in (every, first)
    ]
    return (joined[0], joined[1]) if joined[0] and joined[1] else None


def _all_letters(rows: Sequence[Json]) -> list[np.ndarray] | None:
    every = [letters(row) for row in rows]
    found = [x for x in every if x is not None]
    return found if len(found) == len(every) else None


def _join(
    rows: Sequence[Json],
    phrasings: str | None,
    cells: Sequence[np.ndarray],
    values: Sequence[np.ndarray],
) -> Outcomes | None:
    """Return the outcomes of rows; `cells` says which of a row's tasks are counted."""
    used = [i for i, x in enumerate(cells) if x.size and x.any(axis=1).all()]
    names = [rows[i]["scenario"] for i in used]
    if not used or len({cells[i].shape for i in used}) > 1:
        return None
    num_tasks, weights = cells[used[0]].shape[1], []
    for i, name in zip(used, names, strict=True):
        share = 1 / (len(set(names)) * names.count(name))
        if "domains" in rows[i]:  # each weighs the same
            domains = np.array(rows[i]["domains"].split(), int)
            weights.append(share * domain_weights(domains, cells[i]))
        else:
            weights.append(share * cells[i] / cells[i].sum(axis=1, keepdims=True))
    shared = numbers(phrasings, num_tasks)
    groups, own = [np.tile(shared, len(used))], []
    for i in used:
        has_own = "phrasings" in rows[i]
        mine = numbers(rows[i]["phrasings"], num_tasks) if has_own else shared
        # Only the row itself knows its numbers.
        own.append(mine + (num_tasks * (1 + i) if has_own else 0))
    if any("phrasings" in rows[i] for i in used):
        groups.append(np.concatenate(own))
    joined = np.concatenate(weights, axis=1)
    keep = joined.any(axis=0)
    scenario = np.repeat(np.arange(len(used)), num_tasks)
    return Outcomes(
        np.concatenate([values[i] for i in used], axis=1)[:, keep].astype(float),
        joined[:, keep],
        [x[keep] for x in groups],
        scenario[keep],
    )


def numbers(phrasings: str | None, num_tasks: int) -> Int[np.ndarray, "n"]:
    """Read the groups of tasks; without them every task is a group of its own."""
    if phrasings is None:
        return np.arange(num_tasks)
    return np.array(phrasings.split(), int)
