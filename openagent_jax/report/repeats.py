"""Tasks that are played several times: pass^k and pass@k.

pass^k is the probability that all of k trials of a task succeed (tau-bench,
arXiv:2406.12045), and pass@k that at least one does (Chen et al., arXiv:2107.03374).
With c successes in the n trials of a task, they are estimated without bias by

    pass^k = C(c, k) / C(n, k)
    pass@k = 1 - C(n - c, k) / C(n, k)

and averaged over tasks. The intervals are those of a rate whose outcomes are these
estimates, with one outcome for each task: trials of a task are never counted as
independent, nor are tasks whose clean requests are worded alike.

Known limit: where seeds differ hugely, pass^k may be near 0 (or pass@k near 1) for
all but a few seeds. With three seeds that spread by 1.5 on the scale of logits, the
interval of pass^4 of a success of 10 % covers it in 79 % of the cases; see the known
limit in `intervals`. tests/report/test_coverage_of_ratios.py measures the coverage.

Every trial is perturbed anew. Only trials of tasks that can be solved are counted, so
that refusals of others are never taken for successes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from openagent_jax.report import intervals, outcomes
from openagent_jax.report.outcomes import Json

KEYS = ("pass_hat_k", "pass_at_k")  # of a row


def pass_hat_k(successes: Bool[np.ndarray, "tasks trials"], k: int) -> float:
    """Estimate pass^k, the probability that k trials of a task all succeed.

    Args:
      successes: 0 or 1 for each trial of each task.
      k: the number of trials, from 1 to the number of trials of each task.

    Raises:
      ValueError: an outcome is not 0 or 1, there are none, or `k` is out of range.

    >>> pass_hat_k(np.array([[1, 1, 0, 1], [1, 1, 1, 1]]), k=2)
    0.75
    """
    num_trials = _check("pass^", successes, k)
    count = np.asarray(successes).astype(int).sum(axis=1)
    return float(np.mean(all_of(count, np.full(len(count), num_trials), k)))


def pass_at_k(successes: Bool[np.ndarray, "tasks trials"], k: int) -> float:
    """Estimate pass@k, the probability that one of k trials of a task succeeds.

    Args:
      successes: 0 or 1 for each trial of each task.
      k: the number of trials, from 1 to the number of trials of each task.

    Raises:
      ValueError: as for `pass_hat_k`.

    >>> round(pass_at_k(np.array([[1, 0, 0, 0], [0, 0, 0, 0]]), k=2), 2)
    0.25
    """
    _check("pass@", successes, k)
    return 1 - pass_hat_k(1 - np.asarray(successes).astype(int), k)


def sizes(repeats: int) -> list[int]:
    """Return the k that rows have: the powers of 2, and the number of trials itself.

    >>> sizes(6), sizes(1)
    ([2, 4, 6], [])
    """
    powers = (2**i for i in range(1, repeats.bit_length()))
    return sorted({k for k in (*powers, repeats) if 1 < k <= repeats})


def of_row(row: Mapping[str, Any], repeats: int, phrasings: str | None) -> Json:
    """Return pass^k and pass@k of a row.

    Args:
      row: a row with outcomes, of one run or of several.
      repeats: the number of trials of each task, which follow each other.
      phrasings: the `phrasings` of the report.

    Returns:
      `{"pass_hat_k": {"2": interval, ...}, "pass_at_k": ...}`, which is empty if tasks
      are played once, or if the row does not have its outcomes. A task of which fewer
      than k trials are counted is left out; if that leaves none of a run, so is k.
    """
    letters = outcomes.letters(row)
    if repeats < 2 or letters is None or letters.shape[1] % repeats:
        return {}
    trials = letters.reshape(len(letters), -1, repeats)
    among, counts = (list(x) for x in outcomes.RATES["solved"])
    counted = np.isin(trials, among).sum(axis=2)
    solved = np.isin(trials, counts).sum(axis=2)
    found: Json = {key: {} for key in KEYS}
    for k in sizes(repeats):
        known = counted >= k
        if not known.any(axis=1).all():
            continue
        every = all_of(solved, counted, k)
        some = 1 - all_of(counted - solved, counted, k)
        for key, values in zip(KEYS, (every, some), strict=True):
            of_tasks = _outcomes(row, values, known, repeats, phrasings)
            found[key][str(k)] = intervals.rate(of_tasks)
    return found


def _outcomes(
    row: Mapping[str, Any],
    values: Float[np.ndarray, "S tasks"],
    known: Bool[np.ndarray, "S tasks"],
    repeats: int,
    phrasings: str | None,
) -> intervals.Outcomes:
    """Return one outcome for each task, for those that are known in some run."""
    num = values.shape[1]
    groups = outcomes.numbers(phrasings, num * repeats)[::repeats]
    if "domains" in row:  # each weighs the same
        domains = np.array(row["domains"].split(), int)[::repeats]
        weights = intervals.domain_weights(domains, known)
    else:
        weights = known / known.sum(axis=1, keepdims=True)
    keep = known.any(axis=0)
    return intervals.Outcomes(
        values[:, keep], weights[:, keep], [groups[keep]], np.zeros(keep.sum(), int)
    )


def all_of(
    count: Int[np.ndarray, "*T"], num: Int[np.ndarray, "*T"], k: int
) -> Float[np.ndarray, "*T"]:
    """Return C(count, k) / C(num, k); 0 where num < k."""
    i = np.arange(k)
    left = np.maximum(num[..., None] - i, 1)
    return np.prod(np.maximum(count[..., None] - i, 0) / left, axis=-1)


def _check(name: str, successes: Any, k: int) -> int:
    """Return the number of trials of each task.

    Raises:
      ValueError: see `pass_hat_k`.
    """
    binary = np.isin(successes, (0, 1))
    if binary.ndim != 2 or not binary.size or not binary.all():
        raise ValueError(
            f"{name}k needs outcomes of 0 or 1, with a row for each task and a column "
            "for each trial"
        )
    num_trials = binary.shape[1]
    if not 1 <= k <= num_trials:
        raise ValueError(
            f"{name}{k} needs 1 <= k <= {num_trials}, the number of trials"
        )
    return num_trials
