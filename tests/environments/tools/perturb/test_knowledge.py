"""Facts that training teaches and a document of the test contradicts."""

import collections
import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.environments.tools.perturb import knowledge
from openagent_jax.environments.tools.perturb.edits import FILING
from openagent_jax.environments.tools.worlds import asides
from openagent_jax.environments.world import SPLITS
from openagent_jax.text import reply_scan, scalars
from tests import differences, helpers
from tests.environments.tools.perturb.playing import guess, pair

ENTRY = "knowledge_update"
OTHERS = [
    name
    for name, entry in helpers.CATALOGUE.items()
    if name != ENTRY and perturb.WHOLE not in entry.touches
]
every_split = pytest.mark.parametrize("split", SPLITS)
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)
both_orders = pytest.mark.parametrize("first", [True, False], ids=["before", "after"])


def values(name):
    """The texts of each list of words of a domain that is long enough."""
    kinds = (kind for kind in helpers.spec(name).types if kind.kind == "enum")
    lists = [[*kind.train] for kind in kinds if not kind.unquoted]
    return [x for x in lists if len(x) >= knowledge.MIN_VALUES]


@functools.cache
def update(name, split):
    """`(old, new, rows, q)`: the changed tasks, and the constant that changed."""
    old, new, hit = pair(name, ENTRY, split)
    rows, q = np.nonzero(new.constants != new.said)
    assert np.array_equal(rows, np.flatnonzero(hit))  # one constant of each
    return old, new, rows, q


def facts(name, split):
    """`(said, to give, their list)` of each changed task, as texts."""
    _, new, rows, q = update(name, split)
    texts = helpers.texts(name)
    for said, given in zip(new.said[rows, q], new.constants[rows, q], strict=True):
        (among,) = [x for x in values(name) if texts[said] in x]
        yield texts[said], texts[given], among


def constant_ranges(name, split, tasks):
    """What the constants of tasks are drawn from: `low, high` of each."""
    source = helpers.arrays(name).constant_range
    return np.asarray(source)[SPLITS.index(split), tasks.goal.kind]


@jax.jit
def prompts(tables, tasks):
    return jax.vmap(helpers.ENVIRONMENT.prompt, (None, 0))(tables, tasks)


def prompt_texts(name, tasks):
    texts = np.array(helpers.texts(name)[:], dtype=object)
    table = prompts(helpers.world(name).tables, tasks)
    numbers = helpers.texts(name)
    for row in np.asarray(table):
        is_text = row < len(texts)
        yield "".join(texts[s] if ok else numbers[s] for s, ok in zip(row, is_text))


def remarks(split, prompt):
    """`{said: to give}` of the remarks in a prompt, found by reading it."""
    found = {}
    for to_give_last, to_give_first in asides.FILINGS[split]:
        for words, order in ((to_give_last, 1), (to_give_first, -1)):
            before, between, after = map(re.escape, words)
            pattern = f"{before}([^()\\[\\]]+?){between}([^()\\[\\]]+?){after}"
            for match in re.finditer(pattern, prompt):
                said, given = match.groups()[::order]
                assert found.setdefault(said, given) == given
    return found


def believed(name, tasks, replacement):
    """The tasks of an agent that gives `replacement(i, text)` for what is said."""
    texts, constants = helpers.texts(name), tasks.said.copy()
    number = {
        text: (among, k) for among in values(name) for k, text in enumerate(among)
    }
    for i, q in np.argwhere(tasks.said > 0):
        text = texts[tasks.said[i, q]]
        if text in number:
            among, k = number[text]
            shift = among.index(replacement(i, text)) - k
            constants[i, q] = tasks.said[i, q] + shift
    return dataclasses.replace(tasks, constants=constants)


def next_value(name, text):
    (among,) = [x for x in values(name) if text in x]
    return among[(among.index(text) + 1) % len(among)]


class TestTable:
    @every_domain
    def test_training_always_has_the_next_value(self, name):
        taught = collections.defaultdict(set)
        for said, given, among in facts(name, "train"):
            assert given == among[(among.index(said) + 1) % len(among)]
            taught[said].add(given)
        assert len(taught) > 0.9 * sum(map(len, values(name)))  # the whole table

    @every_domain
    def test_no_test_agrees_with_training(self, name):
        """Nor has a value itself; each other one is as likely as the rest."""
        counts = collections.Counter()
        for said, given, among in facts(name, "test"):
            steps = (among.index(given) - among.index(said)) % len(among)
            assert steps not in (0, 1)
            counts[steps, len(among)] += 1
        num = sum(counts.values())
        (size,) = {size for _, size in counts}
        assert {k for k, _ in counts} == {*range(2, size)}
        # Who knows all of this, but does not read, is right this often.
        best, share = max(counts.values()) / num, 1 / (size - 2)
        assert share <= 1 / 8 and best < share + 4 * np.sqrt(share / num)

    @every_split
    @every_domain
    def test_only_one_value_of_a_list_is_passed(self, name, split):
        _, new, rows, q = update(name, split)
        assert len(rows) > 25
        ranges = constant_ranges(name, split, helpers.row(new, rows))[..., 0]
        own = ranges[np.arange(len(rows)), q]
        assert (np.sum(ranges == own[:, None], axis=1) == 1).all()


