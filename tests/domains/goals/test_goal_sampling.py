"""Goals sampled from typed tools: what holds for each, and for all together."""

import collections
import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.domain_spec import DONE, parse_source
from openagent_jax.domains.goals import goal_sampling
from tests.domains import aquarium
from tests.domains.aquarium import LIMITS

SPEC = aquarium.spec()
GOALS = goal_sampling.sample_goals(SPEC, LIMITS, 200)
TOOLS = {tool.name: tool for tool in SPEC.tools}


def sources(goal):
    return [x for _, arguments in goal.steps for x in arguments.values()]


def users(goal, step):
    """The steps that use the result of a step."""
    return [
        user
        for user, (_, arguments) in enumerate(goal.steps)
        if any(parse_source(x)[0] == step for x in arguments.values())
    ]


def meaning(goal):
    """What a goal means: its calls as nested expressions, in no particular order."""
    uses = collections.defaultdict(list)
    for tool, arguments in goal.steps:
        for name, source in arguments.items():
            uses[source].append(f"{tool}.{name}")

    def value(source):
        step, name = parse_source(source)
        return (call(step), name) if step >= 0 else tuple(sorted(uses[source]))

    def call(step):
        tool, arguments = goal.steps[step]
        return tool, tuple((name, value(x)) for name, x in sorted(arguments.items()))

    answer = goal.answer if goal.answer == DONE else value(goal.answer)
    return frozenset(call(step) for step in range(len(goal.steps))), answer


class TestGoals:
    def test_the_reader_of_files_finds_no_fault(self):
        """The checks of authored goals: types, order, prerequisites, use, sizes."""
        document = aquarium.required_only()
        spec = aquarium.spec(document)
        goals = goal_sampling.sample_goals(spec, LIMITS, 200)
        document["goals"] = [
            {
                "name": goal.name,
                "constants": dict(goal.constants),
                "steps": [{"tool": x, "arguments": y} for x, y in goal.steps],
                "answer": goal.answer,
                "phrases": {pool: list(x) for pool, x in goal.phrases.items()},
            }
            for goal in goals
        ]
        for goal in document["goals"]:
            for pool, texts in goal["phrases"].items():  # goals may share requests
                goal["phrases"][pool] = [f"{goal['name']}: {text}" for text in texts]
        limits = dataclasses.replace(LIMITS, num_phrase_pieces=25)
        assert len(domain_file.read(document, limits).goals) == 200

    def test_all_differ(self):
        assert len({meaning(goal) for goal in GOALS}) == len(GOALS) == 200
        assert len({goal.name for goal in GOALS}) == 200

    def test_no_tool_is_called_twice(self):
        for goal in GOALS:
            names = [name for name, _ in goal.steps]
            assert len(set(names)) == len(names)

    def test_optional_arguments_are_given_or_left_out(self):
        found = set()
        for goal in GOALS:
            for name, arguments in goal.steps:
                every = {x for x, _ in TOOLS[name].arguments}
                assert every - set(arguments) <= set(TOOLS[name].optional)
                assert set(arguments) <= every
                for optional in TOOLS[name].optional:
                    found.add((name, optional, optional in arguments))
        assert ("find_tank", "hall", True) in found
        assert ("find_tank", "hall", False) in found

    def test_every_step_is_useful(self):
        for goal in GOALS:
            for step, (name, _) in enumerate(goal.steps):
                needed = any(name in TOOLS[other].needs for other, _ in goal.steps)
                is_answer = parse_source(goal.answer)[0] == step
                useful = users(goal, step) or needed or TOOLS[name].effect
                assert useful or is_answer, goal

    def test_a_step_before_another_one_has_its_values(self):
        found = 0
        for goal in GOALS:
            steps = dict(goal.steps)
            if "feed_tank" in steps:
                found += 1
                names = list(steps)
                assert names.index("hold_slot") < names.index("feed_tank")
                assert steps["hold_slot"]["tank"] == steps["feed_tank"]["tank"]
        assert found > 20


