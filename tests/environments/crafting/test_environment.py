"""The dynamics by hand: observations, rewards and changes of the world."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments import grading
from openagent_jax.environments.crafting import environment, types
from openagent_jax.environments.crafting.types import CRAFT, GET, INVENTORY
from openagent_jax.text import reply_scan, style
from openagent_jax.types import Sizes
from tests import helpers
from tests.environments.crafting import crafts

DONE, OTHER = "done", "something"
ANSWER, REFUSE, ASK = reply_scan.ANSWER, reply_scan.REFUSE, reply_scan.ASK
# Item 0 is made of 1 and 2, item 1 of 3; 4 is useless, and 5 cannot be obtained.
RECIPES = {0: [1, 2], 1: [3], 4: [3]}
MAX_TURNS = 8


@pytest.fixture(scope="module")
def play():
    """`play(task, actions) -> (states, timesteps)` by one compiled step."""
    tables = crafts.world().tables
    assert isinstance(crafts.SETTINGS.sizes, Sizes)

    @jax.jit
    def step(tables, task, state, action):
        return environment.step(tables.lexicon, task, state, action, MAX_TURNS)

    reset = jax.jit(environment.reset)

    def run(task, actions):
        states, timesteps = [reset(task)], []
        for action in actions:
            state, timestep = step(tables, task, states[-1], act(*action))
            states.append(state)
            timesteps.append(timestep)
        return helpers.host(states), helpers.host(timesteps)

    return run


def act(kind, item=types.NO_ITEM):
    """An action: a call of a tool by its name, or another kind by its number."""
    none, symbols = -1, crafts.world().tables.lexicon.style
    values = {DONE: symbols.done, OTHER: symbols.unknown}
    tools = {"get": GET, "craft": CRAFT, "inventory": INVENTORY, "fly": none}
    called = kind in tools
    answered = kind in values
    number = reply_scan.CALL if called else ANSWER if answered else kind
    call = types.Call(jnp.int32(tools.get(kind, none)), jnp.int32(item))
    return types.Action(jnp.int32(number), call, jnp.int32(values.get(kind, none)))


def task(**changes):
    given = dict(ingredients=RECIPES, raw=[2, 3], held={3: 1})
    return crafts.task(**given | changes)


GOOD = (("craft", 1), ("get", 2), ("craft", 0), (DONE,))


def earned(timesteps):
    """The sums of all reward components that are not 0."""
    names = timesteps[0].reward
    sums = {name: sum(float(t.reward[name]) for t in timesteps) for name in names}
    return {name: round(value, 5) for name, value in sums.items() if value}


def test_a_solution(play):
    states, timesteps = play(task(), GOOD)
    assert [int(t.observation.status) for t in timesteps] == [style.OK] * 3 + [
        style.NO_RESULT
    ]
    assert states[-1].success and states[-1].finished and timesteps[-1].terminated
    assert states[-1].held.sum() == states[-1].held[0] == 1
    assert earned(timesteps) == {"outcome": 1, "step": 4, "progress": 1}
    assert [round(float(t.reward["progress"]), 2) for t in timesteps] == [
        0.33,
        0.33,
        0.33,
        0,
    ]


@pytest.mark.parametrize(
    ("action", "status"),
    [
        (("craft", 0), types.LACKING),
        (("craft", 2), types.NO_RECIPE),
        (("get", 1), types.NOT_RAW),
        (("get", 5), types.NOT_RAW),
        (("get", types.UNKNOWN_ITEM), types.NO_SUCH_ITEM),
        (("get",), style.BAD_ARGUMENT),
        (("craft", types.WRONG_ARGUMENTS), style.BAD_ARGUMENT),
        (("inventory", 1), style.BAD_ARGUMENT),
        (("fly", 1), style.UNKNOWN_TOOL),
        ((reply_scan.MALFORMED,), style.BAD_FORMAT),
    ],
)
def test_errors_change_nothing(play, action, status):
    states, timesteps = play(task(), (action,))
    assert int(timesteps[0].observation.status) == status
    assert np.array_equal(states[1].held, states[0].held)
    assert (states[1].num_errors, states[1].num_calls) == (1, 1)
    if status == types.LACKING:
        assert timesteps[0].observation.item == 1
    # An error counts as a call, so one call is too many.
    _, timesteps = play(task(), (action, *GOOD))
    paid = {"outcome": 1, "step": 5, "progress": 1, "detour": 1}
    malformed = action[0] == reply_scan.MALFORMED
    assert earned(timesteps) == paid | ({"format": 1} if malformed else {})


def test_inventory_changes_nothing(play):
    states, timesteps = play(task(), (("get", 2), ("inventory",)))
    assert int(timesteps[1].observation.status) == style.OK
    assert np.array_equal(timesteps[1].observation.held, states[2].held)
    assert states[2].held[2] == 1


def test_unneeded_crafts_fail_the_task(play):
    """An item that the user holds was used up for something else."""
    states, timesteps = play(task(), (("craft", 4), ("get", 3), *GOOD))
    assert states[-1].held[0] == 1 and not states[-1].success
    assert earned(timesteps) == {
        "wrong": 1,
        "effect": 1,
        "step": 6,
        "detour": 2,
        "progress": 1,
    }


def test_failing_and_sold_out(play):
    states, timesteps = play(task(failures={2: 2}), (("get", 2),) * 3)
    found = [int(t.observation.status) for t in timesteps]
    assert found == [style.TRANSIENT, style.TRANSIENT, style.OK]
    assert states[-1].held[2] == 1 and states[-1].num_errors == 2
    states, timesteps = play(task(sold_out=[2]), (("get", 2),) * 2 + ((REFUSE,),))
    found = [int(t.observation.status) for t in timesteps]
    assert found == [types.SOLD_OUT, types.SOLD_OUT, style.NO_RESULT]
    assert states[-1].known_sold_out[2] and states[-1].success
    assert earned(timesteps) == {"refusal": 1, "step": 3}


@pytest.mark.parametrize(
    ("actions", "paid"),
    [
        (((DONE,),), {"wrong": 1, "step": 1}),
        ((*GOOD[:-1], (OTHER,)), {"wrong": 1, "step": 4, "progress": 1}),
        (((REFUSE,),), {"abstain": 1, "step": 1}),
    ],
)
def test_failures(play, actions, paid):
    states, timesteps = play(task(), actions)
    assert not states[-1].success and states[-1].finished
    assert earned(timesteps) == paid


def test_ask(play):
    hidden = dataclasses.replace(task(), shown=jnp.bool_(False))
    states, timesteps = play(hidden, ((ASK,), *GOOD))
    assert int(timesteps[0].observation.status) == style.USER_REPLY
    assert states[1].told and states[1].num_questions == 1 and not states[1].num_calls
    assert states[-1].success
    states, _ = play(task(), ((ASK,),))
    assert not states[1].told


def test_after_the_end(play):
    """Nothing changes after the end; an episode without an end runs out of turns."""
    states, timesteps = play(task(), (*GOOD, ("get", 2), (REFUSE,)))
    for later in states[5:]:
        jax.tree.map(np.testing.assert_array_equal, later, states[4])
    assert all(int(t.observation.status) == style.NO_RESULT for t in timesteps[3:])
    assert not any(any(t.reward.values()) for t in timesteps[4:])
    states, timesteps = play(task(), [("inventory",)] * MAX_TURNS)
    assert [bool(t.truncated) for t in timesteps] == [False] * (MAX_TURNS - 1) + [True]
    assert states[-1].finished and not states[-1].success


def test_reward_components_are_declared():
    names = [name for name, _ in grading.REWARDS]
    reward = crafts.played()[0].timestep.reward
    assert sorted(reward) == sorted(names)
