"""Differences from clean that stay significant although a report tests many of them.

A row has the p-value of its difference from clean: the least alpha at which the
interval of `intervals.difference` does not contain 0, so that p-value and interval
never contradict each other. Of m differences without any effect, 5 % would be taken for
an effect; therefore each p-value is also adjusted by the method of Holm (1979, Scand.
J. Stat. 6:65), with which the probability of any such mistake is at most 5 %, however
the differences depend on each other.

The family, over which p-values are adjusted, is all rows of one report that are not
clean and have tasks that can be solved. Means over several of them are not in it, and
are not marked; nor are the rows of single domains, which are a family for each domain.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from openagent_jax.report import intervals, outcomes
from openagent_jax.report.intervals import Interval, Outcomes
from openagent_jax.report.outcomes import Json

LEAST = 1e-12  # p-values are not computed more finely
_PARTS, _ROUNDS = 32, 4  # of the search for a p-value


def p_value(new: Outcomes, old: Outcomes) -> Any:
    """Compute the p-value of the hypothesis that two rates are equal.

    Args:
      new: outcomes of 0 or 1.
      old: outcomes of the same cells, under the other condition.

    Returns:
      The least alpha, from `LEAST` to 1, at which the interval of the difference does
      not contain 0, as a float or an array `*R`. It is rounded up.

    >>> yes, no = (intervals.of_one(np.arange(40) < n) for n in (30, 20))
    >>> found = p_value(yes, no)
    >>> 0.0005 < found < 0.01
    True
    """
    one = np.ones(new.values.shape[:-2])

    def excluded(alpha):
        found = intervals.difference(new, old, alpha)
        return (found["low"] > 0) | (found["high"] < 0)

    # Search on the scale of logarithms, on the side of 5 % that the interval says.
    significant = excluded(intervals.ALPHA * one)
    middle, least = np.log(intervals.ALPHA), np.log(LEAST)
    low = np.where(significant, least, middle)  # not excluded here, or not computed
    high = np.where(significant, middle, 0.0)  # excluded here, or no effect at all
    steps = np.arange(1, _PARTS).reshape(-1, *[1] * one.ndim) / _PARTS
    for _ in range(_ROUNDS):
        grid = low + steps * (high - low)
        # Small parts first: the first that is excluded ends the search.
        first = np.concatenate([excluded(np.exp(grid)), [one > 0]]).argmax(axis=0)
        edges = np.concatenate([[low], grid, [high]])
        low, high = (
            np.take_along_axis(edges, (first + i)[None], axis=0)[0] for i in (0, 1)
        )
    p = np.minimum(np.exp(high), np.where(significant, intervals.ALPHA, 1.0))
    return p if p.ndim else float(p)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values by the method of Holm, in their order.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03, 0.005])]
    [0.03, 0.06, 0.06, 0.02]
    """
    values = np.asarray(p_values, float)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1)
    return adjusted.tolist()


def adjust(rows: Iterable[Json], phrasings: str | None) -> None:
    """Give the rows of one report their p-values, in place: `p`, with `raw` and `holm`.

    They are of success on tasks that can be solved. Rows without such tasks get none,
    nor do those without the outcomes of their tasks.

    Args:
      rows: all rows of a report, possibly of several seeds.
      phrasings: the `phrasings` of the report.
    """
    rows = list(rows)
    clean = next((r for r in rows if r["tier"] == "clean"), None)
    family = [r for r in rows if r["tier"] != "clean" and r["n"]]
    pairs = [outcomes.pairs([r], clean, phrasings, "solved") for r in family]
    known = [(r, pair) for r, pair in zip(family, pairs, strict=True) if pair]
    raw = [p_value(*pair) for _, pair in known]
    for (r, _), p, adjusted in zip(known, raw, holm(raw), strict=True):
        r["p"] = {"raw": p, "holm": adjusted}


def holds(row: Mapping[str, Any]) -> bool:
    """Return whether the difference of a row holds after the correction.

    >>> holds({"p": {"raw": 0.01, "holm": 0.06}}), holds({})
    (False, False)
    """
    return bool(row.get("p")) and significant(row["p"])


def significant(p: Mapping[str, Any]) -> bool:
    """Return whether an adjusted p-value is at most 5 %; those of means are not."""
    return p["holm"] is not None and p["holm"] <= intervals.ALPHA


def family_size(rows: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of differences that were adjusted together."""
    return sum(bool(r.get("p")) for r in rows)


def retention(new: Outcomes, old: Outcomes) -> Interval:
    """Compute which share of the clean success is left, with its interval.

    Returns:
      `{"mean", "low", "high"}`, in which 1 means that nothing is lost. All are None if
      the clean success is 0, or if its seeds differ so much that it may be.
    """
    found = intervals.ratio(new, old)
    if found["high"] is None or not np.isfinite(found["high"]):
        return dict.fromkeys(intervals.PARTS)
    return found
