"""Domain files: the builtins are what the sandbox needs, bad files are explained."""

import contextlib
import copy
import dataclasses
import itertools
import json
import re

import hypothesis
import pytest
from hypothesis import strategies as st

from openagent_jax import types
from openagent_jax.sandbox import domain_file, domain_spec

NAMES = ("poi", "medical")
DOMAINS = {name: domain_file.load(name) for name in NAMES}
GOALS = [
    pytest.param(domain, goal, id=f"{domain.name}-{goal.name}")
    for domain in DOMAINS.values()
    for goal in domain.goals
]
# Words that carry no meaning here: articles, prepositions, connectives and the like.
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
    """What tells a tool from the others: its words without those of its arguments."""
    return set(words(tool.description)) - EMPTY - set(dict(tool.arguments))


def edges(domain, goal):
    """Edges between the calls of a goal: (before, after, 'data' or 'code')."""
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
    """The graph of the calls, the same for every numbering of them."""
    size, found = edges(domain, goal)
    numberings = itertools.permutations(range(size))
    return size, min(
        tuple(sorted((order[a], order[b], kind) for a, b, kind in found))
        for order in numberings
    )


def reaches(found, start, end):
    """Whether data flow from one call to another, through any others."""
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

    def test_every_description_tells_its_tool(self, domain):
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
        """A frame is what is left without slots, wanted words and empty words."""
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


def test_extra_calls_come_in_an_order_that_works():
    domain = DOMAINS["poi"]
    goals = {goal.name: goal for goal in domain.goals}
    assert domain_spec.extra_calls(domain, goals["pay_event"]) == ("sign_in",)
    assert domain_spec.extra_calls(domain, goals["first_table"]) == ()


def test_sources():
    assert domain_spec.parse_source("$city") == (-1, "city")
    assert domain_spec.parse_source("#12.opening-hour") == (12, "opening-hour")


# A small good file, and what happens to it when one thing is wrong.


def tool(name, arguments, returns, **meaning):
    kinds = {"hour": "integer", "seats": "integer", "code": "string"}
    properties = {key: {"type": kinds.get(key, "string")} for key in arguments}
    parameters = {"type": "object", "properties": properties}
    parameters["required"] = list(properties)
    words = {
        split: [f"{split} words of {name}", f"{split} text of {name}"]
        for split in ("train", "test")
    }
    function = {"name": name, "description": f"what {name} does"}
    return {
        "type": "function",
        "function": {**function, "parameters": parameters},
        "x-openagent": {
            "arguments": arguments,
            "returns": returns,
            **meaning,
            "names": {"train": [f"{name}_one"], "test": [f"{name}_two"]},
            "descriptions": words,
            "argument_names": {
                key: {"train": [f"{key}_one"], "test": [f"{key}_two"]}
                for key in arguments
            },
        },
    }


def good():
    """Tools: 0 sign_in, 1 find_inn, 2 hold_room (code of 0), 3 book_room (of 2)."""
    phrases = {
        pool: [f"{pool} room in {{city}}"]
        for pool in ("train", "test", "rewrite_train", "rewrite_test")
    }
    steps = [
        {"tool": "find_inn", "arguments": {"city": "$city"}},
        {"tool": "hold_room", "arguments": {"inn": "#0.inn"}},
        {"tool": "book_room", "arguments": {"inn": "#0.inn"}},
    ]
    return {
        "name": "inns",
        "description": "inns and rooms",
        "types": {
            "city": {
                "kind": "entity",
                "train": ["Ur"],
                "test": ["Uz"],
                "shift": ["Ys"],
            },
            "inn": {
                "kind": "entity",
                "train": {"compose": [["Old", "New"], ["Oak", "Elm"]]},
                "test": {"compose": [["Red"], ["Oak", "Elm"]]},
                "shift": ["Au Coq"],
            },
            "kind": {"kind": "enum", "values": ["single", "double"]},
            "hour": {"kind": "number", "minimum": 0, "maximum": 23},
        },
        "tools": [
            tool("sign_in", {}, {"hour": "hour"}),
            tool("find_inn", {"city": "city"}, {"inn": "inn"}),
            tool("hold_room", {"inn": "inn"}, {"hour": "hour"}, code_from="sign_in"),
            tool(
                "book_room",
                {"inn": "inn"},
                {"hour": "hour"},
                code_from="hold_room",
                effect=True,
            ),
        ],
        "goals": [
            {
                "name": "book",
                "constants": {"city": "city"},
                "steps": steps,
                "answer": "#2.hour",
                "phrases": phrases,
            }
        ],
    }