class TestWhatStays:
    """Tasks in which it would not be clear which value is meant."""

    def changed(self, edit):
        """Whether edited tasks are changed, of those that are without the edit."""
        world = helpers.world("poi")
        _, new, rows, q = update("poi", "test")
        tasks = helpers.row(helpers.tasks("poi", "test"), rows)
        edited = edit(helpers.host(tasks), q)
        apply = perturb.make(world.environment, world.tables, ENTRY, "test")
        keys = helpers.keys(1)[rows]
        found = jax.jit(perturb.batched(apply))(keys, edited, jnp.float32(1))
        return differences.changed_tasks(edited, found)

    def with_goal(self, tasks, **fields):
        return dataclasses.replace(
            tasks, goal=dataclasses.replace(tasks.goal, **fields)
        )

    def test_others_change(self):
        assert self.changed(lambda tasks, q: tasks).all()

    def test_a_value_that_is_the_answer(self):
        assert not self.changed(lambda x, q: self.with_goal(x, answer=q)).any()

    def test_a_result_that_is_passed_to_the_tool(self):
        def edit(tasks, q):
            """Another step calls the tool with a result."""
            source, tool = tasks.goal.source.copy(), tasks.goal.tool.copy()
            for i, c in enumerate(q):
                step = np.argmax((source[i] == c).any(axis=1))
                other = 0 if step else 1
                tool[i, other] = tool[i, step]
                source[i, other] = np.where(
                    source[i, step] == c, len(tasks.constants[i]), source[i, step]
                )
            return self.with_goal(tasks, source=source, tool=tool)

        assert not self.changed(edit).any()

    def test_another_value_of_the_list(self):
        """One that the user has mentioned is not the one to give."""

        def edit(tasks, q):
            low, high = constant_ranges("poi", "test", tasks)[np.arange(len(q)), q].T
            every = np.arange(low[0], high[0])
            phrase = np.concatenate(
                [tasks.phrase[:, : -len(every)], np.tile(every, (len(q), 1))], axis=1
            )
            return dataclasses.replace(tasks, phrase=phrase.astype(np.int32))

        assert not self.changed(edit).any()

    def test_a_task_that_has_replaced_another(self):
        def edit(tasks, q):
            return self.with_goal(tasks, kind=-1 - tasks.goal.kind)

        assert not self.changed(edit).any()


class TestRemarks:
    @every_split
    @every_domain
    def test_documents_of_all_tools_that_take_the_list_have_it(self, name, split):
        old, new, rows, q = update(name, split)
        texts, takers = helpers.texts(name), set()
        for tool in helpers.spec(name).tools:
            kinds = {kind.name: kind for kind in helpers.spec(name).types}
            if any([*kinds[kind].train] in values(name) for _, kind in tool.inputs):
                takers.add(tool.name)
        for i, c in zip(rows, q, strict=True):
            before, task = helpers.row(old, i), helpers.row(new, i)
            pair_ = {texts[task.said[c]], texts[task.constants[c]]}
            for n in np.flatnonzero(task.tools.name):
                was, now = (
                    "".join(texts[s] for s in x.tools.description[n])
                    for x in (before, task)
                )
                assert now.startswith(was)
                assert (now != was) == (texts[task.tools.name[n]] in takers)
                assert now == was or all(x in now for x in pair_)

    @every_split
    def test_wordings_are_equally_likely(self, split):
        counts = collections.Counter()
        _, new, rows, _ = update("poi", split)
        texts = helpers.texts("poi")
        for i in rows:
            pieces = new.tools.description[i][:, FILING]
            (remark,) = {tuple(x[::2]) for x in pieces if x[0]}
            counts[tuple(texts[s] for s in remark)] += 1
        every = {x for group in asides.FILINGS[split] for x in group}
        assert {*counts} == every and len(every) >= 3
        assert min(counts.values()) > 0.5 * len(rows) / len(every)

    def test_wordings_of_the_splits_share_no_word(self):
        words = [
            {*re.findall(r"\w{3,}", " ".join(map(str, np.ravel(asides.FILINGS[s]))))}
            for s in SPLITS
        ]
        assert min(map(len, words)) > 4 and not words[0] & words[1]

    @every_split
    @every_domain
    def test_the_request_says_the_old_value(self, name, split):
        old, new, rows, _ = update(name, split)
        texts = (prompt_texts(name, x) for x in (old, new))
        for i, (before, after) in enumerate(zip(*texts, strict=True)):
            # The request is before the documents, and again after them.
            first, documents, again = re.split(r"<\|system\|>|<\|user\|>", before)[1:]
            assert again.startswith(first) and documents
            assert after.startswith(f"<|user|>{first}<|system|>")
            assert after.endswith(f"<|user|>{again}")
            assert (before != after) == (i in rows)

    @every_split
    def test_openai_tools_have_it(self, split):
        _, new, rows, q = update("poi", split)
        texts, transcriber = helpers.texts("poi"), helpers.world("poi").transcriber
        for i, c in zip(rows[:20], q[:20], strict=True):
            task = helpers.row(new, i)
            tools = " ".join(
                tool["function"]["description"] for tool in transcriber.tools(task)
            )
            said, given = (texts[x[c]] for x in (task.said, task.constants))
            assert remarks(split, tools) == {said: given}
            request = transcriber.opening(task)[-1]["content"]
            assert said in request and given not in request


