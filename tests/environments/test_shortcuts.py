"""No shortcut tells what can be solved; and planted shortcuts are found."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.environments import registry
from openagent_jax.environments.world import SPLITS
from tests import helpers
from tests.environments import shortcuts
from tests.environments.shortcuts import Reading, Tasks

# The environments of which every unsolvable entry has a counterpart.
DOMAINS = ("crafting", "poi", "medical")
PAIRS = [
    (domain, entries)
    for domain in DOMAINS
    for entries in shortcuts.pairs(registry.spec(domain))
]
# The entry `unsolvable` is a mix of the others, and `medical` is perturbed by the code
# of `poi`.
CHOSEN = ("poi", "unsolvable"), ("crafting", "impossible_goal")
COLOURS = "red green blue black white brown pink grey".split()


def _cases():
    """Every pair and split; the marks keep CI to a few minutes."""
    for domain, entries in PAIRS:
        for split in SPLITS:
            chosen = (domain, entries[0].name) in CHOSEN
            mark = "slow" if chosen and split == "train" else "hours"
            yield pytest.param(
                domain,
                entries,
                split,
                id=f"{domain}-{entries[0].name}-{split}",
                marks=getattr(pytest.mark, mark),
            )


@pytest.mark.parametrize(("domain", "entries", "split"), [*_cases()])
def test_no_shortcut(domain, entries, split):
    leaks, report = shortcuts.find(helpers.world(domain), entries, split)
    assert not leaks, report


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_unsolvable_entry_has_a_counterpart(domain):
    spec = registry.spec(domain)
    entries = perturb.catalogue(spec)
    unsolvable = [entry for entry in entries.values() if not entry.solvable]
    assert unsolvable
    assert all(not entry.counterpart for entry in entries.values() if entry.solvable)
    for entry in unsolvable:
        other = entries[entry.counterpart]
        assert other.solvable
        for field in ("tier", "shift", "part", "touches", "unseen", "position"):
            assert getattr(entry, field) == getattr(other, field), field
        assert entry.name not in spec.suite or other.name in spec.suite
        shares = [spec.training_mix.count(x.name) for x in (entry, other)]
        assert shares[0] == shares[1]
        assert not entry.unseen or not shares[0]
    for chosen in (spec.suite, spec.training_mix):  # both hold such a pair
        assert any({x.name, x.counterpart} <= {*chosen} for x in unsolvable)


@pytest.mark.slow
def test_a_planted_shortcut_is_found():
    """The item that loses its source gets it without the spare one losing anything."""
    world = helpers.world("crafting")
    entries = perturb.catalogue(world.environment)
    unsolvable, other = entries["impossible_goal"], entries["missing_spare"]

    def withheld(pools):
        apply = unsolvable.make(pools)

        def withhold(key, task, strength):
            new = apply(key, task, strength).items
            old = task.items
            kept = dataclasses.replace(
                new,
                ingredients=jnp.minimum(new.ingredients, old.ingredients),
                raw=new.raw & old.raw,
            )
            return dataclasses.replace(task, items=kept)

        return withhold

    planted = dataclasses.replace(unsolvable, name="withheld", make=withheld)
    leaks, report = shortcuts.find(world, (planted, other), "train", num=1000)
    found = {(x.sample, x.classifier, x.measure) for x in leaks}
    for sample in shortcuts.SAMPLES:
        for classifier in ("documents", "both", "counting", "places"):
            assert (sample, classifier, "accuracy") in found, report
    assert "documents" in report


class Toy:
    """Tasks whose documents are coloured, and whose request asks for a colour.

    They can be solved if one of the documents has the colour, and look alike otherwise.
    """

    def __init__(self, seed=0, num=2000):
        draw = np.random.default_rng(seed)
        self.readings, self.solvable = [], draw.permutation(num) % 2 == 1
        for solvable in self.solvable:
            colours = draw.permutation(COLOURS)
            asked = colours[0] if solvable else colours[-1]
            documents = draw.permutation(colours[: len(colours) // 2])
            self.readings.append(
                Reading(("I want", str(asked)), tuple((str(x),) for x in documents))
            )
        self.draw = draw

    def tasks(self, change=None, counts=None):
        """As `shortcuts.sample` gives them, with one sort of tasks changed."""
        readings = [
            change(reading) if change and not solvable else reading
            for reading, solvable in zip(self.readings, self.solvable)
        ]
        num = len(readings)
        counts = np.full((num, 1), 4) if counts is None else counts
        # Neighbours differ in solvability after sorting, so that they make pairs.
        order = np.argsort(self.solvable, kind="stable")
        group = np.empty(num, int)
        group[order] = np.arange(num) % (num // 2)
        return Tasks(readings, self.readings, counts, self.solvable, group)


@pytest.mark.parametrize("sample", shortcuts.SAMPLES)
def test_the_relation_alone_is_no_shortcut(sample):
    found = shortcuts.scores(Toy().tasks(), sample)
    assert not any(map(shortcuts.above, found)), shortcuts.report(found)
    measures = 2 if sample == shortcuts.SEPARATE else 3
    assert len(found) == 6 * measures


def fewer(reading):
    return reading._replace(documents=reading.documents[1:])


def longer(reading):
    return reading._replace(request=("I do want", reading.request[1]))


def moved(reading):
    """The first document changes, into one that others might have."""
    return reading._replace(documents=(("red", "or so"), *reading.documents[1:]))


def asked(reading):
    """Unsolvable tasks never ask for blue; pink is as long."""
    colour = reading.request[1]
    return reading._replace(request=("I want", "pink" if colour == "blue" else colour))


def told(reading):
    """A word in a document."""
    first, *others = reading.documents
    return reading._replace(documents=((first[0], "gone"), *others))


@pytest.mark.parametrize("sample", shortcuts.SAMPLES)
@pytest.mark.parametrize(
    ("change", "classifiers", "feature"),
    [
        (fewer, {"documents", "places", "words", "both"}, "texts of documents"),
        (longer, {"request", "words", "both"}, '"do" in request'),
        (moved, {"places", "documents", "words", "both"}, "first changed document"),
        (asked, {"words", "both"}, '"blue" in request'),
        (told, {"places", "documents", "words", "both"}, '"gone" in documents'),
    ],
)
def test_shortcuts_are_found(sample, change, classifiers, feature):
    found = shortcuts.scores(Toy().tasks(change), sample)
    above = [score for score in found if shortcuts.above(score)]
    assert {x.classifier for x in above} == classifiers, shortcuts.report(found)
    assert any(feature in x.features for x in above), shortcuts.report(found)


@pytest.mark.parametrize("sample", shortcuts.SAMPLES)
def test_counts_are_a_shortcut(sample):
    toy = Toy()
    counts = np.where(toy.solvable, 5, toy.draw.integers(4, 6, len(toy.solvable)))
    found = shortcuts.scores(toy.tasks(counts=counts[:, None]), sample)
    values = {(x.classifier, x.measure): x.value for x in found}
    # It refuses at 4, as half of the unsolvable tasks have it.
    assert values["counting", "accuracy"] == pytest.approx(0.75, abs=0.03)
    assert values["words", "accuracy"] == pytest.approx(0.5, abs=0.06)


class TestReaders:
    def test_crafting(self):
        world = helpers.world("crafting")
        entries = shortcuts.pairs(world.environment)[0]
        for split in SPLITS:
            tasks = shortcuts.sample(world, entries, split, shortcuts.PAIRED, 20)
            for reading, counts in zip(tasks.readings, tasks.counts):
                raw, held, *recipes = reading.documents
                num = [len(recipes), len(raw), len(held)]
                assert num == [*np.maximum(counts, [1, 1, 1])], reading
                assert 2 <= min(map(len, recipes)) <= max(map(len, recipes)) <= 4
                assert reading.request[-1] not in ("", "something")
                assert not any("\n" in name for row in recipes for name in row)

    def test_tools(self):
        world = helpers.world("poi")
        entries = perturb.catalogue(world.environment)
        both = entries["identity_erasure"], entries["tool_order"]
        tasks = shortcuts.sample(world, both, "train", shortcuts.SEPARATE, 20)
        for reading, old, counts in zip(tasks.readings, tasks.before, tasks.counts):
            assert len(reading.documents) == len(old.documents) == counts[0]
            name, description, *_ = reading.documents[0]
            assert name and description and reading.request[0]
        sizes = {len(parts) for x in tasks.readings for parts in x.documents}
        assert len(sizes) > 1