def load(tmp_path, document):
    file = tmp_path / "mine.json"
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return domain_file.load(str(file))


def test_good_file_loads(tmp_path):
    domain = load(tmp_path, good())
    city, inn, kind, hour = domain.types
    assert inn.train == ("Old Oak", "Old Elm", "New Oak", "New Elm")
    assert (city.shift, inn.shift) == (("Ys",), ("Au Coq",))
    assert kind.train == kind.test == kind.shift == ("single", "double")
    assert (hour.minimum, hour.maximum) == (0, 23)
    book = domain.tools[3]
    assert (book.arguments, book.returns) == ((("inn", "inn"),), (("hour", "hour"),))
    assert (book.code_from, book.call_after, book.effect) == ("hold_room", None, True)
    assert book.argument_names["inn"] == {"train": ("inn_one",), "test": ("inn_two",)}
    assert domain.goals[0].steps[1] == ("hold_room", {"inn": "#0.inn"})
    assert domain_spec.extra_calls(domain, domain.goals[0]) == ("sign_in",)


def test_optional_keys_and_byte_order_mark(tmp_path):
    document = good()
    function = document["tools"][0]["function"]
    function["strict"] = function["parameters"]["additionalProperties"] = False
    assert load(tmp_path, "\ufeff" + json.dumps(document)).name == "inns"


