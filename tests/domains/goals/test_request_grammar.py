"""Requests of sampled goals: pools that share nothing, references, typography."""

import itertools
import os
import random
import re
from collections import defaultdict
from dataclasses import replace

import pytest

from openagent_jax.domains.domain_spec import DONE, GoalSpec
from openagent_jax.domains.goals import (
    example_requests,
    goal_sampling,
    phrase_syntax,
    request_grammar,
    request_writing,
)
from openagent_jax.domains.goals.goal_plan import Plan
from openagent_jax.domains.goals.request_grammar import CONSTRUCTIONS, POOLS
from openagent_jax.domains.goals.request_reading import content_words
from openagent_jax.domains.goals.request_writing import MAX_WORDS
from tests.domains import aquarium
from tests.helpers import GOLDEN as FOLDER

LIMITS = replace(aquarium.LIMITS, conditions=True)
GOLDEN = FOLDER / "requests.txt"
UPDATE = "OPENAGENT_UPDATE_GOLDEN"
NUM_GOLDEN = 25  # goals, each with a request of four pools
SPECS = aquarium.libraries()
GOALS = {
    name: goal_sampling.sample_goals(spec, LIMITS, 80) for name, spec in SPECS.items()
}
SPEC = SPECS["aquarium"]


def expanded(text):
    """All texts that the choices of a template can make."""
    pieces = phrase_syntax.parse(text)
    options = [
        x.texts if isinstance(x, phrase_syntax.Choice) else (str(x),) for x in pieces
    ]
    return {"".join(parts) for parts in itertools.product(*options)}


def frames(construction):
    """The texts that a construction puts around the words of tools."""
    fields = (
        "state", "ask", "recall", "result", "do", "last_do", "that", "found", "made",
        "ahead", "first", "second", "middle", "last", "end", "only", "at_most",
        "at_least", "equals",
    )  # fmt: skip
    texts = set().union(*(expanded(getattr(construction, x)) for x in fields))
    return {re.sub("[@%&]", "", x).strip(" .,;:?").lower() for x in texts}


def write(steps, answer, constants, spec=SPEC, seed=0):
    """Return all requests for a goal by construction, as their templates."""
    goal = GoalSpec("g", constants, steps, answer, {})
    writer = request_writing.Writer(spec, LIMITS)
    plan = Plan(goal, writer.tools)
    rng = random.Random(seed)
    return {
        form.name: text
        for form in CONSTRUCTIONS
        if (text := writer.text(plan, form, form.pool, rng))
    }


class TestPools:
    def test_constructions_are_in_one_pool(self):
        names = [x.name for x in CONSTRUCTIONS]
        assert len(set(names)) == len(names)
        assert {x.pool for x in CONSTRUCTIONS} == set(POOLS)

    def test_frames_are_in_one_construction(self):
        shared = request_grammar.GLUE | {"-", ""}
        for one, other in itertools.combinations(CONSTRUCTIONS, 2):
            both = (frames(one) & frames(other)) - shared
            assert not both or one.pool == other.pool, (one.name, other.name, both)

    def test_development_has_pools_of_its_own(self):
        pools = request_grammar.by_pool(divided=True)
        names = [x.name for pool in pools.values() for x in pool]
        trained = [x.name for x in CONSTRUCTIONS if x.pool.endswith("train")]
        assert sorted(names) == sorted(trained) and all(pools.values())

    @pytest.mark.parametrize("name", SPECS)
    def test_no_request_is_in_two_pools(self, name):
        """Not even if the values are not looked at."""
        texts = {pool: set() for pool in POOLS}
        for goal in GOALS[name]:
            for pool, phrases in goal.phrases.items():
                texts[pool] |= {re.sub(r"\{\w+\}", "_", x.lower()) for x in phrases}
        for one, other in itertools.combinations(POOLS, 2):
            assert texts[one] and not texts[one] & texts[other]

    def test_constructions_of_pools_share_no_run_of_words(self):
        """Runs of four words that occur in many domains are those of constructions, not
        of tools. Those that two pools share say nothing."""
        domains = {pool: defaultdict(set) for pool in POOLS}
        rng = random.Random(0)
        for name, goals in GOALS.items():
            for goal in goals:
                slots = {slot: "_" for slot, _ in goal.constants}
                for pool, phrases in goal.phrases.items():
                    text = phrase_syntax.fill(rng.choice(phrases), slots, rng)
                    words = re.findall(r"[a-z-]+|_", text.lower())
                    for at in range(len(words) - 3):
                        domains[pool][" ".join(words[at : at + 4])].add(name)
        for one, other in (("train", "test"), ("rewrite_train", "rewrite_test")):
            both = domains[one].keys() & domains[other].keys()
            many = [
                run for run in both if len(domains[one][run] & domains[other][run]) > 4
            ]
            assert len(both) > 50
            assert [run for run in many if content_words(run)] == []

    def test_every_construction_is_used(self):
        """Constructions differ in how requests begin, are joined, or end."""
        found = set()
        for name, spec in SPECS.items():
            writer, rng = request_writing.Writer(spec, LIMITS), random.Random(0)
            for goal in GOALS[name][:60]:
                plan = Plan(goal, writer.tools)
                found |= {
                    form.name
                    for form in CONSTRUCTIONS
                    if writer.text(plan, form, form.pool, rng)
                }
        assert found == {form.name for form in CONSTRUCTIONS}