class TestAll:
    def test_seed(self):
        again = goal_sampling.sample_goals(SPEC, LIMITS, 40, seed=3)
        assert again == goal_sampling.sample_goals(SPEC, LIMITS, 40, seed=3)
        other = goal_sampling.sample_goals(SPEC, LIMITS, 40, seed=4)
        assert {meaning(x) for x in again} != {meaning(x) for x in other}

    def test_everything_occurs(self):
        asked = {
            (goal.steps[step][0], name)
            for goal in GOALS
            for step, name in [parse_source(goal.answer)]
            if step >= 0
        }
        assert asked == {(x.name, f) for x in SPEC.tools for f, _ in x.returns}
        done = {goal.steps[-1][0] for goal in GOALS if goal.answer == DONE}
        assert done >= {"feed_tank", "write_keeper"}

    def test_shapes(self):
        """Chains, joins, fan-outs, prerequisites, effects, several wishes."""
        found = collections.Counter()
        for goal in GOALS:
            inner = [
                {parse_source(x)[0] for x in arguments.values()} - {-1}
                for _, arguments in goal.steps
            ]
            found["chain"] += any(inner[s] for steps in inner for s in steps)
            found["join"] += any(len(steps) > 1 for steps in inner)
            fans = [users(goal, step) for step in range(len(goal.steps))]
            found["fan-out"] += any(len(fan) > 1 for fan in fans)
            found["prerequisite"] += "hold_slot" in dict(goal.steps)
            found["extra call"] += bool(domain_spec.extra_calls(SPEC, goal))
            effects = sum(TOOLS[name].effect for name, _ in goal.steps)
            found["two effects"] += effects > 1
            found["effect, then a question"] += effects > 0 and goal.answer != DONE
        assert min(found.values()) >= 5 and len(found) == 7, found

    def test_lengths_have_their_shares(self):
        count = collections.Counter(len(goal.steps) for goal in GOALS)
        assert sorted(count) == list(range(1, LIMITS.num_steps + 1))
        wanted = dict(enumerate(goal_sampling.SHARES, 1))
        # There are not enough goals of one and two calls; the others share the rest.
        rates = [count[length] / wanted[length] for length in (3, 4, 5)]
        assert max(rates) / min(rates) < 1.05
        few = [count[length] / wanted[length] for length in (1, 2)]
        assert sorted(few) == few and few[-1] < min(rates)

    def test_few_sets_of_tools(self, monkeypatch):
        def needed(goals):
            return {
                frozenset([*dict(x.steps), *domain_spec.extra_calls(SPEC, x)])
                for x in goals
            }

        assert len(needed(GOALS)) > 30
        monkeypatch.setattr(goal_sampling, "MAX_SETS", 30)
        monkeypatch.setattr(goal_sampling, "PATIENCE", 300)
        goals = goal_sampling.sample_goals(SPEC, LIMITS, 200)
        assert len(needed(goals)) == 30 < len(goals)

    def test_authored_goals_stay(self):
        both = goal_sampling.with_goals(
            dataclasses.replace(SPEC, goals=GOALS[:2]), LIMITS, 5, seed=1
        )
        assert both.goals[:2] == GOALS[:2] and len(both.goals) == 7
        assert goal_sampling.with_goals(SPEC, LIMITS, 0) == SPEC

    def test_a_domain_without_words_has_none(self):
        poi = domain_file.load("poi")
        tools = tuple(dataclasses.replace(tool, requests=None) for tool in poi.tools)
        poi = dataclasses.replace(poi, tools=tools)
        assert goal_sampling.with_goals(poi, LIMITS, 100) == poi

    def test_tools_without_words_take_no_part(self):
        document = aquarium.good()
        del document["tools"][5]["x-openagent"]["requests"]  # hold_slot
        goals = goal_sampling.sample_goals(aquarium.spec(document), LIMITS, 60)
        names = {name for goal in goals for name, _ in goal.steps}
        assert names == set(TOOLS) - {"hold_slot", "feed_tank"}

    @settings(max_examples=15, deadline=None)
    @given(st.integers(1, 6), st.integers(1, 4), st.integers(0, 99))
    def test_limits(self, num_steps, num_constants, seed):
        limits = dataclasses.replace(
            LIMITS, num_steps=num_steps, num_constants=num_constants
        )
        for goal in goal_sampling.sample_goals(SPEC, limits, 50, seed):
            assert len(goal.steps) <= num_steps
            assert len(goal.constants) <= num_constants
            kinds = dict(goal.constants)
            assert {f"${slot}" for slot in kinds} == {
                x for x in sources(goal) if x[0] == "$"
            }
            for index, (name, arguments) in enumerate(goal.steps):
                wanted = dict(TOOLS[name].arguments)
                for argument, source in arguments.items():
                    step, field = parse_source(source)
                    assert step < index
                    if step < 0:
                        assert kinds[field] == wanted[argument]
                    else:
                        returned = dict(TOOLS[goal.steps[step][0]].returns)
                        assert returned[field] == wanted[argument]


class TestDevelopment:
    def test_splits(self, tmp_path):
        file = tmp_path / "aquarium.json"
        file.write_text(json.dumps(aquarium.good()))
        full, part = (domain_file.load(f"{file}{x}") for x in ("", ":dev"))
        for tools in zip(full.tools, part.tools, strict=True):
            old, new = (tool.requests for tool in tools)
            assert old and new
            pairs = [(old.do, new.do)]
            pairs += [(old.fields[x], new.fields[x]) for x in old.fields]
            for before, after in pairs:
                for prefix in ("", "rewrite_"):
                    train, test = (
                        set(after[f"{prefix}{split}"]) for split in ("train", "test")
                    )
                    assert train | test == set(before[f"{prefix}train"])
                    assert train and test and not train & test
        goals = goal_sampling.sample_goals(part, LIMITS, 50)
        assert len(goals) == 50

    def test_a_tool_with_one_text(self, tmp_path):
        document = aquarium.good()
        requests = document["tools"][3]["x-openagent"]["requests"]
        requests["do"]["rewrite_train"] = ["food for {fish}"]
        file = tmp_path / "aquarium.json"
        file.write_text(json.dumps(document))
        with pytest.raises(domain_spec.DomainError, match="favourite_food: one text"):
            domain_file.load(f"{file}:dev")