REMOVE = ...
TOOL, GOAL = "tools[3].x-openagent", "goals[0]"
SIGN = {"tool": "sign_in", "arguments": {}}
# name: (where to write, what to write, place in the error, problem, remedy)
BAD = {
    "missing key": ("name", REMOVE, "top level", "missing key 'name'", "add it"),
    "unknown key": (
        ("tools", 3, "x-openagent", "retruns"),
        {},
        f"{TOOL}.retruns",
        "unknown key 'retruns'",
        "did you mean 'returns'?",
    ),
    "unknown key, nothing like it": (
        ("goals", 0, "zzz"),
        1,
        "goals[0].zzz",
        "unknown key 'zzz'",
        "known: name, constants, steps, answer, phrases",
    ),
    "wrong json type": ("tools", {}, "tools", "{} is not a list", "write a list"),
    "true is no number": (
        ("types", "hour", "minimum"),
        True,
        "types.hour.minimum",
        "True is not a number",
        "write a number",
    ),
    "not an OpenAI function": (
        ("tools", 1, "type"),
        "functions",
        "tools[1].type",
        "unknown word 'functions'",
        "did you mean 'function'?",
    ),
    "bad name": (
        ("tools", 1, "function", "name"),
        "find inn",
        "tools[1].function.name",
        "'find inn' is no name",
        "use letters, digits, _ and -, 64 at most, no digit first",
    ),
    "bad name of a key": (
        ("types", "a b"),
        {"kind": "number"},
        "types",
        "'a b' is no name",
        "use letters, digits, _ and -, 64 at most, no digit first",
    ),
    "duplicate tool": (
        ("tools", 1, "function", "name"),
        "sign_in",
        "tools[1].function.name",
        "duplicate 'sign_in', also in tools[0].function.name",
        "keep one of the two",
    ),
    "synonym of another tool": (
        ("tools", 1, "x-openagent", "names", "test"),
        ["sign_in_one"],
        "tools[1].x-openagent.names.test",
        "duplicate 'sign_in_one', also in tools[0].x-openagent.names.train",
        "keep one of the two",
    ),
    "train and test descriptions overlap": (
        ("tools", 1, "x-openagent", "descriptions", "test"),
        ["train words of find_inn"],
        "tools[1].x-openagent.descriptions.test",
        "duplicate 'train words of find_inn', "
        "also in tools[1].x-openagent.descriptions.train",
        "keep one of the two",
    ),
    "duplicate description": (
        ("tools", 1, "function", "description"),
        "what sign_in does",
        "tools[1].function.description",
        "duplicate 'what sign_in does', also in tools[0].function.description",
        "keep one of the two",
    ),
    "argument without synonyms": (
        ("tools", 1, "x-openagent", "argument_names"),
        {},
        "tools[1].x-openagent.argument_names",
        "missing argument 'city'",
        "add it",
    ),
    "argument named code": (
        ("tools", 1),
        tool("find_inn", {"code": "city"}, {"inn": "inn"}),
        "tools[1].x-openagent.arguments",
        "duplicate 'code', also in the name of every code",
        "keep one of the two",
    ),
    "argument synonym": (
        ("tools", 1, "x-openagent", "argument_names", "city", "test"),
        ["city"],
        "tools[1].x-openagent.argument_names.city.test",
        "duplicate 'city', also in tools[1].x-openagent.arguments",
        "keep one of the two",
    ),
    "missing type": (
        ("tools", 3, "x-openagent", "returns", "hour"),
        "hours",
        f"{TOOL}.returns.hour",
        "missing type 'hours'",
        "did you mean 'hour'?",
    ),
    "missing type of a constant": (
        ("goals", 0, "constants", "city"),
        "zzz",
        "goals[0].constants.city",
        "missing type 'zzz'",
        "known: city, inn, kind, hour",
    ),
    "returns nothing": (
        ("tools", 3, "x-openagent", "returns"),
        {},
        f"{TOOL}.returns",
        "nothing to return",
        "add a field",
    ),
    "returns named code": (
        ("tools", 3, "x-openagent", "returns"),
        {"code": "hour", "hour": "hour"},
        f"{TOOL}.returns",
        "duplicate 'code', also in the name of every code",
        "keep one of the two",
    ),
    "properties differ": (
        ("tools", 1, "function", "parameters", "properties"),
        {"town": {"type": "string"}},
        "tools[1].function.parameters.properties.town",
        "unknown argument 'town'",
        "known: city",
    ),
    "optional argument": (
        ("tools", 1, "function", "parameters", "required"),
        [],
        "tools[1].function.parameters.required",
        "wrong",
        "all are required, write ['city']",
    ),
    "unknown prerequisite": (
        ("tools", 3, "x-openagent", "code_from"),
        "hold_rom",
        f"{TOOL}.code_from",
        "unknown tool 'hold_rom'",
        "did you mean 'hold_room'?",
    ),
    "null prerequisite": (
        ("tools", 3, "x-openagent", "call_after"),
        None,
        f"{TOOL}.call_after",
        "None is not a text",
        "write a text",
    ),
    "cycle": (
        ("tools", 0, "x-openagent", "call_after"),
        "book_room",
        "tools[0].x-openagent",
        "cycle sign_in -> book_room -> hold_room -> sign_in",
        "remove one code_from or call_after",
    ),
    "needs itself": (
        ("tools", 1, "x-openagent", "call_after"),
        "find_inn",
        "tools[1].x-openagent",
        "cycle find_inn -> find_inn",
        "remove one code_from or call_after",
    ),
    "prerequisite is no step": (
        ("goals", 0, "steps", 1),
        SIGN,
        "goals[0].steps[2]",
        "'book_room' needs 'hold_room', which takes arguments",
        "make it a step",
    ),
    "prerequisite comes later": (
        ("goals", 0, "steps"),
        [good()["goals"][0]["steps"][i] for i in (0, 2, 1)],
        "goals[0].steps[1]",
        "'book_room' needs 'hold_room', a later step",
        "move it",
    ),
    "useless step": (
        ("goals", 0, "steps", 3),
        {"tool": "find_inn", "arguments": {"city": "$city"}},
        "goals[0].steps[3]",
        "'find_inn' serves nothing",
        "use its result or remove it",
    ),
    "unknown tool": (
        ("goals", 0, "steps", 0, "tool"),
        "find_in",
        "goals[0].steps[0].tool",
        "unknown tool 'find_in'",
        "did you mean 'find_inn'?",
    ),
    "later step": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "#2.hour",
        "goals[0].steps[1].arguments.inn",
        "unknown source '#2.hour'",
        "known: $city, #0.inn",
    ),
    "unknown field": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "#0.inns",
        "goals[0].steps[1].arguments.inn",
        "unknown source '#0.inns'",
        "did you mean '#0.inn'?",
    ),
    "unknown answer": (
        ("goals", 0, "answer"),
        "#2.hours",
        "goals[0].answer",
        "unknown source '#2.hours'",
        "did you mean '#2.hour'?",
    ),
    "answer is a constant": (
        ("goals", 0, "answer"),
        "$city",
        "goals[0].answer",
        "unknown source '$city'",
        "known: done, #0.inn, #1.hour, #2.hour",
    ),
    "source of another type": (
        ("goals", 0, "steps", 1, "arguments", "inn"),
        "$city",
        "goals[0].steps[1].arguments.inn",
        "$city is of type 'city'",
        "give a 'inn'",
    ),
    "missing argument": (
        ("goals", 0, "steps", 1, "arguments"),
        {},
        "goals[0].steps[1].arguments",
        "missing argument 'inn'",
        "add it",
    ),
    "unused constant": (
        ("goals", 0, "constants", "hour"),
        "hour",
        "goals[0].constants.hour",
        "used by no step",
        "use it or remove it",
    ),
    "duplicate goal": (
        ("goals", 1),
        good()["goals"][0],
        "goals[1].name",
        "duplicate 'book', also in goals[0].name",
        "keep one of the two",
    ),
    "unknown slot": (
        ("goals", 0, "phrases", "test", 0),
        "room in {town}",
        "goals[0].phrases.test[0].{town}",
        "unknown slot '{town}'",
        "known: {city}",
    ),
    "open brace": (
        ("goals", 0, "phrases", "test", 0),
        "room in {city",
        "goals[0].phrases.test[0].{city",
        "unknown slot '{city'",
        "did you mean '{city}'?",
    ),
    "missing slot": (
        ("goals", 0, "phrases", "rewrite_test", 0),
        "room somewhere",
        "goals[0].phrases.rewrite_test[0]",
        "missing slot '{city}'",
        "add it",
    ),
    "empty phrase pool": (
        ("goals", 0, "phrases", "test"),
        [],
        "goals[0].phrases.test",
        "empty list",
        "write one entry or more",
    ),
    "phrases overlap": (
        ("goals", 0, "phrases", "rewrite_test"),
        ["train room in {city}"],
        "goals[0].phrases.rewrite_test",
        "duplicate 'train room in {city}', also in goals[0].phrases.train",
        "keep one of the two",
    ),
    "empty pool": (
        ("types", "city", "train"),
        [],
        "types.city.train",
        "empty list",
        "write one entry or more",
    ),
    "empty part of a pool": (
        ("types", "inn", "train", "compose", 1),
        [],
        "types.inn.train.compose[1]",
        "empty list",
        "write one entry or more",
    ),
    "splits overlap": (
        ("types", "city", "shift"),
        ["Uz"],
        "types.city.shift",
        "duplicate 'Uz', also in types.city.test",
        "keep one of the two",
    ),
    "splits overlap in the first word": (
        ("types", "inn", "test", "compose"),
        [["Old"], ["Ash"]],
        "types.inn.test",
        "duplicate 'Old', also in types.inn.train",
        "keep one of the two",
    ),
    "composed like a value of another split": (
        ("types", "inn", "shift"),
        ["Old Oak"],
        "types.inn.shift",
        "duplicate 'Old Oak', also in types.inn.train",
        "keep one of the two",
    ),
    "types overlap": (
        ("types", "kind", "values"),
        ["single", "Ur"],
        "types.kind.values",
        "duplicate 'Ur', also in types.city.train",
        "keep one of the two",
    ),
    "name is a number": (
        ("types", "kind", "values"),
        ["single", "12"],
        "types.kind.values",
        "duplicate '12', also in the numbers",
        "keep one of the two",
    ),
    "huge pool": (
        ("types", "inn", "shift"),
        {"compose": [[f"a{i}" for i in range(1000)]] * 3},
        "types.inn.shift",
        "1000000000 values",
        "have 100000 at most",
    ),
    "quote": (
        ("types", "city", "train", 0),
        'U"r',
        "types.city.train[0]",
        "'U\"r' has ['\"'] in it",
        "leave that out",
    ),
    "backslash": (
        ("types", "city", "train", 0),
        "U\\r",
        "types.city.train[0]",
        "'U\\\\r' has ['\\\\'] in it",
        "leave that out",
    ),
    "control character": (
        ("types", "city", "train", 0),
        "U\nr",
        "types.city.train[0]",
        "'U\\nr' has ['\\n'] in it",
        "leave that out",
    ),
    "half a character": (
        ("types", "city", "train", 0),
        "U\ud800r",
        "types.city.train[0]",
        "'U\\ud800r' has ['\\ud800'] in it",
        "leave that out",
    ),
    "leading blank": (
        ("types", "city", "train", 0),
        " Ur",
        "types.city.train[0]",
        "' Ur' is empty or has outer blanks",
        "trim it",
    ),
    "trailing blank": (
        ("tools", 1, "function", "description"),
        "an inn ",
        "tools[1].function.description",
        "'an inn ' is empty or has outer blanks",
        "trim it",
    ),
    "empty value": (
        ("types", "kind", "values", 1),
        "",
        "types.kind.values[1]",
        "'' is empty or has outer blanks",
        "trim it",
    ),
    "enum of one": (
        ("types", "kind", "values"),
        ["single"],
        "types.kind.values",
        "fewer than 2 values",
        "add some",
    ),
    "minimum above maximum": (
        ("types", "hour", "minimum"),
        24,
        "types.hour",
        "minimum 24, maximum 23",
        "keep 0 <= minimum <= maximum <= 999",
    ),
    "number too large": (
        ("types", "hour", "maximum"),
        1000,
        "types.hour",
        "minimum 0, maximum 1000",
        "keep 0 <= minimum <= maximum <= 999",
    ),
    "number below zero": (
        ("types", "hour", "minimum"),
        -1,
        "types.hour",
        "minimum -1, maximum 23",
        "keep 0 <= minimum <= maximum <= 999",
    ),
    "unknown kind": (
        ("types", "hour", "kind"),
        "numbers",
        "types.hour.kind",
        "unknown kind 'numbers'",
        "did you mean 'number'?",
    ),
    "too many tools": (
        "tools",
        [{}] * 10_000,
        "tools",
        "10000 entries, the limit is 16",
        "remove some or raise sandbox.num_tools",
    ),
    "too many arguments": (
        ("tools", 1, "x-openagent", "arguments"),
        dict.fromkeys("abcd", "city"),
        "tools[1].x-openagent.arguments",
        "4 entries, the limit is 3",
        "remove some or raise sandbox.num_args",
    ),
    "too many fields": (
        ("tools", 1, "x-openagent", "returns"),
        dict.fromkeys("abc", "city"),
        "tools[1].x-openagent.returns",
        "3 entries, the limit is 2",
        "remove some or raise sandbox.num_fields",
    ),
    "too many steps": (
        ("goals", 0, "steps"),
        [SIGN] * 6,
        "goals[0].steps",
        "6 entries, the limit is 5",
        "remove some or raise sandbox.num_steps",
    ),
    "too many constants": (
        ("goals", 0, "constants"),
        dict.fromkeys("abcde", "city"),
        "goals[0].constants",
        "5 entries, the limit is 4",
        "remove some or raise sandbox.num_constants",
    ),
}


