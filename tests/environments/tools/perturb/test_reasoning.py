"""What the perturbations of dependencies and of sources of results mean."""

import collections
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import solution
from openagent_jax.environments.world import SPLITS
from tests import helpers
from tests.environments.tools.perturb.playing import pair, replay

POINTERS = ("code_from", "call_after")
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)


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


@jax.jit
def first_results(tasks, rows, args):
    """The results of a tool of each task for some arguments."""
    return jax.vmap(solution.results)(tasks, rows, args)


class TestConflictingSources:
    @every_domain
    @pytest.mark.parametrize("split", SPLITS)
    def test_only_the_note_tells_which_tool_to_follow(self, name, split):
        """Agents that go by anything else are right half the time."""
        old, new, hit = pair(name, "conflicting_sources", split)
        assert hit.mean() > 0.5
        texts, notes = helpers.texts(name), self.notes(name, split)
        right = collections.defaultdict(list)
        for i in np.flatnonzero(hit):
            task, before = helpers.row(new, i), helpers.row(old, i)
            tools = task.tools
            rows = np.flatnonzero(tools.visible & (tools.description[:, 1] > 0))
            (wanted,) = {*rows} & {*task.goal.tool}
            (other,) = {*rows} - {wanted}
            assert tools.description[wanted, 1] in notes[0]
            assert tools.description[other, 1] in notes[1]
            assert tools.description[wanted, 0] == tools.description[other, 0]
            shown = {n: "".join(texts[s] for s in tools.description[n]) for n in rows}
            right["first document"].append(tools.place[wanted] <= tools.place[other])
            right["last document"].append(tools.place[wanted] > tools.place[other])
            right["there before"].append(bool(before.tools.visible[wanted]))
            right["new"].append(not before.tools.visible[wanted])
            shorter = len(shown[wanted]) < len(shown[other])
            right["shorter text"].append(shorter)
            right["longer text"].append(len(shown[wanted]) > len(shown[other]))
            names = [len(texts[tools.name[n]]) for n in (wanted, other)]
            right["shorter name"].append(names[0] < names[1])
            right["longer name"].append(names[0] > names[1])
        for agent, found in right.items():
            error = 0.5 / np.sqrt(len(found))
            assert np.mean(found) < 0.5 + 3 * error, agent

    def notes(self, name, split):
        index = SPLITS.index(split)
        return np.asarray(helpers.world(name).tables.source.notes)[index]

    @every_domain
    def test_notes_of_the_splits_share_no_word(self, name):
        texts = helpers.texts(name)
        words = [
            {*re.findall(r"\w{4,}", " ".join(texts[s] for s in pool.reshape(-1)))}
            for pool in (self.notes(name, split) for split in SPLITS)
        ]
        assert min(map(len, words)) > 8
        assert not words[0] & words[1]

    @every_domain
    def test_the_sources_disagree(self, name):
        _, new, hit = pair(name, "conflicting_sources")
        noted = new.tools.visible & (new.tools.description[:, :, 1] > 0)
        rows = np.argsort(~noted, axis=1, kind="stable")[:, :2]
        args = new.tools.arg_low[np.arange(len(rows)), rows[:, 0]]
        one, other = (
            np.asarray(first_results(new, rows[:, i], args)) for i in range(2)
        )
        differ = np.any(one != other, axis=1)[hit]
        assert differ.mean() > 0.9
        drawn = ((one >= 0) == (other >= 0)).all(axis=1)[hit]
        assert drawn.all()

    @pytest.mark.parametrize(
        "then", ["description_rewrite", "entity_shift", "tool_redirection"]
    )
    def test_what_follows_keeps_both_sources(self, then):
        """A paraphrase keeps the notes, and a copy keeps its results."""
        tables, tasks = (
            helpers.world("poi").tables,
            pair("poi", "conflicting_sources")[1],
        )
        new = helpers.edit(
            jnp.int32(helpers.EDITS.index(then)),
            tables,
            helpers.keys(2),
            tasks,
            jnp.float32(1),
            "test",
        )
        chex.assert_trees_all_equal(
            new.tools.description[..., 1].max(axis=1),
            tasks.tools.description[..., 1].max(axis=1),
        )
        episodes, _ = helpers.demonstrate(tables, new)
        state = helpers.host(episodes.state)
        assert np.all(state.success & state.solvable)
        used = helpers.host(new.goal.tool) >= 0
        assert np.all(state.values[used].max(axis=-1) >= 0)
