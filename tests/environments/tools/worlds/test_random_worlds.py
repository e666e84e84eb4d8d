"""Random worlds: random words, no perturbations of evaluations, and all solvable."""

import itertools
import re

import jax
import numpy as np
import pytest

from openagent_jax import expert
from openagent_jax.domains import domain_file, domain_words, library
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import render
from openagent_jax.environments.tools.worlds import random_words, random_worlds
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import reply_scan, style
from tests import helpers

NUM = 512


@pytest.fixture(scope="module")
def played():
    """`(tasks, trajectories, fewest calls)` of many worlds."""
    world = helpers.world("random")

    def play(tables, key):
        task = world.environment.sample(tables, key, "train")
        episode = expert.demonstrate(world.environment, tables, task)
        return task, episode, episode.state.fewest_calls

    run = jax.jit(jax.vmap(play, (None, 0)))
    return helpers.host(run(world.tables, helpers.keys(num=NUM)))


def test_prompt():
    """Random worlds have no documents of their own: the style's layouts serve."""
    world = helpers.world("random")

    def one(tables, key):
        task = world.environment.sample(tables, key, "train")
        pieces = world.environment.prompt(tables, task)
        return pieces, render.prompt(tables.lexicon.style, task)

    pieces, wanted = jax.jit(jax.vmap(one, (None, 0)))(world.tables, helpers.keys())
    assert np.array_equal(pieces, wanted) and np.any(pieces)


@pytest.fixture(scope="module")
def evaluated():
    names = ("poi", *library.DEV, *library.HELD_OUT)  # policies are tested on these
    assert set(names) >= set(helpers.DOMAINS)
    return set().union(*(domain_words.of(domain_file.load(name)) for name in names))


def key_words(tasks, i: int, row: int, texts: list[str]) -> tuple[str, str]:
    first, second = tasks.tools.description[i, row, :2]
    return texts[first].strip(), texts[second].strip()


def pieces_of_steps(phrase, num_steps: int):
    """The pieces of a request without its ending, a row for each step."""
    return phrase[: -random_worlds.NUM_ENDING].reshape(num_steps, -1)


def listed_order(tasks, i: int, texts: list[str]) -> tuple[list[int], list[str]]:
    """The steps as the request lists them, and the function words before each."""
    steps, order, openings = np.sum(tasks.goal.tool[i] >= 0), [], []
    for pieces in pieces_of_steps(tasks.phrase[i], len(tasks.goal.tool[i]))[:steps]:
        used = [texts[s] if s > 0 else "" for s in pieces]
        words = {text.strip() for text in used}
        order += [s for s in range(steps) if words >= {*key_words(tasks, i, s, texts)}]
        openings.append(used[0])
    return order, openings


def kind_of(value: str) -> str:
    """The kind of a value, as far as a reader can tell."""
    if value.isdigit():
        return "number"
    joined = value.replace(" ", "")
    if not joined.isalnum() or (joined != value and any(c.isdigit() for c in value)):
        return "formatted"
    if any(c.isdigit() for c in value):
        return "code"
    return "title" if value == value.title() else "words"


class TestWords:
    def test_no_word_of_a_tested_domain(self, played, evaluated):
        """Neither in the documents nor in the requests, except for function words."""
        tasks, texts = played[0], helpers.texts("random")
        tools = tasks.tools
        glue = (random_words.GLUE, random_words.OF, random_words.TELL)
        glue += (random_words.LINKS, random_words.GAPS, random_words.ENDS)
        glue += (random_words.BACK, random_words.ARTICLES, random_words.JOINS)
        glue = {text for pool in glue for text in (*pool, *map(str.capitalize, pool))}
        glue.add(" ")
        used = set()
        for field in ("name", "description", "arg_name", "result_name"):
            used |= {texts[s] for s in np.unique(getattr(tools, field))}
        used |= {texts[s] for s in np.unique(tasks.phrase) if s >= 0}
        used -= glue
        assert len(used) > 3000
        # Single letters are labels of names, not words.
        found = set(re.findall("[a-z]{2,}", " ".join(used).lower()))
        assert not found & evaluated

    def test_fixed_tokens(self):
        """The tokens of syntax, numbers and function words, and few others."""
        fixed = helpers.world("random").fixed_tokens()
        assert len(fixed) < 250
        encode = helpers.tokenizer().encode
        syntax = ToolSymbols()  # a new table, without other symbols
        syntax = syntax.texts[: syntax.numbers.low]
        same = [*syntax, *random_words.GLUE, *random_words.LINKS]
        for text in [*same, "1", "999"]:
            assert {*encode(text).ids} <= fixed, text

    def test_no_argument_is_named_code(self, played):
        """Otherwise the argument could not be distinguished from the code."""
        used = {helpers.texts("random")[s] for s in np.unique(played[0].tools.arg_name)}
        assert len(used) == random_words.NUM_SLOTS
        assert style.CODE not in used

    def test_words_to_avoid_are_left_out(self, monkeypatch):
        monkeypatch.setattr(random_words, "NUM_WORDS", 200)
        some = random_words.random_words(helpers.tokenizer(), set())
        assert len(set(some)) == 200
        avoid = {word.lower() for word in some[::2]}
        other = random_words.random_words(helpers.tokenizer(), avoid)
        assert not {word.lower() for word in other} & avoid