def write(document, path, value):
    """Put a value at a path; the index after the last one appends."""
    *front, last = path if isinstance(path, tuple) else (path,)
    for key in front:
        document = document[key]
    if value is REMOVE:
        del document[last]
    elif isinstance(document, list) and last == len(document):
        document.append(value)
    else:
        document[last] = value


@pytest.mark.parametrize("path, value, place, problem, remedy", BAD.values(), ids=BAD)
def test_bad_document(tmp_path, path, value, place, problem, remedy):
    document = good()
    write(document, path, copy.deepcopy(value))
    with pytest.raises(domain_spec.DomainError) as caught:
        load(tmp_path, document)
    file = tmp_path / "mine.json"
    assert str(caught.value) == f"{file}: {place}: {problem}; {remedy}"
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("path, value, place, problem, remedy", BAD.values(), ids=BAD)
def test_the_first_of_all_faults_is_the_one_that_is_raised(
    tmp_path, path, value, place, problem, remedy
):
    document = good()
    write(document, path, copy.deepcopy(value))
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    assert domain_file.faults(file)[0] == f"{place}: {problem}; {remedy}"


def test_a_good_file_has_no_faults(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(good()))
    assert domain_file.faults(file) == domain_file.faults("poi") == []
    assert domain_file.faults(f"{file}:dev") == []


