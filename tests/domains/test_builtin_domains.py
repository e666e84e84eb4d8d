"""The builtin domains contain what the environment needs."""

import itertools
import re

import pytest

from openagent_jax.domains import domain_file, domain_spec

NAMES = ("poi", "medical")
DOMAINS = {name: domain_file.load(name) for name in NAMES}
GOALS = [
    pytest.param(domain, goal, id=f"{domain.name}-{goal.name}")
    for domain in DOMAINS.values()
    for goal in domain.goals
]
# Function words: articles, prepositions, connectives.
EMPTY = set(
    "a an and against all at after before beside between by close for from how in into "
    "is it its my near new next of on one or some still that the then through to up "
    "what when which who whom whose with within".split()
)


def words(text):
    return re.findall(r"[a-z_]+", text.lower())


def tools_of(domain):
    return {tool.name: tool for tool in domain.tools}


def key_words(tool):
    """Words that distinguish a tool from the others, without names of arguments."""
    return set(words(tool.description)) - EMPTY - set(dict(tool.arguments))


def edges(domain, goal):
    """Number of calls of a goal, and its edges: (before, after, 'data' or 'code')."""
    tools, found = tools_of(domain), set()
    calls = [name for name, _ in goal.steps] + list(
        domain_spec.extra_calls(domain, goal)
    )
    for index, (_, arguments) in enumerate(goal.steps):
        for source in arguments.values():
            step, _ = domain_spec.parse_source(source)
            if step >= 0:
                found.add((step, index, "data"))
    for index, name in enumerate(calls):
        for need in tools[name].needs:
            found.add((calls.index(need), index, "code"))
    return len(calls), found


def shape(domain, goal):
    """The graph of the calls in a canonical form, independent of their numbering."""
    size, found = edges(domain, goal)
    numberings = itertools.permutations(range(size))
    return size, min(
        tuple(sorted((order[a], order[b], kind) for a, b, kind in found))
        for order in numberings
    )


def reaches(found, start, end):
    """Whether data flow from one call to another, possibly through others."""
    after = {b for a, b, kind in found if a == start and kind == "data"}
    return end in after or any(reaches(found, step, end) for step in after)


def code_pairs(domain, goal):
    """Pairs of steps of which the second needs the code of the first."""
    tools, steps = tools_of(domain), [name for name, _ in goal.steps]
    needs = [tools[name].code_from for name in steps]
    return [(steps.index(n), i) for i, n in enumerate(needs) if n in steps]


@pytest.mark.parametrize("domain", DOMAINS.values(), ids=NAMES)
class TestBuiltin:
    def test_tools(self, domain):
        assert len(domain.tools) == 14
        assert sum(not tool.arguments for tool in domain.tools) == 2
        assert {len(tool.arguments) for tool in domain.tools} >= {0, 1, 2}
        assert {len(tool.returns) for tool in domain.tools} == {1, 2}
        for tool in domain.tools:
            assert re.fullmatch("[a-z]+_[a-z]+", tool.name)
            assert 3 <= len(tool.description.split()) <= 6
            assert min(map(len, tool.names.values())) >= 3
            assert min(map(len, tool.descriptions.values())) >= 2
            fields = [*tool.arguments, *tool.returns]
            assert all(re.fullmatch("[a-z]+", name) for name, _ in fields)

    def test_every_description_identifies_its_tool(self, domain):
        keys = {tool.name: key_words(tool) for tool in domain.tools}
        for one, other in itertools.combinations(keys, 2):
            assert not keys[one] & keys[other], (one, other)
        for tool in domain.tools:
            assert keys[tool.name]
            for text in itertools.chain(*tool.descriptions.values()):
                said = set(words(text)) - set(dict(tool.arguments))
                fits = {name for name in keys if keys[name] <= said}
                assert fits == {tool.name}, text
                assert 3 <= len(words(text)) <= 9, text

    def test_goals_have_all_kinds_of_graph(self, domain):
        goals = domain.goals
        sizes = [shape(domain, goal)[0] for goal in goals]
        assert len(goals) >= 10
        assert set(sizes) == {1, 2, 3, 4, 5}
        joins = forks = chains = 0
        for goal in goals:
            _, found = edges(domain, goal)
            data = [(a, b) for a, b, kind in found if kind == "data"]
            joins += any(sum(b == end for _, b in data) > 1 for _, end in data)
            forks += any(sum(a == start for a, _ in data) > 1 for start, _ in data)
            chains += any(b == c for (_, b), (c, _) in itertools.product(data, data))
        assert min(joins, forks, chains) >= 1

    def test_goals_with_codes(self, domain):
        codes = reversible = 0
        for goal in domain.goals:
            pairs, found = code_pairs(domain, goal), edges(domain, goal)[1]
            codes += bool(pairs)
            reversible += any(not reaches(found, *pair) for pair in pairs)
        assert codes >= 4
        assert reversible >= 2
        assert sum(bool(domain_spec.extra_calls(domain, g)) for g in domain.goals) >= 2

    def test_goals_with_effects(self, domain):
        tools = tools_of(domain)
        effects = []
        for goal in domain.goals:
            step, _ = domain_spec.parse_source(goal.answer)
            effects.append(step < 0 or tools[goal.steps[step][0]].effect)
        assert sum(effects) >= 2
        assert domain_spec.DONE in [goal.answer for goal in domain.goals]

    def test_no_two_goals_ask_for_the_same_calls(self, domain):
        calls = [
            (frozenset(name for name, _ in goal.steps), frozenset(goal.constants))
            for goal in domain.goals
        ]
        assert len(set(calls)) == len(calls)

    def test_every_tool_is_used(self, domain):
        used = set()
        for goal in domain.goals:
            used |= {name for name, _ in goal.steps}
            used |= set(domain_spec.extra_calls(domain, goal))
        assert used == set(tools_of(domain))

    def test_answers_cannot_be_guessed(self, domain):
        types = {kind.name: kind for kind in domain.types}
        for goal in domain.goals:
            if goal.answer == domain_spec.DONE:
                continue
            step, field = domain_spec.parse_source(goal.answer)
            answer = types[dict(tools_of(domain)[goal.steps[step][0]].returns)[field]]
            assert answer.kind != "enum"
            values = min(len(answer.train), len(answer.test), len(answer.shift))
            assert values >= 30 or answer.maximum - answer.minimum >= 900, goal.name

    def test_values(self, domain):
        seen = set()
        for kind in domain.types:
            if kind.kind == "entity":
                pools = (kind.train, kind.test, kind.shift)
                assert len(kind.train) >= 60
                assert len(kind.test) >= 40
                assert len(kind.shift) >= 30
                starts = [{text.split()[0] for text in pool} for pool in pools]
                for one, other in itertools.combinations(starts, 2):
                    assert not one & other
                values = set().union(*pools)
                assert len(values) == sum(map(len, pools))
                assert all(len(text.split()) <= 2 for text in values)
            else:
                values = set(kind.train)
            assert not values & seen
            seen |= values


