"""Noise in requests, names and descriptions: what it leaves as it is, and its forms."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools.types import NUM_TEXT_PIECES
from openagent_jax.environments.tools.worlds import asides, noise
from openagent_jax.environments.world import SPLITS
from openagent_jax.text import misspelling, noisy_names
from tests import helpers
from tests.environments import shortcuts
from tests.environments.tools.perturb.playing import guess

NUM_CONSTANTS = helpers.LIMITS.num_constants
every_split = pytest.mark.parametrize("split", SPLITS)
every_domain = pytest.mark.parametrize("name", helpers.DOMAINS)


@functools.cache
def clean(split, name="poi"):
    return helpers.host(helpers.tasks(name, split))


@functools.cache
def edited(entry, split, strength=1.0, name="poi"):
    return helpers.host(helpers.edited(name, split, entry, strength))


def forms(name, table, split):
    """`{text: other forms}` of a table of `Noise`."""
    made = getattr(helpers.world(name).tables.source.noise, table)
    texts, s = helpers.texts(name), SPLITS.index(split)
    return {
        texts[symbol]: [texts[x] for x in row if x]
        for symbol, row in zip(np.asarray(made.text[s]), np.asarray(made.forms[s]))
        if symbol < noise.NO_TEXT
    }


def distance(a, b):
    """Insertions, deletions, substitutions, and transpositions of neighbours."""
    rows = [list(range(len(b) + 1))]
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (x != y))
            if i > 1 and j > 1 and (x, a[i - 2]) == (b[j - 2], y):
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def mistake(word, form):
    """The kind of a misspelling, found without knowing how it was made."""
    if len(form) < len(word):
        return "omitted"
    if len(form) > len(word):
        at = next(i for i in range(len(form)) if word[i : i + 1] != form[i])
        return "doubled" if form[at] == form[at - 1] else "inserted"
    differ = [i for i, (x, y) in enumerate(zip(word, form)) if x != y]
    return "transposed" if len(differ) == 2 else "replaced"


class TestMisspellings:
    @every_split
    @every_domain
    def test_one_word_is_one_edit_away_and_can_be_told(self, name, split):
        table = forms(name, "requests", split)
        for text, row in forms(name, "descriptions", split).items():
            table[text] = row[:1] if row[0][-3:] != "..." else []  # others are cut
        known = {x for text in table for x in re.findall("[a-z]+", text.lower())}
        kinds = set()
        for text, row in table.items():
            for form in row:
                pairs = zip(text.split(), form.split(), strict=True)
                pairs = [p for p in pairs if p[0] != p[1]]
                able = re.findall(r"\b[a-z]{5,}\b", text)
                assert 0 < len(pairs) <= (len(able) + 1) // 2
                for pair in pairs:
                    word, wrong = (re.sub("[^a-z]", "", x) for x in pair)
                    assert len(word) >= misspelling.MIN_LETTERS and word[0] == wrong[0]
                    assert distance(*pair) == distance(word, wrong) == 1
                    kinds.add(mistake(word, wrong))
                    near = [x for x in known if abs(len(x) - len(wrong)) < 2]
                    assert [x for x in near if distance(x, wrong) < 2] == [word]
        families = {"train": {"transposed", "omitted"}, "test": {"doubled", "replaced"}}
        assert kinds == families[split]

    @every_split
    @every_domain
    def test_most_requests_have_pieces_to_misspell(self, name, split):
        old, new = clean(split, name), edited("query_typos", split, 1.0, name)
        hit = old.phrase != new.phrase
        assert np.mean(hit.any(1)) > 0.9
        assert hit.sum(1).mean() > 1.5
        assert (old.phrase[hit] > 0).all()  # no value is misspelt

    def test_strength_is_the_rate_of_pieces(self):
        whole, half = (
            np.sum(edited("query_typos", "train", s).phrase != clean("train").phrase)
            for s in (1.0, 0.5)
        )
        assert half / whole == pytest.approx(0.5, abs=0.05)

    def test_what_another_perturbation_has_changed_stays(self):
        """Forms belong to the text of a piece, not to its place."""
        world, task = helpers.world("poi"), helpers.row(helpers.tasks("poi"), 0)
        pools = world.environment.pools(world.tables, task, "train")
        apply = helpers.CATALOGUE["query_typos"].make(pools)
        moved = dataclasses.replace(task, phrase=jnp.roll(task.phrase, 1))
        new = apply(jax.random.key(0), moved, jnp.float32(1))
        other = np.asarray(moved.phrase != task.phrase)
        assert np.array_equal(new.phrase[other], moved.phrase[other])


def requests(tasks):
    """The pieces of each request of `poi`, as texts."""
    texts = helpers.texts("poi")
    for phrase, constants in zip(tasks.phrase, tasks.constants, strict=True):
        said = [*constants, *constants]
        yield [texts[s] if s >= 0 else texts[said[-1 - s]] for s in phrase]


def ranges(tasks, split):
    """What the constants of each task are drawn from: `low, high` of each."""
    source = helpers.world("poi").tables.source.tasks
    return np.asarray(source.constant_range)[SPLITS.index(split), tasks.goal.kind]


class TestRedundant:
    def lured(self, split, strength=1.0):
        """`(old, new, q, lure)` of requests, where only one constant has the type."""
        old, new = clean(split), edited("query_redundant", split, strength)
        for i, of_task in enumerate(ranges(old, split)):
            for q, (low, high) in enumerate(of_task):
                found = {s for s in new.phrase[i] if low <= s < high}
                found -= {*old.phrase[i]}
                if low < high and (of_task[:, 0] == low).sum() == len(found) == 1:
                    assert not found & {*old.constants[i]}
                    yield old.phrase[i], new.phrase[i].tolist(), q, *found

    @every_split
    def test_neither_the_first_value_nor_the_last_is_the_right_one(self, split):
        """An agent that takes either fails in half of the tasks."""
        right = []
        for _, new, q, lure in self.lured(split):
            values = [s for s in new if s in (-1 - q, lure)]
            right.append([values[0] == -1 - q, values[-1] == -1 - q])
        assert len(right) > 100
        assert np.abs(np.mean(right, axis=0) - 0.5).max() < 0.12

    @every_split
    def test_the_request_stays(self, split):
        for old, new, *_ in self.lured(split):
            left = iter(new)
            assert all(s in left for s in old if s)  # in its order

    @every_split
    def test_two_values_side_by_side_need_no_question(self, split):
        """Else an agent could ask wherever a request names two values."""
        between = {text for _, text in asides.EITHER[split]}
        new = edited("query_redundant", split)
        assert 0.12 < np.mean([bool(between & {*x}) for x in requests(new)]) < 0.35
        assert new.shown.all()

    @every_split
    def test_strength_is_the_rate_of_each_aside(self, split):
        texts = helpers.texts("poi")
        talk = {text for pair in asides.TALK[split] for text in pair}
        for strength in (0.25, 1.0):
            new = edited("query_redundant", split, strength)
            num = np.mean(
                [len(talk & {texts[s] for s in x if s > 0}) for x in new.phrase]
            )
            assert num == pytest.approx(2 * strength, abs=0.12)
            share = len([*self.lured(split, strength)]) / len([*self.lured(split)])
            assert share == pytest.approx(strength, abs=0.1)


def named_first(tasks, split):
    """`(rows, q, right, other)`: the two values of ambiguous tasks, and which is first.

    `first` tells whether the right one is.
    """
    texts = helpers.texts("poi")
    between = {text for _, text in asides.EITHER[split]}
    rows = np.flatnonzero(~tasks.shown.all(1))
    q = np.argmin(tasks.shown[rows], axis=1)
    place = np.argmax(tasks.phrase[rows] == -1 - NUM_CONSTANTS - q[:, None], axis=1)
    first = np.array([texts[s] in between for s in tasks.phrase[rows, place + 1]])
    other = tasks.phrase[rows, np.where(first, place + 2, place - 2)]
    return rows, q, first, other


class TestAmbiguous:
    @every_split
    def test_two_values_are_named_and_either_may_be_right(self, split):
        tasks = edited("query_ambiguous", split)
        rows, q, first, other = named_first(tasks, split)
        assert len(rows) > 0.9 * len(tasks.phrase)
        assert abs(first.mean() - 0.5) < 0.1
        low, high = ranges(tasks, split)[rows, q].T
        assert ((low <= other) & (other < high)).all()
        assert (other[:, None] != tasks.constants[rows]).all()

    @every_split
    def test_the_expert_asks_once(self, split):
        tasks = edited("query_ambiguous", split)
        episodes, _ = helpers.demonstrate(helpers.world("poi").tables, tasks)
        hidden = ~tasks.shown.all(1)
        assert np.array_equal(episodes.state.num_questions, hidden)
        assert not np.asarray(episodes.state.num_needless_questions).any()

    @every_split
    def test_a_guess_succeeds_in_half(self, split):
        """An agent that takes the value that is named first, and never asks."""
        tasks = edited("query_ambiguous", split)
        rows, q, first, other = named_first(tasks, split)
        believed = tasks.constants.copy()
        believed[rows, q] = np.where(first, believed[rows, q], other)
        belief = dataclasses.replace(
            tasks, constants=believed, shown=np.ones_like(tasks.shown)
        )
        success = np.asarray(guess(helpers.lexicon("poi"), tasks, belief))[rows]
        assert np.array_equal(success, first)

    @every_split
    def test_what_is_unclear_is_never_said_of_what_is_settled(self, split):
        unsure = {*asides.UNSURE[split]}
        settled = requests(edited("query_redundant", split))
        assert not any(unsure & {*pieces} for pieces in settled)


@pytest.mark.slow
@every_split
def test_no_shortcut_tells_which_value_is_right(split, num_batches=32):
    """Classifiers get all but the user's answer, and find nothing in a request."""
    texts, tables = (
        np.array(helpers.texts("poi")[:], dtype=object),
        helpers.world("poi"),
    )
    prompt = jax.jit(jax.vmap(helpers.ENVIRONMENT.prompt, (None, 0)))
    readings, right = [], []
    for i in range(num_batches):
        start = (num_batches + i) * helpers.BATCH
        tasks = helpers.host(
            helpers.edited("poi", split, "query_ambiguous", 1.0, start)
        )
        rows, _, first, _ = named_first(tasks, split)
        pieces = np.asarray(prompt(tables.tables, tasks))[rows]
        readings += [shortcuts.read_tools("".join(row)) for row in texts[pieces]]
        right += first.tolist()
    right, num = np.array(right), len(right)
    counts = np.zeros((num, 1), int)
    made = shortcuts.Tasks(readings, readings, counts, right, np.arange(num))
    found = shortcuts.scores(made, shortcuts.SEPARATE)
    assert not any(map(shortcuts.above, found)), shortcuts.report(found)