def test_all_faults_are_found(tmp_path):
    document = good()
    for path, value in (
        (("types", "hour", "maximum"), 1000),
        (("types", "city", "kind"), "entitty"),
        (("tools", 0, "function", "name"), 3),
        (("tools", 1, "x-openagent", "names", "test"), []),
        (("tools", 2, "x-openagent", "arguments", "inn"), "in"),
        (("tools", 2, "x-openagent", "code_from"), "sign_on"),
        (("goals", 0, "phrases", "test", 0), "room"),
        (("goals", 0, "answer"), "don"),
        ("extra", 1),
    ):
        write(document, path, value)
    document["goals"].append({**document["goals"][0], "name": "again"})
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    places = [fault.split(": ")[0] for fault in domain_file.faults(file)]
    assert places == [
        "extra",
        "tools[0].function.name",
        "tools[1].x-openagent.names.test",
        "types.city.kind",
        "types.hour",
        "tools[2].x-openagent.arguments.inn",
        "tools[2].x-openagent.code_from",
        "goals[0].phrases.test[0]",
        # What tools that are wrong return is not known: the answers are not judged.
        "goals[1].phrases.train",
        "goals[1].phrases.test",
        "goals[1].phrases.rewrite_train",
        "goals[1].phrases.rewrite_test",
        "goals[1].phrases.test[0]",
    ]