class TestAgents:
    @every_split
    @every_domain
    def test_who_ignores_the_remark_never_succeeds(self, name, split):
        _, new, rows, _ = update(name, split)
        belief = dataclasses.replace(new, constants=new.said)
        success = np.asarray(guess(helpers.lexicon(name), new, belief))
        changed = np.isin(np.arange(len(success)), rows)
        assert np.array_equal(success, ~changed)

    @every_split
    @every_domain
    def test_the_table_of_training_serves_in_training_only(self, name, split):
        """An agent that gives the next value wherever it sees a remark."""
        _, new, rows, _ = update(name, split)
        seen = {*rows}
        belief = believed(
            name, new, lambda i, text: next_value(name, text) if i in seen else text
        )
        success = np.asarray(guess(helpers.lexicon(name), new, belief))
        assert np.all(success[rows] == (split == "train"))

    @every_split
    @every_domain
    def test_who_reads_the_remark_succeeds(self, name, split):
        _, new, rows, _ = update(name, split)
        read = [remarks(split, prompt) for prompt in prompt_texts(name, new)]
        belief = believed(name, new, lambda i, text: read[i].get(text, text))
        assert np.array_equal(belief.constants, new.constants)
        assert np.all(guess(helpers.lexicon(name), new, belief))


class TestWithOthers:
    @both_orders
    @pytest.mark.parametrize("other", OTHERS)
    def test_what_is_said_and_read_is_what_is_needed(self, other, first):
        """Before or after another entry, it stays as solvable as that entry says."""
        tables, split = helpers.world("poi").tables, "test"
        order = (ENTRY, other) if first else (other, ENTRY)
        old = helpers.edited("poi", split, order[0])
        index = jnp.int32(helpers.EDITS.index(order[1]))
        keys = helpers.keys(2)
        new = helpers.edit(index, tables, keys, old, jnp.float32(1), split)
        episodes, _ = helpers.demonstrate(tables, new)
        state, new = helpers.host(episodes.state), helpers.host(new)
        filed = (new.constants != new.said).any(axis=1)
        assert filed.mean() > 0.25
        assert np.array_equal(state.success, state.solvable | state.refused)
        if helpers.CATALOGUE[other].solvable:
            assert state.solvable.all() and state.success.all()
        else:
            hit = differences.changed_tasks(helpers.tasks("poi", split), new)
            assert not state.solvable[hit & ~filed].any()
        given = np.where(new.constants != new.said, new.constants, scalars.NUMBER)
        assert not (new.phrase[:, :, None] == given[:, None]).any()
        read = [remarks(split, prompt) for prompt in prompt_texts("poi", new)]
        belief = believed("poi", new, lambda i, text: read[i].get(text, text))
        wrong = (belief.constants != new.constants).any(axis=1)
        assert not (wrong & state.solvable).any()

    @every_split
    @pytest.mark.parametrize("other", ["query_underspecified", "query_ambiguous"])
    def test_a_user_who_is_asked_says_the_old_value(self, other, split):
        tables, texts = helpers.world("poi").tables, helpers.texts("poi")
        index = jnp.int32(helpers.EDITS.index(other))
        tasks = update("poi", split)[1]
        new = helpers.edit(index, tables, helpers.keys(2), tasks, jnp.float32(1), split)
        episodes = helpers.host(helpers.demonstrate(tables, new)[0])
        num = 0
        for i in np.flatnonzero(episodes.state.num_questions):
            writer = helpers.Writer("poi", helpers.row(episodes, i))
            task, transcriber = writer.task, helpers.world("poi").transcriber
            (q,) = np.flatnonzero(~task.shown)
            if task.said[q] == task.constants[q]:
                continue
            turn = int(np.argmax(writer.episode.action.kind == reply_scan.ASK))
            result = helpers.row(writer.episode.timestep.observation, turn)
            reply = transcriber.shown(transcriber.observe(task, result))
            assert reply == ("user", texts[task.said[q]])
            num += 1
        assert num > 10