class TestNames:
    @every_split
    @every_domain
    def test_each_level_is_further_away(self, name, split):
        table = forms(name, "names", split)
        assert len(table) > 40
        steps = []
        for old, row in table.items():
            for v in range(noisy_names.NUM_VARIANTS):
                levels = row[v :: noisy_names.NUM_VARIANTS]
                steps.append([0, *(distance(old, new) for new in levels)])
        assert np.diff(steps, axis=1).min() >= 0
        assert (np.mean(np.diff(steps, axis=1) > 0, axis=0) > 0.8).all()

    @every_domain
    def test_families(self, name):
        train, test = (forms(name, "names", split) for split in SPLITS)
        for old, row in train.items():
            assert all(old in new for new in row)
        for old, row in test.items():
            for new in row:
                assert old not in new
                letters = (re.sub("[^a-z]", "", x.lower()) for x in (old, new))
                assert len({re.sub("[aeiou]", "", x) for x in letters}) == 1

    @every_split
    def test_distance_grows_with_strength(self, split):
        texts, old = helpers.texts("poi"), clean(split).tools.name
        grown = []
        for strength in (0.2, 0.5, 1.0):
            new = edited("tool_name_noise", split, strength).tools.name
            hit = np.argwhere(new != old)
            far = [distance(texts[old[i, n]], texts[new[i, n]]) for i, n in hit[:400]]
            grown.append((len(hit) / np.sum(old > 0), np.mean(far)))
        rates, means = np.array(grown).T
        assert np.allclose(rates, (0.2, 0.5, 1.0), atol=0.05)
        assert (np.diff(means) > 0.3).all()