@pytest.mark.parametrize("key", ["types", "tools", "goals"])
def test_what_speaks_of_a_missing_part_is_not_judged(tmp_path, key):
    document = good()
    del document[key]
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    assert domain_file.faults(file) == [f"top level: missing key '{key}'; add it"]


def places(value, path=()):
    """All paths into a document."""
    yield path
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in pairs:
            yield from places(item, (*path, key))


SPOILED = [
    None,
    3,
    -1,
    True,
    "",
    "x y",
    "code",
    "done",
    "{city}",
    [],
    {},
    [[]],
    {"a": 1},
]
PLACES = [path for path in places(good()) if path]


@hypothesis.settings(max_examples=300, deadline=None)
@hypothesis.given(
    st.lists(
        st.tuples(st.sampled_from(PLACES), st.sampled_from([*SPOILED, REMOVE])),
        min_size=1,
        max_size=4,
    )
)
def test_whatever_is_wrong_is_told(changes):
    """Never a crash; all faults are told where one is raised, and that one first."""
    document = good()
    for path, value in changes:
        with contextlib.suppress(KeyError, IndexError, TypeError):
            write(document, path, copy.deepcopy(value))
    with domain_spec.collected() as found:
        domain_file.read(document, types.Limits())
    try:
        domain_file.read(document, types.Limits())
        raised = []
    except domain_spec.DomainError as error:
        raised = [str(error)]
    assert found[:1] == raised


