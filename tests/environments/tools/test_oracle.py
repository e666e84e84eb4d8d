"""The oracle against a brute-force search, and its expert under every perturbation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.text import reply_scan
from tests import helpers

HIDDEN = ("tool_redirection", "fatal_error", "unsolvable")  # only calls reveal these
PLACES = (("poi", "train"), ("medical", "test"))


def check_expert(name, split, entry, start=0, strength=1.0):
    """The expert solves solvable tasks and refuses the others; return its episodes."""
    tasks = helpers.edited(name, split, entry, strength, start)
    played = helpers.demonstrate(helpers.world(name).tables, tasks)
    episodes, fewest = helpers.host(played)
    state = episodes.state
    last = np.sum(episodes.valid, axis=1) - 1
    kind = np.take_along_axis(episodes.action.kind, last[:, None], axis=1)[:, 0]
    assert np.all(state.finished)
    assert np.array_equal(kind == reply_scan.ANSWER, state.solvable)
    assert np.array_equal(kind == reply_scan.REFUSE, ~state.solvable)
    assert np.all(state.success)
    assert not np.any(state.wrong_effects)
    assert np.array_equal(fewest > 0, state.solvable)
    # No call is wasted: each error reveals something that only this call could.
    calls = state.num_calls[state.solvable]
    if entry not in HIDDEN:
        assert np.array_equal(calls, fewest[state.solvable])
    assert np.all(calls >= fewest[state.solvable])
    assert np.all(calls <= fewest[state.solvable] + 1)
    return episodes


@pytest.mark.parametrize("name, split", PLACES)
class TestExpert:
    @pytest.mark.parametrize("entry", helpers.EDITS)
    def test_every_entry(self, name, split, entry):
        episodes = check_expert(name, split, entry)
        state = episodes.state
        claims = helpers.CATALOGUE.get(entry)
        if claims is None:
            assert np.all(state.solvable)
            assert not np.any(state.num_errors)
        elif claims.solvable:
            assert np.all(state.solvable)

    @pytest.mark.parametrize(
        "num_tasks",
        [
            pytest.param(1_024, marks=pytest.mark.slow),
            pytest.param(10_240, marks=pytest.mark.hours),
        ],
    )
    def test_many_tasks_of_every_entry(self, name, split, num_tasks):
        for entry in helpers.EDITS:
            for start in range(0, num_tasks, helpers.BATCH):
                check_expert(name, split, entry, 1000 + start)

    @pytest.mark.slow
    def test_other_splits_and_strengths(self, name, split):
        (other,) = set(domain.SPLITS) - {split}
        for entry in helpers.EDITS:
            for i, strength in enumerate((0.0, 0.3, 0.7)):
                check_expert(name, other, entry, i * helpers.BATCH, strength)


class Search:
    """Breadth-first search over an honest agent's actions, in an independent model."""

    def __init__(self, task, args):
        self.task, self.args = task, args
        tools, goal = task.tools, task.goal
        self.steps = [c for c, n in enumerate(goal.tool) if n >= 0]
        self.rows = [n for n in range(len(tools.relation)) if self.exists(n)]

    def exists(self, n):
        task = self.task
        old = np.flatnonzero((task.faults.moved_to == n) & task.tools.visible)
        named = any(task.faults.guided[m] for m in old)
        there = task.tools.visible[n] or named
        return there and task.faults.moved_to[n] < 0

    def needs(self, n):
        tools = self.task.tools
        return [
            tools.relation[pointer[n]]
            for pointer in (tools.code_from, tools.call_after)
            if pointer[n] >= 0
        ]

    def known(self, c, done):
        """Whether the arguments of a step are known."""
        num_constants = len(self.task.constants)
        num_fields = self.task.tools.result_low.shape[1]
        sources = [s for s in self.task.goal.source[c] if s >= num_constants]
        return all((s - num_constants) // num_fields in done for s in sources)

    def moves(self, state):
        """Yield the states after one useful call."""
        done, called, failed = state
        tools, goal, failures = (
            self.task.tools,
            self.task.goal,
            self.task.faults.failures,
        )
        for n in self.rows:
            if not all(need in called for need in self.needs(n)):
                continue
            relation = tools.relation[n]
            same = [c for c in self.steps if tools.relation[goal.tool[c]] == relation]
            told = {tuple(self.args[c]) for c in same if self.known(c, done)}
            if not np.any(tools.arg_high[n] > tools.arg_low[n]):
                told = {(0, 0, 0)}
            times = dict(failed).get(n, 0)
            if told and times < failures[n]:
                if failures[n] < types.FOREVER:
                    yield done, called, failed - {(n, times)} | {(n, times + 1)}
                continue
            for args in told:
                new = {c for c in same if tuple(self.args[c]) == args}
                yield done | new, called | {relation}, failed

    def fewest(self):
        """The number of calls of the shortest solution; 0 if there is none."""
        start = (frozenset(), frozenset(), frozenset())
        frontier, seen, depth = [start], {start}, 0
        while frontier:
            if any(set(self.steps) <= done for done, _, _ in frontier):
                return depth
            after = {new for state in frontier for new in self.moves(state)}
            frontier, depth = list(after - seen), depth + 1
            seen |= after
        return 0


SEARCHED = (
    helpers.CLEAN,
    "runtime_error",
    "tool_redirection",
    "distractor_tools",
    "tool_removal",
    "dependency_extension",
    "rule_shift",
    "logic_inversion",
    "domain_transfer",
    "tool_withheld",
    "fatal_error",
    "contradiction",
)


@pytest.mark.parametrize("entry", SEARCHED)
@pytest.mark.parametrize("name, split", PLACES)
def test_fewest_calls_equals_a_search(name, split, entry, num=60):
    tasks = helpers.edited(name, split, entry)
    played = helpers.demonstrate(helpers.world(name).tables, tasks)
    episodes, fewest = helpers.host(played)
    changed = 0
    for i, task in enumerate(helpers.rows(tasks)[:num]):
        search = Search(task, episodes.state.args[i])
        found = search.fewest()
        assert fewest[i] == found, task.goal.kind
        assert episodes.state.solvable[i] == (found > 0)
        changed += found != np.sum(task.goal.tool >= 0)
    assert entry in (helpers.CLEAN, "domain_transfer") or changed


# By perturbation, why tasks cannot be solved; all others leave tasks solvable.
REASONS = {
    "tool_withheld": {"missing_tool"},
    "fatal_error": {"out_of_service"},
    "contradiction": {"unmet_prerequisite"},
    "unsolvable": {"missing_tool", "out_of_service", "unmet_prerequisite"},
}


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def certify(tables, task):
    return helpers.ENVIRONMENT.certificate(tables, task)


def reasons(certificate):
    return [helpers.ENVIRONMENT.reasons[i] for i in certificate.reason]


@pytest.mark.parametrize("name, split", PLACES)
class TestCertificate:
    @pytest.mark.parametrize("entry", helpers.EDITS)
    def test_every_entry(self, name, split, entry, num_batches=4):
        """Exactly the unsolvable tasks have a reason and no calls."""
        tables, seen = helpers.world(name).tables, set()
        for i in range(num_batches):
            tasks = helpers.edited(name, split, entry, start=i * helpers.BATCH)
            certificate = helpers.host(certify(tables, tasks))
            assert np.array_equal(certificate.fewest_calls > 0, certificate.solvable)
            assert np.array_equal(certificate.reason == 0, certificate.solvable)
            seen |= {reason for reason in reasons(certificate) if reason}
        assert seen == REASONS.get(entry, set())

    @pytest.mark.parametrize(
        ("first", "then", "reason"),
        [
            ("tool_withheld", "fatal_error", "missing_tool"),
            ("fatal_error", "tool_withheld", "missing_tool"),
            ("contradiction", "fatal_error", "out_of_service"),
            ("contradiction", "tool_withheld", "missing_tool"),
        ],
    )
    def test_the_first_of_several_reasons(self, name, split, first, then, reason):
        """A missing tool, then one out of service, then prerequisites."""
        tables, tasks = helpers.world(name).tables, helpers.edited(name, split, first)
        index, one = jnp.int32(helpers.EDITS.index(then)), jnp.float32(1)
        both = helpers.edit(index, tables, helpers.keys(2), tasks, one, split)
        certificate = helpers.host(certify(tables, both))
        num_tools = np.asarray(tasks.tools.visible).sum(axis=1)
        changed = np.asarray(both.tools.visible).sum(axis=1) < num_tools
        changed |= (both.faults.failures != tasks.faults.failures).any(axis=1)
        assert np.mean(changed) > 0.3
        assert {r for r, hit in zip(reasons(certificate), changed) if hit} == {reason}