class TestTasks:
    def test_all_are_solved(self, played):
        tasks, episodes, fewest = played
        assert np.all(episodes.state.solvable)
        assert np.all(episodes.state.success)
        assert not np.any(episodes.state.num_errors)
        assert np.array_equal(episodes.state.num_calls, fewest)
        assert set(np.unique(np.sum(tasks.goal.tool >= 0, axis=1))) == {1, 2, 3, 4, 5}

    def test_no_faults_effects_or_refusals(self, played):
        tasks, episodes, _ = played
        faults = tasks.faults
        assert not np.any(faults.failures)
        assert not np.any(faults.form)
        assert np.all(faults.moved_to == -1)
        assert np.all(tasks.shown)
        assert not np.any(tasks.tools.effect)
        kinds = np.unique(episodes.action.kind[episodes.valid])
        assert set(kinds) == {reply_scan.CALL, reply_scan.ANSWER}

    def test_prerequisites(self, played):
        """At most one, an earlier step or an additional tool; no order is inverted."""
        tools, steps = played[0].tools, np.sum(played[0].goal.tool >= 0, axis=1)
        for pointer in (tools.code_from, tools.call_after):
            later, before = np.nonzero(pointer >= 0)[1], pointer[pointer >= 0]
            world = np.nonzero(pointer >= 0)[0]
            assert len(later) > 0.02 * NUM
            assert np.all(later < steps[world])
            assert np.all((before < later) | (before >= steps[world]))
        both = (tools.code_from >= 0) | (tools.call_after >= 0)
        assert both.sum(axis=1).max() == 1

    def test_documents(self, played):
        tools = played[0].tools
        shown = tools.visible
        assert set(shown.sum(axis=1)) <= set(range(1, helpers.LIMITS.num_tools + 1))
        assert len(set(shown.sum(axis=1))) > 1
        for names, on in zip(tools.name, shown, strict=True):
            assert len(set(names[on])) == on.sum()
        has_arg = (tools.arg_high > tools.arg_low) & shown[..., None]
        names = np.where(has_arg, tools.arg_name, -1 - np.arange(3))  # all different
        assert np.all(np.diff(np.sort(names, axis=-1), axis=-1) > 0)

    def test_descriptions_tokenize_the_same_in_pieces(self, played):
        """A description has the same tokens piece by piece and as a whole."""
        tools, texts = played[0].tools, helpers.texts("random")
        spans = helpers.ragged(helpers.lexicon("random").spans)
        for pieces in tools.description[tools.visible][:500]:
            text = "".join(texts[s] for s in pieces)
            tokens = np.concatenate([spans[s] for s in pieces])
            assert list(tokens) == helpers.tokenizer().encode(text).ids, text

    def test_requests_name_every_constant(self, played):
        """As often as the steps use it. The constants of a step come in the order of
        its arguments, or sometimes in reverse if they differ in kind."""
        tasks = played[0]
        num_steps = tasks.goal.tool.shape[1]
        used = tasks.goal.source.reshape(NUM, -1)
        num_constants = tasks.constants.shape[1]
        texts, turned = helpers.texts("random"), 0
        for phrase, sources, values in zip(
            tasks.phrase, used, tasks.constants, strict=True
        ):
            wanted = [s for s in sources if 0 <= s < num_constants]
            kinds = [kind_of(texts[value]) for value in values]
            assert sorted(-1 - piece for piece in phrase if piece < 0) == sorted(wanted)
            for pieces in pieces_of_steps(phrase, num_steps):
                order = [piece for piece in pieces if piece < 0]
                for one, two in itertools.combinations(order, 2):
                    turned += one < two  # -1 - number
                    assert one > two or kinds[-1 - one] != kinds[-1 - two]
        assert turned > 0.05 * NUM

    @pytest.mark.parametrize("sizes", [(4, 1, 1, 2), (8, 2, 2, 8), (24, 4, 3, 6)])
    def test_any_limits(self, sizes):
        num_tools, num_args, num_fields, num_steps = sizes
        limits = Limits(
            num_tools=num_tools,
            num_args=num_args,
            num_fields=num_fields,
            num_steps=min(num_steps, num_tools),
        )
        tokenizer = helpers.tokenizer()
        words = random_words.compile(ToolSymbols(), tokenizer, set())
        worlds = random_worlds.RandomWorlds(words, 1, num_tools)
        task = jax.eval_shape(
            lambda key: random_worlds.sample_task(worlds, key, limits),
            jax.random.key(0),
        )
        assert task.tools.name.shape == (num_tools,)

    def test_half_of_the_requests_begin_with_a_filler_word(self, played):
        texts = helpers.texts("random")
        openings = {text.capitalize() for text in random_words.GLUE}
        first = [texts[phrase[0]] for phrase in played[0].phrase]
        assert all(text[0].isupper() for text in first)
        assert 0.4 < np.mean([text not in openings for text in first]) < 0.6

    def test_values_may_follow_filler_words(self, played):
        """At the beginning of a request, with or without a comma in between."""
        texts = helpers.texts("random")
        openings = {text.capitalize() for text in random_words.GLUE}
        plain, hailed = 0, 0
        for phrase in played[0].phrase:
            before = itertools.takewhile(lambda s: s >= 0, [s for s in phrase if s])
            behind = [texts[s] for s in before]
            if len(behind) <= 3 and behind[0] not in openings:
                words = [w for w in behind if w not in random_words.ARTICLES]
                hailed += ", " in words
                plain += ", " not in words and all(w[-1] == " " for w in words)
        assert plain > 0.05 * NUM
        assert hailed > 0.01 * NUM

    def test_words_after_a_value_may_be_joined_to_it(self, played):
        texts, joined, spaced = helpers.texts("random"), 0, 0
        for phrase in played[0].phrase:
            used = [s for s in phrase if s]
            for value, gap, join in zip(used, used[1:], used[2:], strict=False):
                if value < 0 and gap > 0 and join > 0 and texts[gap] in (" ", ", "):
                    spaced += 1
                    joined += texts[join] in random_words.JOINS
        assert 0.05 < joined / spaced < 0.35

    def test_request_endings(self, played):
        """With or without punctuation, never a blank; some with filler words."""
        texts, marks, idle = helpers.texts("random"), 0, 0
        for phrase in played[0].phrase:
            last = [s for s in phrase if s][-1]
            text = texts[last] if last > 0 else "value"
            assert text[-1] != " "
            marks += text in random_words.ENDS
            idle += phrase[-2] > 0
        assert abs(marks / NUM - 0.8) < 0.06
        assert abs(idle / NUM - 0.2) < 0.06

    def test_function_words_tell_the_order(self, played):
        """Steps are listed in order, with the last one first, or in reverse order."""
        tasks, texts = played[0], helpers.texts("random")
        steps = np.sum(tasks.goal.tool >= 0, axis=1)
        seen = {"forwards": 0, "last first": 0, "backwards": 0}
        for i, count in enumerate(steps):
            order, openings = listed_order(tasks, i, texts)
            as_done = list(range(count))
            if count < 3:
                continue
            backwards = [text in random_words.BACK for text in openings[1:]]
            if order == as_done:
                seen["forwards"] += 1
                assert not any(backwards)
            elif order == as_done[::-1]:
                seen["backwards"] += 1
                assert all(backwards)
            else:
                seen["last first"] += 1
                assert order == [count - 1, *as_done[:-1]]
                assert backwards == [True] + [False] * (count - 2)
        shares = np.array(list(seen.values())) / sum(seen.values())
        assert np.all(np.abs(shares - [0.55, 0.15, 0.3]) < 0.1), seen

    def test_shared_key_words(self, played):
        """Some tools share one key word with an earlier step, never both."""
        tasks, texts = played[0], helpers.texts("random")
        steps, shared, others = np.sum(tasks.goal.tool >= 0, axis=1), 0, 0
        for i, count in enumerate(steps):
            keys = [key_words(tasks, i, row, texts) for row in range(16)]
            for row in np.flatnonzero(tasks.tools.visible[i])[1:]:
                common = [
                    sum(a == b for a, b in zip(keys[row], keys[step], strict=True))
                    for step in range(min(row, count))
                ]
                others += 1
                assert max(common) < 2
                shared += max(common) == 1
        assert 0.25 < shared / others < 0.45

    def test_some_descriptions_share_an_ending(self, played):
        """The words that distinguish two tools are often not at the end."""
        tools, alike, pairs = played[0].tools, 0, 0
        for pieces, on in zip(tools.description, tools.visible, strict=True):
            for one, other in itertools.combinations(pieces[on], 2):
                pairs += 1
                alike += one[3] > 0 and np.all(one[2:4] == other[2:4])
        assert 0.1 < alike / pairs < 0.25

    def test_half_of_the_worlds_have_common_words_only(self, played):
        tools, texts = played[0].tools, helpers.texts("random")
        encode, plain = helpers.tokenizer().encode, []
        for pieces, on in zip(tools.description, tools.visible, strict=True):
            words = [texts[s] for s in pieces[on][:, [0, 1, 3]].ravel() if s > 0]
            plain.append(all(len(encode(word).ids) == 1 for word in words))
        assert 0.4 < np.mean(plain) < 0.6

    def test_names_share_prefixes_in_half_of_the_worlds(self, played):
        tools, texts, alike = played[0].tools, helpers.texts("random"), 0
        many = tools.visible.sum(axis=1) > 2
        for names, on in zip(tools.name[many], tools.visible[many], strict=True):
            heads = {texts[name].split("_")[0] for name in names[on]}
            alike += len(heads) <= 2
        assert 0.4 < alike / many.sum() < 0.6

    def test_tools_share_names_of_arguments(self, played):
        tools, shared = played[0].tools, 0
        has_arg = (tools.arg_high > tools.arg_low) & tools.visible[..., None]
        for names, on in zip(tools.arg_name, has_arg, strict=True):
            shared += len(set(names[on])) < on.sum()
        assert shared > 0.3 * NUM

    def test_capitalization(self, played):
        """Documents are in lower case; most values of words are in title case."""
        tasks, texts = played[0], helpers.texts("random")
        tools, num_constants = tasks.tools, tasks.constants.shape[1]
        for field in ("name", "description", "arg_name", "result_name"):
            used = {texts[s] for s in np.unique(getattr(tools, field))}
            assert all(text == text.lower() for text in used)
        slot = np.arange(num_constants)
        used = (tasks.goal.source[..., None] == slot).any(axis=(1, 2))
        values = [texts[v] for v in tasks.constants[used]]
        words = [v for v in values if kind_of(v) in ("title", "words")]
        assert {v == v.title() or v == v.lower() for v in words} == {True}
        assert abs(np.mean([v == v.title() for v in words]) - 7 / 13) < 0.06

    def test_constants_in_a_list(self, played):
        """A constant without a link may follow a comma."""
        tasks, texts = played[0], helpers.texts("random")
        num_steps, listed = tasks.goal.tool.shape[1], 0
        for phrase in tasks.phrase:
            for pieces in pieces_of_steps(phrase, num_steps):
                used = [s for s in pieces if s]
                for one, two in zip(used, used[1:], strict=False):
                    listed += one > 0 and texts[one] == ", " and two < 0
        assert listed > 0.05 * NUM

    def test_worlds_differ(self, played):
        tasks = played[0]
        assert len(np.unique(tasks.world)) == NUM
        assert len(np.unique(tasks.tools.name[:, 0])) > 0.85 * NUM
        assert len(np.unique(tasks.tools.code, axis=0)) > 0.99 * NUM  # of a million