class TestForPeople:
    """What makes a file easier to write, and to finish."""

    def test_a_list_of_values_is_divided(self, tmp_path):
        document = good()
        values = ["Ur", "Ux", "Uz", "Us", "Ut"]
        document["types"]["city"] = {"kind": "entity", "values": values}
        city = load(tmp_path, document).types[0]
        assert city.train == ("Ur", "Us")
        assert city.test == ("Ux", "Ut")
        assert city.shift == ("Uz",)

    @pytest.mark.parametrize(
        "kind, fault",
        [
            ({"values": ["Ur", "Ux"]}, ".values: fewer than 3 values; add some"),
            ({"values": ["Ur"], "test": ["Uz"]}, ".test: unknown key 'test'; known"),
            ({"values": ["Ur", "Ux", "Ur"]}, ".values: duplicate 'Ur', also in"),
        ],
    )
    def test_a_list_that_cannot_be_divided(self, tmp_path, kind, fault):
        document = good()
        document["types"]["city"] = {"kind": "entity", **kind}
        with pytest.raises(domain_spec.DomainError, match=re.escape(fault)):
            load(tmp_path, document)

    def test_what_is_to_be_filled_in_is_refused(self, tmp_path):
        document = good()
        document["types"]["city"]["train"] = ["FILL IN: towns"]
        document["goals"][0]["phrases"]["test"] = ["FILL IN: requests"]
        file = tmp_path / "mine.json"
        file.write_text(json.dumps(document))
        assert domain_file.faults(file) == [
            "goals[0].phrases.test[0]: still says 'FILL IN: requests'; write that in "
            "its place",
            "types.city.train[0]: still says 'FILL IN: towns'; write that in its place",
        ]

    def test_notes_mean_nothing(self, tmp_path):
        document = good()
        plain = load(tmp_path, document)
        document["review"] = ["types.city: made up"]
        noted = load(tmp_path, document)
        assert noted.review == ("types.city: made up",)
        assert dataclasses.replace(noted, review=()) == plain

    @pytest.mark.parametrize(
        "path, size, room",
        [
            (("types", "city", "train", 0), 65, 64),
            (("types", "kind", "values", 0), 65, 64),
            (("tools", 1, "x-openagent", "names", "train", 0), 65, 64),
            (("tools", 1, "function", "description"), 257, 256),
        ],
    )
    def test_texts_that_cannot_be_looked_up(self, tmp_path, path, size, room):
        document = good()
        write(document, path, "x" * (size - 1))
        load(tmp_path, document)
        write(document, path, "x" * size)
        message = f"has {size} bytes; write {room} at most"
        with pytest.raises(domain_spec.DomainError, match=message):
            load(tmp_path, document)


BAD_TEXT = {
    "syntax": (
        b'{"name": "x",\n "tools": [,]}',
        "line 2, column 12: invalid JSON, Expecting value; correct it there",
    ),
    "empty file": (
        b"",
        "line 1, column 1: invalid JSON, Expecting value; correct it there",
    ),
    "not UTF-8": (b'{"name": "\xff"}', "byte 10: not UTF-8; save the file as UTF-8"),
    "a list": (b"[]", "top level: [] is not an object; write an object"),
    "duplicate top level key": (
        b'{"name": "a", "name": "b"}',
        "top level: missing key 'description'; add it",
    ),
}


@pytest.mark.parametrize("content, message", BAD_TEXT.values(), ids=BAD_TEXT)
def test_bad_text(tmp_path, content, message):
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(file)
    assert str(caught.value) == f"{file}: {message}"