@pytest.mark.parametrize("domain, goal", GOALS)
class TestPhrases:
    def test_counts_and_length(self, domain, goal):
        least = {"train": 6, "test": 4, "rewrite_train": 4, "rewrite_test": 4}
        for pool, count in least.items():
            assert len(goal.phrases[pool]) >= count
        texts = list(itertools.chain(*goal.phrases.values()))
        assert max(len(text.split()) for text in texts) <= 14
        assert len(set(texts)) == len(texts)

    def test_each_names_every_step(self, domain, goal):
        tools = tools_of(domain)
        wanted = set().union(*(key_words(tools[name]) for name, _ in goal.steps))
        for text in itertools.chain(*goal.phrases.values()):
            assert wanted <= set(words(re.sub(r"\{.*?\}", "", text))), text
            assert ("done" in words(text)) == (goal.answer == domain_spec.DONE), text

    def test_pools_share_no_frame(self, domain, goal):
        """A frame is a phrase without slots, key words and function words."""
        tools = tools_of(domain)
        wanted = set().union(*(key_words(tools[name]) for name, _ in goal.steps))
        frames = {}
        for pool, texts in goal.phrases.items():
            bare = [words(re.sub(r"\{.*?\}", "", text)) for text in texts]
            drop = wanted | EMPTY
            frames[pool] = {tuple(w for w in text if w not in drop) for text in bare}
        for one, other in itertools.combinations(frames, 2):
            assert not frames[one] & frames[other]
        starts = [
            {re.sub(r"\{.*?\}", "", text).split()[0] for text in goal.phrases[pool]}
            for pool in ("train", "test")
        ]
        assert not starts[0] & starts[1]


def test_builtins_differ():
    poi, medical = DOMAINS.values()

    def tool_words(domain):
        return set().union(*map(key_words, domain.tools))

    def values(domain):
        pools = [(kind.train, kind.test, kind.shift) for kind in domain.types]
        return {
            word for text in itertools.chain(*sum(pools, ())) for word in text.split()
        }

    assert not set(tools_of(poi)) & set(tools_of(medical))
    assert not {t.name for t in poi.types} & {t.name for t in medical.types}
    assert not tool_words(poi) & tool_words(medical)
    assert not values(poi) & values(medical)
    shapes = [{shape(d, goal) for goal in d.goals} for d in (poi, medical)]
    assert shapes[0] - shapes[1] and shapes[1] - shapes[0]


def test_extra_calls_are_in_dependency_order():
    domain = DOMAINS["poi"]
    goals = {goal.name: goal for goal in domain.goals}
    assert domain_spec.extra_calls(domain, goals["pay_event"]) == ("sign_in",)
    assert domain_spec.extra_calls(domain, goals["first_table"]) == ()