class TestDescriptions:
    @every_split
    def test_remarks_come_after_the_text(self, split):
        old, new = (
            x.tools.description
            for x in (clean(split), edited("description_noise", split))
        )
        there, texts = old[..., 0] > 0, helpers.texts("poi")
        remarks = {texts[x] for x in np.unique(new[there][:, NUM_TEXT_PIECES:]) if x}
        assert remarks == {*asides.REMARKS[split]}

    def test_training_adds_and_keeps(self):
        old, new = (
            x.tools.description
            for x in (clean("train"), edited("description_noise", "train"))
        )
        there = old[..., 0] > 0
        assert np.array_equal(new[there][:, 1], old[there][:, 0])
        praise = {helpers.texts("poi")[x] for x in np.unique(new[there][:, 0])}
        assert praise == {*asides.PRAISE["train"]}

    @every_domain
    def test_a_shortened_description_begins_as_no_other(self, name):
        table = forms(name, "descriptions", "test")
        cut = {
            new: old for old, row in table.items() for new in row if new[-3:] == "..."
        }
        assert len(cut) > 10
        assert not forms(name, "descriptions", "train")
        for new, old in cut.items():
            others = [x for x in table if x.startswith(new[:-3])]
            assert others == [old]

    @every_split
    def test_strength_is_the_rate_of_remarks(self, split):
        old = clean(split).tools.description
        new = edited("description_noise", split, 0.4).tools.description
        there = old[..., 0] > 0
        assert np.mean((new != old)[..., -1][there]) == pytest.approx(0.4, abs=0.05)


def test_forms_of_the_splits_are_disjoint():
    for table in ("TALK", "LURES", "EITHER", "UNSURE", "RESOLVED", "REMARKS"):
        train, test = (
            {*np.ravel(getattr(asides, table)[split])} - {""} for split in SPLITS
        )
        assert min(len(train), len(test)) >= 4
        assert not train & test, table
    for table in ("requests", "names"):
        train, test = (
            {x for row in forms("poi", table, split).values() for x in row}
            for split in SPLITS
        )
        assert not train & test, table