@pytest.mark.parametrize(
    "old, place",
    [
        ('"hour": {"kind"', "types.hour"),
        ('"name": "book"', "goals[0].name"),
        ('"inn": "#0.inn"', "goals[0].steps[1].arguments.inn"),
        ('"inn": "inn"}, "returns"', "tools[2].x-openagent.arguments.inn"),
    ],
)
def test_duplicate_key(tmp_path, old, place):
    """JSON readers keep the last one in silence; we do not."""
    text, key = json.dumps(good()), old.split(":")[0]
    assert old in text
    with pytest.raises(domain_spec.DomainError) as caught:
        load(tmp_path, text.replace(old, f"{key}: 1, {old}", 1))
    file = tmp_path / "mine.json"
    message = f"{file}: {place}: duplicate key; remove or rename one"
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["[" * 200_000, '{"name": ' + "9" * 5000 + "}"])
def test_absurd_text(tmp_path, text):
    with pytest.raises(
        domain_spec.DomainError, match="top level: .*; follow the schema"
    ):
        load(tmp_path, text)


def test_no_such_file(tmp_path):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(tmp_path / "none.json")
    message = f"{tmp_path / 'none.json'}: file: No such file or directory; "
    assert str(caught.value) == message + "check the path"


@pytest.mark.parametrize(
    "name, remedy",
    [("pio", "did you mean 'poi'?"), ("weather", "known: medical, poi")],
)
def test_no_such_builtin(name, remedy):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.load(name)
    message = f"{name}: name: unknown builtin domain {name!r}; {remedy}"
    assert str(caught.value) == message


class TestDevelopment:
    def test_nothing_of_the_test_half(self):
        for name, whole in DOMAINS.items():
            part = domain_file.load(f"{name}:dev")
            train, test = (said(whole, split) for split in ("train", "test"))
            halves = said(part, "train"), said(part, "test")
            assert not halves[0] & halves[1]
            assert halves[0] | halves[1] == train and not train & test

    def test_first_words_are_kept_apart(self):
        part = domain_file.load("poi:dev")
        pools = [(t.train, t.test) for t in part.types if t.kind == "entity"]
        phrases = [goal.phrases for goal in part.goals]
        pools += [
            [
                [text for pool in phrases for text in pool[split]]
                for split in ("train", "test")
            ]
        ]
        for train, test in pools:
            first, held = ({text.split()[0] for text in half} for half in (train, test))
            assert not first & held
            assert 0.2 < len(test) / (len(train) + len(test)) < 0.4

    def test_of_a_file(self, tmp_path):
        file = tmp_path / "mine.json"
        document = good()
        file.write_text(json.dumps(document))
        with pytest.raises(
            domain_spec.DomainError, match="one text for training; :dev"
        ):
            domain_file.load(f"{file}:dev")


def said(domain, split: str) -> set[tuple[str, str]]:
    """All that differs from split to split, with its place."""
    found = {(kind.name, text) for kind in domain.types if kind.kind == "entity"
             for text in getattr(kind, split)}  # fmt: skip
    for tool in domain.tools:
        pools = {"names": tool.names, "texts": tool.descriptions, **tool.argument_names}
        for place, pool in pools.items():
            found |= {(f"{tool.name}.{place}", text) for text in pool[split]}
    for goal in domain.goals:
        for pool in (split, f"rewrite_{split}"):
            found |= {(goal.name, text) for text in goal.phrases[pool]}
    return found


def test_limits_can_be_raised(tmp_path):
    document = good()
    extra = [tool(f"tool_{i}", {}, {"hour": "hour"}) for i in range(13)]
    document["tools"] += extra
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(document))
    with pytest.raises(domain_spec.DomainError, match="17 entries, the limit is 16"):
        domain_file.load(file)
    domain = domain_file.load(file, types.Limits(num_tools=17))
    assert len(domain.tools) == 17
