"""What the perturbations of dependencies and of sources of results mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import environment
from tests import differences, helpers

POINTERS = ("code_from", "call_after")
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)


def pair(name, entry, split="test", strength=1.0):
    """Tasks before and after, and which of them have changed."""
    old = helpers.host(helpers.tasks(name, split))
    new = helpers.host(helpers.edited(name, split, entry, strength))
    return old, new, differences.changed_tasks(old, new)


@jax.jit
def replay(lexicon, tasks, actions):
    """The last states of episodes in which agents act as recorded, whatever happens."""

    def one(task, actions):
        def step(state, action):
            turn = environment.step(lexicon, task, state, action, helpers.MAX_TURNS)
            return turn[0], None

        return jax.lax.scan(step, environment.reset(lexicon, task), actions)[0]

    return jax.vmap(one)(tasks, actions)


class TestDependencyRewire:
    @every_domain
    def test_needs_a_documented_tool_that_it_did_not_need(self, name):
        old, new, hit = pair(name, "dependency_rewire")
        assert hit.mean() > 0.5
        for before, after in zip(helpers.rows(old), helpers.rows(new), strict=True):
            for pointer in POINTERS:
                was, now = (getattr(x.tools, pointer) for x in (before, after))
                for tool in np.flatnonzero(was != now):
                    assert tool in before.goal.tool and now[tool] != tool
                    assert before.tools.visible[now[tool]]
                    # It is not the tool that needs this one: nothing is reversed.
                    for other in POINTERS:
                        assert getattr(before.tools, other)[now[tool]] != tool

    @every_domain
    def test_who_acts_by_the_old_documents_fails(self, name):
        old, new, _ = pair(name, "dependency_rewire")
        tables = helpers.world(name).tables
        episodes, _ = helpers.demonstrate(tables, old)
        assert np.all(episodes.state.success)
        states = replay(tables.lexicon, new, episodes.action)
        wants_code = np.any(old.tools.code_from != new.tools.code_from, axis=1)
        assert wants_code.mean() > 0.3
        assert not np.any(np.asarray(states.success) & wants_code)

    def test_strength_is_the_share_of_tools(self):
        def num_rewired(strength):
            old, new, _ = pair("poi", "dependency_rewire", strength=strength)
            differ = (getattr(old.tools, p) != getattr(new.tools, p) for p in POINTERS)
            return np.sum([*differ])

        # A tool that is rewired can keep others from being rewired.
        assert 0.45 < num_rewired(0.5) / num_rewired(1.0) < 0.65

    def test_a_tool_that_cannot_be_called_is_no_prerequisite(self):
        """Not even where another perturbation has made it so."""
        split = "test"
        for entry in ("spare_contradiction", "error_with_alternative"):
            tasks = helpers.edited("poi", split, entry)
            index = helpers.EDITS.index("dependency_rewire")
            tables, keys = helpers.world("poi").tables, helpers.keys(2)
            new = helpers.edit(
                jnp.int32(index), tables, keys, tasks, jnp.float32(1), split
            )
            assert np.all(helpers.demonstrate(tables, new)[0].state.solvable)