class TestReferences:
    """Which tank, fish or food is meant is clear."""

    def test_results_are_named_or_referred_to(self):
        texts = write(
            (("find_tank", {"fish": "$fish"}), ("tank_keeper", {"tank": "#0.tank"})),
            "#1.keeper",
            (("fish", "fish"),),
        )
        assert "that tank" in texts["steps"] and "this tank" in texts["once"]
        for nested in ("imperative", "question", "hey", "so"):
            assert "that" not in texts[nested] and texts[nested].count("{fish}") == 1
        assert "a certain tank. For that, " in texts["purpose"]
        assert "the tank in question. To this end, " in texts["aim"]

    def test_a_result_of_the_type_of_a_constant_is_the_one_found(self):
        texts = write(
            (
                ("find_tank", {"fish": "$fish"}),
                ("largest_fish", {"tank": "#0.tank"}),
                ("favourite_food", {"fish": "#1.fish"}),
            ),
            "#2.food",
            (("fish", "fish"),),
        )
        assert "the fish you looked up" in texts["steps"]
        assert "the fish thus determined" in texts["once"]
        for text in texts.values():
            assert "that fish" not in text and "this fish" not in text

    def test_two_results_of_a_type_are_not_referred_to(self):
        """Both would be "that tank"."""
        texts = write(
            (
                ("find_tank", {"fish": "$fish"}),
                ("largest_fish", {"tank": "#0.tank"}),
                ("tank_keeper", {"tank": "#0.tank"}),
                ("write_keeper", {"keeper": "#2.keeper", "subject": "$subject"}),
            ),
            "#1.fish",
            (("fish", "fish"), ("subject", "subject")),
        )
        assert texts  # one tank and two fish: the answer is the last one to be named
        twice = (
            ("find_tank", {"fish": "$fish"}),
            ("largest_fish", {"tank": "#0.tank"}),
            ("find_tank", {"fish": "#1.fish"}),
            ("feed_tank", {"tank": "#2.tank", "food": "$food"}),
            ("tank_keeper", {"tank": "#2.tank"}),
        )
        constants = (("fish", "fish"), ("food", "food"))
        assert not write(twice, "#4.keeper", constants)

    def test_it_is_what_has_just_been_found(self):
        steps = (
            ("find_tank", {"fish": "$fish"}),
            ("hold_slot", {"tank": "#0.tank"}),
            ("feed_tank", {"tank": "#0.tank", "food": "$food"}),
        )
        text = write(steps, DONE, (("fish", "fish"), ("food", "food")))["imperative"]
        assert text.count("{that tank|it}") == 1
        assert text.count("that tank") == 2  # the food could be "it" in the last clause

    def test_a_question_comes_after_what_it_depends_on(self):
        steps = (
            ("find_tank", {"fish": "$fish"}),
            ("hold_slot", {"tank": "#0.tank"}),
            ("feed_tank", {"tank": "#0.tank", "food": "$food"}),
        )
        texts = write(steps, "#0.tank", (("fish", "fish"), ("food", "food")))
        assert texts["steps"].endswith("tell me that tank.")
        assert texts["imperative"].endswith("give me that tank too.")
        assert "purpose" not in texts

    def test_only_what_serves_the_goal_comes_after_it(self):
        """ "I want the keeper. For that, send a note" would be untrue."""
        steps = (
            ("write_keeper", {"keeper": "$keeper", "subject": "$subject"}),
            ("tank_keeper", {"tank": "$tank"}),
        )
        constants = (("keeper", "keeper"), ("subject", "subject"), ("tank", "tank"))
        texts = write(steps, "#1.keeper", constants)
        assert texts and not {"purpose", "aim", "need", "wanted"} & set(texts)

    def test_numbers_that_are_names(self):
        """A ticket is not "at most 507", and 507 alone might be a price."""
        found = 0
        for name, goals in GOALS.items():
            names = {x.name for x in SPECS[name].types if x.identifier}
            for goal in goals:
                slots = [slot for slot, kind in goal.constants if kind in names]
                assert {when.limit for when in goal.conditions.values()} <= {
                    f"${slot}" for slot, _ in goal.constants if slot not in slots
                }
                for slot, phrase in itertools.product(
                    slots, itertools.chain(*goal.phrases.values())
                ):
                    noun = dict(goal.constants)[slot].replace("_", " ")
                    found += 1
                    assert f"{noun} {{{slot}}}" in phrase
        assert found > 20

    def test_no_noun_is_said_twice(self):
        """ "A fee of that fee" is "a fee of that one"."""
        twice = r"\b(\w{3,}) (of|at|like|as) (that|this|said)( \w+){0,2} \1\b"
        for name, goals in GOALS.items():
            nouns = {kind.name.split("_")[-1] for kind in SPECS[name].types}
            for goal in goals:
                for phrase in itertools.chain(*goal.phrases.values()):
                    said = {match[1] for match in re.finditer(twice, phrase)}
                    assert not said & nouns, phrase


