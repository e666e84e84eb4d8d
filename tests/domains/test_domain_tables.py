"""Tables of domain files: faults, goals that follow the rules, tasks with records."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_file, domain_spec, domain_tables
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools.perturb import internalization
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.text import reply_scan, scalars
from tests import helpers
from tests.domains import aquarium

TABLE = {"key": "tank", "fields": {"food": "food", "hour": "hour"}}


def document(**states):
    """The aquarium, whose tools do these things to its tanks."""
    made = aquarium.good()
    made["tables"] = {"tank": {**TABLE, "initially": "present"}}
    used = {
        "hold_slot": {"table": "tank", "key": "tank", "reads": {"hour": "hour"}},
        "feed_tank": {"table": "tank", "key": "tank", "sets": {"food": "food"}},
        **states,
    }
    for tool in made["tools"]:
        if state := used.get(tool["function"]["name"]):
            tool["x-openagent"]["state"] = state
    return made


def tank(**state):
    return {"table": "tank", "key": "tank", **state}


def test_a_file_with_a_table():
    spec = aquarium.spec(document())
    (table,) = spec.tables
    assert (table.key, table.present) == ("tank", True)
    feed = next(tool for tool in spec.tools if tool.name == "feed_tank")
    assert feed.access and feed.access.writes and feed.effect
    assert feed.access.sets == {"food": "food"}
    assert all(tool.access is None for tool in aquarium.spec().tools)


@pytest.mark.parametrize(
    "states, fault",
    [
        (
            {"feed_tank": tank(sets={"fod": "food"})},
            "unknown column 'fod'; did you mean",
        ),
        (
            {"feed_tank": tank(sets={"food": "tank"})},
            "it is of type 'tank'; give one of",
        ),
        ({"feed_tank": tank(sets={"food": "fod"})}, "unknown argument 'fod'; did you"),
        (
            {"feed_tank": {"table": "tanks", "key": "tank"}},
            "unknown table 'tanks'; did",
        ),
        ({"feed_tank": {"table": "tank", "key": "food"}}, "give one of type 'tank'"),
        ({"feed_tank": {"table": "tank", "key": "tnk"}}, "unknown key 'tnk'; did you"),
        ({"hold_slot": tank(reads={"hour": "food"})}, "it is of type 'hour'; give one"),
        ({"hold_slot": tank(reads={"our": "hour"})}, "unknown result 'our'; did you"),
        (
            {"feed_tank": tank(adds={"hour": "food"})},
            "cannot be added; use numbers with",
        ),
        ({"feed_tank": tank(creates=True)}, "exist from the start; write"),
        (
            {"feed_tank": tank(sets={"food": "food"}, deletes=True)},
            "a call that deletes can do nothing else; remove",
        ),
        (
            {"find_tank": {"table": "tank", "key": "returns.tank"}},
            "only a call that creates a record can draw its key; name an argument",
        ),
    ],
)
def test_faults(states, fault):
    with pytest.raises(domain_spec.DomainError) as caught:
        aquarium.spec(document(**states))
    (found,) = caught.value.faults
    assert found.startswith("tools[") and fault in found


@pytest.mark.parametrize(
    "table, fault",
    [
        ({**TABLE, "initially": "there"}, "tables.tank.initially: unknown initially"),
        (
            {**TABLE, "key": "hour", "initially": "absent"},
            "'hour' is not a type of entities",
        ),
        (
            {"key": "tnk", "fields": {"food": "food"}, "initially": "absent"},
            "unknown type",
        ),
        ({"key": "tank", "initially": "absent"}, "missing key 'fields'; add it"),
    ],
)
def test_faults_of_tables(table, fault):
    made = document()
    made["tables"]["tank"] = table
    with pytest.raises(domain_spec.DomainError) as caught:
        aquarium.spec(made)
    assert any(fault in found for found in caught.value.faults)


def goals_of(steps, present=True):
    """The faults of a goal on a table of boxes."""
    access = domain_spec.AccessSpec
    does = {
        "read": access("box", "box", reads={"x": "x"}),
        "move": access("box", "box", sets={"x": "x"}),
        "label": access("box", "box", sets={"y": "y"}),
        "burn": access("box", "box", deletes=True),
        "pack": access("box", "box", is_drawn=True, creates=True, sets={"x": "x"}),
    }
    tools = {
        name: domain_spec.ToolSpec(
            name, "", (), (), None, None, x.writes, {}, {}, {}, {}, {}, access=x
        )
        for name, x in does.items()
    }
    table = domain_spec.TableSpec("box", "box", (("x", "t"), ("y", "t")), present)
    return [fault for _, fault in domain_tables.faults(steps, tools, [table])]


class TestGoals:
    A, B, FOUND = {"box": "$a"}, {"box": "$b"}, {"box": "#0.box"}

    @pytest.mark.parametrize(
        "steps",
        [
            [("read", A), ("move", A), ("label", A), ("read", A)],
            [("move", A), ("move", B)],
            [("read", FOUND), ("move", FOUND)],
            [("read", A), ("burn", A)],
        ],
    )
    def test_one_way_to_do_it(self, steps):
        assert not goals_of(steps)

    @pytest.mark.parametrize(
        "steps, present, fault",
        [
            ([("move", A), ("move", A)], True, "changes it again"),
            ([("move", A), ("burn", A)], True, "deletes it"),
            ([("burn", A), ("read", A)], True, "does not exist"),
            ([("read", A), ("move", FOUND)], True, "may be one record of 'box'"),
            ([("read", A)], False, "does not exist; create it"),
            ([("pack", {}), ("pack", {})], False, "a second record"),
            ([("pack", {})], True, "exists already"),
            ([("pack", {}), ("burn", FOUND)], False, "deletes it"),
            ([("pack", {}), ("move", FOUND)], False, "changes it again"),
        ],
    )
    def test_faults(self, steps, present, fault):
        assert any(fault in found for found in goals_of(steps, present))

    def test_sampled_goals_follow_the_rules(self):
        spec = domain_file.load("banking")
        goals = goal_sampling.sample_goals(spec, Limits(), 300)
        tools = {tool.name: tool for tool in spec.tools}
        assert all(domain_tables.fits(goal, spec) for goal in goals)
        after = [
            [name for name, _ in goal.steps]
            for goal in goals
            if domain_tables.conflicts(goal.steps, tools)
        ]
        pay, read = "pay_bill", "account_balance"
        both = [x for x in after if {pay, read} <= set(x)]
        assert any(x.index(pay) < x.index(read) for x in both)


@pytest.mark.parametrize(
    "name",
    [
        "banking",
        # Each domain compiles anew; test_library_play.py plays all of them together.
        *(pytest.param(x, marks=pytest.mark.hours) for x in ("calendar", "travel")),
        pytest.param("shop", marks=pytest.mark.hours),
    ],
)
def test_the_expert_solves_tasks_with_records(name):
    tasks = helpers.tasks(name)
    played = helpers.demonstrate(helpers.world(name).tables, tasks)
    episodes, fewest = helpers.host(played)
    state = episodes.state
    assert np.all(state.success) and not np.any(state.wrong_effects)
    assert not np.any(state.num_errors)
    assert np.array_equal(state.num_calls, fewest)
    changed = np.any(state.cells.record.columns != state.cells.record.was, axis=(1, 2))
    changed |= np.any(state.cells.record.alive != state.cells.record.was_alive, axis=1)
    assert 0.05 < np.mean(changed) < 0.95


def test_a_balance_is_drawn_down():
    """The balance after a payment is the one before, less the payment."""
    rows, name = helpers.tool_rows("banking"), "banking"
    tasks = helpers.tasks(name)
    episodes = helpers.host(helpers.demonstrate(helpers.world(name).tables, tasks)[0])
    pay, seen = rows["pay_bill"], 0
    for i, task in enumerate(helpers.rows(tasks)):
        steps, state = list(task.goal.tool), helpers.row(episodes.state, i)
        if pay not in steps:
            continue
        c = steps.index(pay)
        if not state.done[c]:  # its condition does not hold
            continue
        held = state.cells.table > 0
        m = np.flatnonzero(held & (state.cells.key == state.args[c, 0]))[0]
        record = helpers.row(state.cells.record, m)
        was, now = (scalars.python(int(x[0])) for x in (record.was, record.columns))
        assert round(was - now, 2) == scalars.python(int(state.args[c, 2]))
        if rows["account_balance"] in steps:
            read = steps.index(rows["account_balance"])
            if state.args[read, 0] != state.args[c, 0]:  # of another account
                continue
            shown = state.values[read, 0]
            assert shown in (record.was[0], record.columns[0])
            seen += shown == record.columns[0]
    assert seen


def test_unfamiliar_entities_are_in_records_too():
    """Eagerly, for one task: compiling the whole catalogue would take long."""
    task = helpers.row(helpers.tasks("travel", "test"), 0)
    source = helpers.arrays("travel")
    pools = source.pools(task, domain.TEST, jnp.zeros((1, 2), jnp.int32))
    shift = internalization.entity_shift(pools)
    shifted = shift(jax.random.key(0), task, jnp.float32(1)).tools.access
    assert np.array_equal(shifted.initial_low, source.initial_range[0, 2, ..., 0])
    assert np.array_equal(shifted.initial_high, source.initial_range[0, 2, ..., 1])
    assert np.any(task.tools.access.initial_low != shifted.initial_low)


@pytest.mark.parametrize("entry", ["logic_inversion", "dependency_extension"])
def test_perturbed_tasks_stay_solvable(entry):
    tables, tasks = helpers.world("banking").tables, helpers.tasks("banking", "train")
    tasks = helpers.edit_alone(entry, tables, tasks, "train")
    played = helpers.demonstrate(tables, tasks)
    state = helpers.host(played[0]).state
    assert np.all(state.solvable & state.success)
    assert reply_scan.CALL in helpers.host(played[0]).action.kind
