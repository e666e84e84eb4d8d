"""The oracle against its own expert, and against an exhaustive search over actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.crafting import oracle, types
from openagent_jax.text import reply_scan
from tests import helpers
from tests.environments.crafting import crafts

HORIZON = 6  # calls
ITEMS = 4  # items of a small world


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("entry", crafts.EDITS)
def test_expert(entry, split):
    """It solves solvable tasks in the fewest calls, and refuses the others."""
    episodes, proof, _, _ = crafts.played(entry, split)
    state, solvable = episodes.state, proof.solvable
    assert state.success.all()
    assert np.array_equal(state.refused, ~solvable)
    assert np.array_equal(state.num_calls[solvable], proof.fewest_calls[solvable])
    assert not state.wrong_effects.any()
    assert not episodes.timestep.reward["detour"].any()
    assert np.array_equal(proof.reason == 0, solvable)
    actions = episodes.action.kind[episodes.valid]
    assert not np.any(actions == reply_scan.MALFORMED)
    if entry == "sold_out":
        assert {*proof.reason} == {0, oracle.REASONS.index("sold_out")}
        assert state.num_calls[~solvable].min() > 0  # only a call can reveal it
    if entry == "sold_out_with_recipe":
        hit = episodes.task.faults.sold_out.any(axis=1)
        assert np.array_equal(state.num_errors, hit)
        # The call that fails, and one for what it is made from unless that is held.
        clean = crafts.played("clean", split)[1].fewest_calls
        assert {*(proof.fewest_calls - clean)[hit]} <= {1, 2}
    if entry == "impossible_goal":
        assert {*proof.reason} == {oracle.REASONS.index("no_source")}
        assert not state.num_calls.any()
    if entry == "vague_goal":
        assert np.all(state.num_questions == 1)


class SmallWorld:
    """A world of few items in plain Python."""

    def __init__(self, generator):
        draw, chance = generator.integers, generator.random
        self.recipes = {}
        for item in range(ITEMS - 1):
            if chance() < 0.75:  # cycles are rare
                low = 0 if chance() < 0.15 else item + 1
                row = [int(x) for x in draw(low, ITEMS, draw(1, 4))]
                self.recipes[item] = row
        free = [item for item in range(ITEMS) if item not in self.recipes]
        self.raw = [item for item in free if chance() < 0.85]
        self.held = {item: int(chance() < 0.3) for item in range(ITEMS)}
        self.goal = int(draw(0, 2))
        self.held[self.goal] = 0
        self.failures = {int(draw(0, ITEMS)): int(draw(0, 2))}
        self.sold_out = [item for item in self.raw if chance() < 0.15]

    @functools.cached_property
    def task(self):
        return crafts.task(
            self.recipes, self.raw, self.held, self.goal, self.failures, self.sold_out
        )

    def successors(self, state):
        """States after each call that changes the state."""
        held, attempts = state
        for item in range(ITEMS):
            failing = attempts[item] < self.failures.get(item, 0)
            tried = list(attempts)
            tried[item] = min(tried[item] + 1, 2)
            if item in self.raw and item not in self.sold_out:
                new = [*held]
                new[item] += 1
            elif item in self.recipes:
                new = [*held]
                for ingredient in self.recipes[item]:
                    new[ingredient] -= 1
                if min(new) < 0:
                    continue
                new[item] += 1
            else:
                continue
            yield (held if failing else tuple(new)), tuple(tried)

    def fewest(self):
        """The number of calls of the shortest solution; None beyond the horizon."""
        states = {(tuple(self.held[i] for i in range(ITEMS)), (0,) * ITEMS)}
        seen = set(states)
        for num in range(HORIZON + 1):
            if any(held[self.goal] for held, _ in states):
                return num
            states = {new for state in states for new in self.successors(state)} - seen
            seen |= states
        return None


def test_brute_force():
    generator = np.random.default_rng(0)
    worlds = [SmallWorld(generator) for _ in range(400)]
    tasks = jax.tree.map(lambda *x: jnp.stack(x), *(world.task for world in worlds))
    proof = helpers.host(jax.jit(jax.vmap(oracle.certificate))(tasks))
    found = [world.fewest() for world in worlds]
    for i, fewest in enumerate(found):
        claimed = int(proof.fewest_calls[i]) if proof.solvable[i] else None
        if claimed is not None and claimed > HORIZON:
            claimed = None
        assert claimed == fewest, vars(worlds[i])
    counts = {num: found.count(num) for num in {*found}}
    assert {None, 1, 2, 3, 4, 5} <= counts.keys()
    assert {*proof.reason} == set(range(len(oracle.REASONS)))


@pytest.mark.parametrize(
    ("task", "fewest", "reason"),
    [
        # Two units of item 1 are needed, and one is held.
        (dict(ingredients={0: [1, 1]}, raw=[1], held={1: 1}), 2, ""),
        # An item that is held, or that the goal does not need, requires no source.
        (dict(ingredients={0: [1], 2: [3]}, held={1: 1}), 1, ""),
        (dict(ingredients={0: [1]}), 0, "no_source"),
        (dict(ingredients={0: [1], 1: [0]}), 0, "circular_recipes"),
        (dict(ingredients={0: [1], 1: [2], 2: [1]}, held={2: 1}), 2, ""),
        (dict(ingredients={0: [1]}, raw=[1], sold_out=[1]), 0, "sold_out"),
        (dict(ingredients={0: [1]}, raw=[1], failures={0: 2, 5: 1}), 4, ""),
        # Only a call reveals what is sold out; then its recipe is used.
        (dict(ingredients={0: [1], 1: [2]}, raw=[1, 2], sold_out=[1]), 4, ""),
        (dict(ingredients={0: [1], 2: [1]}, raw=[1, 2], sold_out=[1]), 0, "sold_out"),
        # What is sold out and not needed is never found out.
        (dict(ingredients={0: [1]}, raw=[1, 2], sold_out=[2]), 2, ""),
        # A raw item that has a recipe too is taken.
        (dict(ingredients={0: [1], 1: [2]}, raw=[1], held={2: 1}), 2, ""),
    ],
)
def test_by_hand(task, fewest, reason):
    made = crafts.task(**task)
    assert made.items.ingredients.shape == (types.NUM_ITEMS, types.NUM_INGREDIENTS)
    proof = _certificate(made)
    assert bool(proof.solvable) == (not reason)
    assert int(proof.fewest_calls) == fewest
    assert oracle.REASONS[int(proof.reason)] == reason


_certificate = jax.jit(oracle.certificate)