class TestTexts:
    @pytest.mark.parametrize("name", SPECS)
    def test_each_tool_can_be_found_by_a_word(self, name):
        """A reader who only knows the documents has a word for each tool; documents say
        which tools without arguments are needed first."""
        tools = {tool.name: tool for tool in SPECS[name].tools}
        rng = random.Random(0)
        for goal in GOALS[name]:
            slots = {slot: "" for slot, _ in goal.constants}
            for phrase in itertools.chain(*goal.phrases.values()):
                words = content_words(phrase_syntax.fill(phrase, slots, rng))
                for tool, _ in goal.steps:
                    assert words & content_words(tools[tool].description), phrase

    @pytest.mark.parametrize("name", SPECS)
    def test_typography(self, name):
        rng = random.Random(0)
        for goal in GOALS[name]:
            slots = {slot: f"Abc{slot}" for slot, _ in goal.constants}
            for pool, phrase in (
                (x, y) for x, texts in goal.phrases.items() for y in texts
            ):
                assert not list(phrase_syntax.faults(phrase))
                assert len(phrase_syntax.parse(phrase)) <= LIMITS.num_phrase_pieces
                assert phrase_syntax.num_words(phrase) <= MAX_WORDS
                for _ in range(3):
                    text = phrase_syntax.fill(phrase, slots, rng)
                    assert not re.search(r"  | [,.;?]|[,;.?][,;.?]|[\[\]{}|@]", text)
                    assert not re.search(r"\b(\w+) \1\b", text.lower()), text
                    assert text == text.strip()
                    if pool in ("train", "test"):
                        assert text[0].isupper() and text[-1] in ".?", text
                        assert not re.search(r"[.?] [a-z]", text), text

    @pytest.mark.parametrize("name", SPECS)
    def test_each_constant_occurs(self, name):
        for goal in GOALS[name]:
            for phrase in itertools.chain(*goal.phrases.values()):
                pieces = phrase_syntax.parse(phrase)
                slots = {x.name for x in pieces if isinstance(x, phrase_syntax.Slot)}
                assert slots == {slot for slot, _ in goal.constants}

    def test_several_for_each_goal(self):
        for name, goals in GOALS.items():
            for pool in ("train", "test"):
                counts = [len(goal.phrases[pool]) for goal in goals]
                assert min(counts) >= 1 and sum(counts) / len(counts) > 2, name


class TestExamples:
    def test_calls_and_a_request_from_each_pool(self):
        one, two = example_requests.some(SPEC, GOALS["aquarium"], 2, seed=1)
        for text in (one, two):
            lines = text.splitlines()
            calls = [line for line in lines if line[0] == "#"]
            assert calls and calls[0].startswith("#0 ") and calls[0][-1] == ")"
            assert lines[len(calls)].startswith("answer: ")
            pools = [line.split(": ")[0].strip() for line in lines[len(calls) + 1 :]]
            assert pools == list(POOLS)
        again = example_requests.some(SPEC, GOALS["aquarium"], 2, seed=1)
        assert list(again) == [one, two]
        other = example_requests.some(SPEC, GOALS["aquarium"], 2, seed=2)
        assert list(other) != [one, two]

    def test_constants_are_those_of_the_split(self):
        goals = [goal for goal in GOALS["aquarium"] if goal.constants]
        for text in example_requests.some(SPEC, goals, 20, seed=0):
            train, test, *_ = text.splitlines()[-4:]
            for kind in SPEC.types:
                if kind.kind == "entity":
                    assert not any(value in train for value in kind.test)
                    assert not any(value in test for value in kind.train)


def listed():
    rng = random.Random(0)
    names = list(SPECS)
    for index in range(NUM_GOLDEN):
        name = names[index % len(names)]
        goal = rng.choice(GOALS[name])
        yield f"# {name}\n" + "\n".join(example_requests.lines(SPECS[name], goal, rng))


def test_golden():
    """A hundred requests, read aloud; a change here is a change of the benchmark."""
    text = "\n\n".join(listed()) + "\n"
    if os.environ.get(UPDATE):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.exists() and text == GOLDEN.read_text(encoding="utf-8"), (
        f"requests read otherwise than {GOLDEN.name}; if that is meant, run\n"
        f"  {UPDATE}=1 pytest tests/domains/goals/test_request_grammar.py"
        " -k golden\nread the difference aloud, and raise evaluate.GRADING_VERSION"
    )
