"""Mixtures of domains: which domains each split is sampled from, joined as arrays."""

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools.worlds import domain, phrases
from openagent_jax.environments.tools.worlds.domain import Domain
from openagent_jax.environments.tools.worlds.goal_tables import GOAL_BLOCK
from openagent_jax.environments.world import Settings, names_of
from openagent_jax.text import nesting


class Shares(NamedTuple):
    """Several domains, and how often a task of each split is of each."""

    names: tuple[str, ...]
    rates: tuple[tuple[float, ...], ...]  # by split; each sums to 1


def shares(settings: Settings) -> Shares:
    """Return the domains that tasks are sampled from.

    Training tasks are of `settings.domain`, with its weights. A test is of
    `settings.test_domains` and weighs each the same, as a report does.

    >>> shares(Settings("poi,medical", domain_weights="3,1")).rates
    ((0.75, 0.25), (0.5, 0.5))

    Raises:
      ValueError: the weights are not one positive number for each domain.
    """
    train = names_of(settings.domain)
    test = names_of(settings.test_domains) or train
    weights = dict(zip(train, _weights(settings), strict=True))
    names = tuple(dict.fromkeys((*train, *test)))
    rates = (
        tuple(weights.get(name, 0) / sum(weights.values()) for name in names),
        tuple((name in test) / len(test) for name in names),
    )
    return Shares(names, rates)


def equal(text: str) -> Shares:
    """Return the domains of a list, each with the same weight in every split."""
    names = names_of(text)
    return Shares(names, ((1 / len(names),) * len(names),) * 2)


def _weights(settings: Settings) -> list[float]:
    num, text = len(names_of(settings.domain)), settings.domain_weights
    if not text:
        return [1.0] * num
    try:
        weights = [float(x) for x in text.split(",")]
    except ValueError:
        weights = []
    if len(weights) != num or not all(0 < x < float("inf") for x in weights):
        raise ValueError(
            f'sandbox.domain_weights="{text}" is not one positive number for each of '
            f"the {num} domains of sandbox.domain; write "
            f'"{",".join("1" * num)}", or "" for equal weights'
        )
    return weights


def load(names: Sequence[str], limits: Limits) -> dict[str, DomainSpec]:
    """Read and check domains, each once.

    Raises:
      ValueError: a file has faults; the message has one for each such domain.
    """
    specs: dict[str, DomainSpec] = {}
    found: list[ValueError] = []
    for name in dict.fromkeys(names):
        try:
            specs[name] = domain_file.load(name, limits)
        except ValueError as error:
            found.append(error)
    if len(found) == 1:
        raise found[0]
    if found:
        raise ValueError("; ".join(map(str, found)))
    return specs


def without_unused_conditions(
    made: Mapping[str, Domain],
) -> tuple[dict[str, Domain], bool]:
    """Return domains without the arrays of conditions if no goal has any, and whether
    some goal has one."""
    when = [part.goal_when for part in made.values()]
    if any(x is not None and np.asarray(x).max() >= 0 for x in when):
        return dict(made), True
    return {name: replace(part, goal_when=None) for name, part in made.items()}, False


def join(parts: Sequence[Domain], rates: Float[np.ndarray, "2 D"]) -> Domain:
    """Return domains as one, whose goals follow each other.

    Args:
      parts: domains of one world, which share its limits.
      rates: by split, how often a task is of each domain.
    """
    if len(parts) == 1:
        return parts[0]
    parts = [jax.tree.map(np.asarray, part) for part in parts]
    num_goals = [int(part.num_goals[0]) for part in parts]
    size = phrases.round_up(sum(num_goals), GOAL_BLOCK)

    def goals(name: str, axis: int = 0) -> np.ndarray:
        arrays = [
            np.take(getattr(part, name), range(num), axis)
            for part, num in zip(parts, num_goals, strict=True)
        ]
        joined = np.concatenate(arrays, axis)
        widths = [(0, 0)] * joined.ndim
        widths[axis] = (0, size - joined.shape[axis])
        return np.pad(joined, widths)

    which = np.repeat(np.arange(len(parts), dtype=np.int32), num_goals)
    ends = np.cumsum(rates, axis=1)
    ends = np.where(ends > 1 - 1e-6, 1, ends).astype(np.float32)
    joined = Domain(
        tools=jax.tree.map(_stacked, *(part.tools for part in parts)),
        num_tools=_stacked(*(part.num_tools for part in parts)),
        num_goals=np.array(num_goals, np.int32),
        first_goal=np.cumsum([0, *num_goals[:-1]], dtype=np.int32),
        ends=ends,
        result_range=_stacked(*(part.result_range for part in parts)),
        # Domains of one world have equal limits: all have columns, or none.
        initial_range=jax.tree.map(_stacked, *(part.initial_range for part in parts)),
        goal_domain=np.pad(which, (0, size - len(which))),
        goal_tool=goals("goal_tool"),
        goal_source=goals("goal_source"),
        goal_answer=goals("goal_answer"),
        goal_when=None if parts[0].goal_when is None else goals("goal_when"),
        goal_set=goals("goal_set"),
        constant_range=goals("constant_range", axis=1),
        set_needs=_stacked(*(part.set_needs for part in parts)),
        set_sure=_stacked(*(part.set_sure for part in parts)),
        pairing=_stacked(*(part.pairing for part in parts)),
        phrases=phrases.join([part.phrases for part in parts], num_goals, size),
        codes=parts[0].codes,
        variants=_variants([part.variants for part in parts]),
        facts=parts[0].facts,
    )
    return jax.tree.map(jnp.asarray, joined)


def joined(made: Mapping[str, Domain], chosen: Shares) -> Domain:
    """Return some of the domains of a world as one."""
    return join([made[name] for name in chosen.names], np.array(chosen.rates))


def units(specs: Iterable[DomainSpec]) -> dict[str, str]:
    """Return the unit of each key of results that has the same one everywhere."""
    found: dict[str, set[str]] = {}
    for spec in specs:
        unit = {kind.name: kind.unit for kind in spec.types}
        for path, kind in itertools.chain(*(tool.returns for tool in spec.tools)):
            key = str(nesting.parse(path)[-1])
            found.setdefault(key, set()).add(unit.get(kind, ""))
    return {key: some.pop() for key, some in found.items() if len(some) == 1}


def goals(domains: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return a name for each kind of goal of joined domains.

    Args:
      domains: the name of each domain, and those of its goals.
    """
    if len(domains) == 1:
        return [*domains[0][1]]
    return [f"{name}.{goal}" for name, own in domains for goal in own]


def _stacked(*arrays: np.ndarray) -> np.ndarray:
    """Concatenate arrays along the first axis, with 0 where others are longer."""
    shape = np.max([x.shape for x in arrays], axis=0)
    missing = [np.array([0, *(shape - x.shape)[1:]]) for x in arrays]
    padded = [
        np.pad(x, np.stack([0 * more, more], axis=1))
        for x, more in zip(arrays, missing, strict=True)
    ]
    return np.concatenate(padded)


def _variants(parts: Sequence[domain.Variants]) -> domain.Variants:
    """Join synonyms; fewer of them are repeated."""
    Y = max(part.name.shape[-1] for part in parts)

    def repeated(*arrays: np.ndarray) -> np.ndarray:
        return np.concatenate([x[..., np.arange(Y) % x.shape[-1]] for x in arrays])

    return jax.tree.map(repeated, *parts)
