"""Perturbations at the first step of the goal, at one in between, or at the last."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools import make as tools
from openagent_jax.text import style
from tests import differences, helpers

PLACEABLE = [x.name for x in helpers.CATALOGUE.values() if x.placeable]
NAMES = [f"{name}:{where}" for name in PLACEABLE for where in perturb.POSITIONS]
NONE = -1  # no step
every_domain = pytest.mark.parametrize("domain", helpers.DOMAINS)


@functools.cache
def _edit():
    """One program for all of them."""
    edit = draw.make_edit(helpers.ENVIRONMENT, NAMES, "test")

    @jax.jit
    def batch(tables, keys, tasks, scenario):
        edited = jax.vmap(lambda key, task: edit(tables, key, task, 1.0, scenario))
        return edited(keys, tasks).task

    return batch


def edited(domain, name):
    """`(tasks, their edited versions, which of them differ)`."""
    old = helpers.tasks(domain, "test")
    tables = helpers.world(domain).tables
    new = _edit()(tables, helpers.keys(1), old, jnp.int32(1 + NAMES.index(name)))
    hit = differences.changed_tasks(helpers.host(old), helpers.host(new))
    return old, new, hit


def befallen(entry, old, new):
    """Which steps a fault befalls, in NumPy, [tasks steps]."""
    steps, faults, before = new.goal.tool, new.faults, old.faults
    if entry == "stale_value":
        return faults.stale & (steps != NONE)
    if entry == "verification_code_change":
        source = np.take_along_axis(new.tools.code_from, steps, 1)
        expires = np.take_along_axis(faults.new_code, np.maximum(source, 0), 1) > 0
        return expires & (source >= 0) & (steps != NONE)
    rows = {
        "tool_redirection": faults.moved_to != before.moved_to,
        "tool_deprecation": faults.moved_to != before.moved_to,
        "tool_addition": faults.moved_to != before.moved_to,
        "schema_drift": faults.moved_to != before.moved_to,
        "nonstandard_feedback": faults.form != before.form,
        "missing_values": faults.blanks != before.blanks,
    }.get(entry, faults.failures != before.failures)
    return np.take_along_axis(rows, steps, 1) & (steps != NONE)


@every_domain
@pytest.mark.parametrize("name", NAMES)
def test_faults_befall_the_steps_at_that_position(domain, name):
    entry, _, where = name.partition(":")
    old, new, hit = map(helpers.host, edited(domain, name))
    valid = new.goal.tool != NONE
    num = valid.sum(axis=1)
    assert np.all(num[hit] >= (3 if where == "mid" else 2))
    found = befallen(entry, old, new)[hit]
    rank = (np.cumsum(valid, axis=1) - 1)[hit]
    last = num[hit][:, None] - 1
    there = {
        "early": rank == 0,
        "mid": (rank > 0) & (rank < last),
        "late": rank == last,
    }
    assert not np.any(found & ~there[where])
    # The last step has no result that another one uses.
    if (entry, where) == ("stale_value", "late"):
        assert not hit.any()
    elif entry != "error_wording":  # which is worded otherwise where no tool can fail
        assert len(found) > 10
        assert found.any(axis=1).all()


@every_domain
@pytest.mark.parametrize("name", NAMES)
def test_the_oracle_solves_them(domain, name):
    _, new, hit = edited(domain, name)
    episodes, _ = helpers.demonstrate(helpers.world(domain).tables, new)
    assert np.all(np.asarray(episodes.state.success)[hit])


def test_errors_come_earlier_or_later():
    turns = {}
    for where in ("early", "late"):
        _, new, hit = edited("poi", f"runtime_error:{where}")
        episodes, _ = helpers.demonstrate(helpers.world("poi").tables, new)
        seen = np.asarray(episodes.timestep.observation.status) == style.TRANSIENT
        turns[where] = np.where(hit & seen.any(axis=1), np.argmax(seen, axis=1), -1)
    both = (turns["early"] >= 0) & (turns["late"] >= 0)
    assert both.sum() > 30
    assert np.all(turns["early"][both] < turns["late"][both])


def test_a_placed_one_may_occur_twice():
    """As itself and as a part; it does what it does alone."""
    names = "runtime_error:late", "semantic_trap+runtime_error:late"
    tables = helpers.world("poi").tables
    old, alone, _ = edited("poi", names[0])
    edit = draw.make_edit(helpers.ENVIRONMENT, names, "test")

    @jax.jit
    @jax.vmap
    def both(key, task):
        return edit(tables, key, task, 1.0, jnp.int32(1)).task

    found = helpers.host(both(helpers.keys(1), old))
    failures = [np.asarray(x.faults.failures) for x in (old, alone, found)]
    assert np.any(failures[0] != failures[1])
    np.testing.assert_array_equal(failures[1] > 0, failures[2] > 0)


def test_entries():
    late = perturb.entry(tools.DOMAINS, "runtime_error:late@0.5")
    assert (late.name, late.position, late.kind) == (
        "runtime_error:late",
        "late",
        "runtime_error",
    )
    assert late.summary == helpers.CATALOGUE["runtime_error"].summary
    assert perturb.kinds_of(late) == {"runtime_error"}
    both = perturb.entry(tools.DOMAINS, "semantic_trap+runtime_error:early")
    assert both.name == "semantic_trap+runtime_error:early"
    assert both.position == "start+early"
    assert [*perturb.glossary([both])] == ["semantic_trap", "runtime_error"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("runtime_error:last", 'no position "last"; there are early, mid, late'),
        ("semantic_trap:late", "semantic_trap cannot be placed"),
        ("rate_limit:early", "rate_limit cannot be placed"),
        ("runtime_error:early+runtime_error:late", "names runtime_error twice"),
    ],
)
def test_impossible_positions(name, message):
    with pytest.raises(ValueError, match=message):
        perturb.entry(tools.DOMAINS, name)
