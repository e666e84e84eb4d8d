"""What typed lines mean, and how they are completed."""

import json

import pytest

from openagent_jax.agents import person
from openagent_jax.agents.person import Command


def tool(name, about="", required=None, **properties):
    schemas = {
        k: x if isinstance(x, dict) else {"type": x} for k, x in properties.items()
    }
    schema = {"type": "object", "properties": schemas}
    schema["required"] = list(schemas) if required is None else required
    return {"function": {"name": name, "description": about, "parameters": schema}}


TOOLS = [
    tool("fare", "taxi fare", station="string", hour="integer"),
    tool("look", "opening hour", place="string"),
    tool("sign_in"),
    tool("send", to={"type": "array"}, body={"type": "object"}, urgent="boolean"),
    tool("ask_guide", style={"type": "string", "enum": ["calm", "curt"]}),
    {"function": {"name": "bare"}},
]


def called(line):
    (call,) = person.read(line, TOOLS)["tool_calls"]
    return call["function"]["name"], json.loads(call["function"]["arguments"])


@pytest.mark.parametrize(
    "line",
    [
        "fare station=Tower Cross hour=16",
        "fare station=Tower Cross, hour=16",
        "  fare(station=Tower Cross, hour=16)  ",
        "fare(station='Tower Cross', hour=16)",
        'fare (hour = 16, station = "Tower Cross")',
        "call fare(station='Tower Cross', hour=16)",
        'fare {"station": "Tower Cross", "hour": 16}',
    ],
)
def test_ways_to_call(line):
    assert called(line) == ("fare", {"station": "Tower Cross", "hour": 16})


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("look place=4711", {"place": "4711"}),  # of the type that the document says
        ("look place='a=b, c=d'", {"place": "a=b, c=d"}),
        ("look place=L'Aquila", {"place": "L'Aquila"}),
        ("look Oak Bay", {"place": "Oak Bay"}),  # there is only one argument
        ("look(Oak Bay)", {"place": "Oak Bay"}),
        ("look place=", {"place": ""}),
        ("sign_in", {}),
        ("sign_in()", {}),
        ("bare x=4 y=Oak Bay", {"x": 4, "y": "Oak Bay"}),
        (
            "send to=['a', 'b'] body={'x': 'c=d, e'}, urgent=true",
            {"to": ["a", "b"], "body": {"x": "c=d, e"}, "urgent": True},
        ),
        ("fare station=x unknown=3", {"station": "x", "unknown": 3}),
        ("bare x={1, 2} y=1j", {"x": "{1, 2}", "y": "1j"}),  # JSON has neither
        ("bare x=1e999 y=NaN", {"x": "1e999", "y": "NaN"}),
    ],
)
def test_arguments(line, arguments):
    assert called(line)[1] == arguments


def test_plans_can_be_typed_as_they_are_shown():
    from openagent_jax.environments import transcript

    arguments = {"to": ["a, b", "c=d"], "body": {"x": None}, "urgent": False}
    line = transcript.in_short({"name": "send", "arguments": arguments})
    assert called(line) == ("send", arguments)


def test_other_actions_and_commands():
    for line in ("answer 4 pm", "Answer: 4 pm", "ANSWER 4 pm"):
        assert person.read(line, TOOLS) == {
            "role": "assistant",
            "content": "Answer: 4 pm",
        }
    assert person.read("ask", TOOLS)["content"] == "Ask"
    assert person.read("Refuse", TOOLS)["content"] == "Refuse"
    assert person.read("/plan start", TOOLS) == Command("/plan", "start")
    # A tool of that name comes first, and a name that does not exist can be tried.
    own = [*TOOLS, tool("ask", question="string")]
    assert person.read("ask question=x", own)["tool_calls"]
    assert called("call nothing(x=1)") == ("nothing", {"x": 1})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("lock place=x", 'there is no tool "lock"; did you mean "look"?'),
        ("zzz", 'there is no tool "zzz"; /tools lists them'),
        ("/plam", 'there is no /plam; did you mean "/plan"?'),
        ("answer", "answer what?"),
        ("call", "type a tool"),
        ("fare Tower Cross", "name=value: fare station=... hour=..."),
        ("fare Tower hour=3", "name=value"),
        ("sign_in now", "sign_in takes no arguments"),
        ("fare(hour=3", 'closing "[)]"'),
        ("fare hour=3 hour=4", "hour is given twice"),
        ('fare {"hour": }', "not JSON"),
    ],
)
def test_lines_that_cannot_be_understood(line, message):
    with pytest.raises(ValueError, match=message) as error:
        person.read(line, TOOLS)
    assert "\n" not in str(error.value)


VALUES = ["16", "Tower Cross", "Tower Bridge"]


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("fa", ["fare"]),
        ("  s", ["sign_in", "send"]),
        ("as", ["ask_guide", "ask"]),
        ("call s", ["sign_in", "send"]),
        ("call as", ["ask_guide"]),
        ("/pl", ["/plan"]),
        ("fare ", ["station=", "hour="]),
        ("fare(", ["station=", "hour="]),
        ("fare(h", ["hour="]),
        ("fare station=", VALUES),
        ("fare station=tow", ["Tower Cross", "Tower Bridge"]),
        ("fare station=Tower C", ["Tower Cross"]),
        ("fare(station='Tower C", ["Tower Cross"]),
        ("fare station=Tower Cross, ", ["hour="]),
        ("fare station=Tower Cross ", ["hour="]),
        ("fare(station='Tower Cross', ho", ["hour="]),
        ("ask_guide style=c", ["calm", "curt"]),
        ("send urgent=t", ["true", "Tower Cross", "Tower Bridge"]),
        ("answer T", ["Tower Cross", "Tower Bridge"]),
        ("answer ", [*VALUES, "done"]),
        ("nothing x", []),
        ("sign_in ", []),
        ("", ["fare", "look", "sign_in", "send", "ask_guide", "bare", *person.WORDS]),
    ],
)
def test_completions(line, texts):
    found = list(person.complete(line, TOOLS, VALUES))
    assert [x.text for x in found] == texts
    for x in found:  # what is replaced is what the text begins with
        typed = line[len(line) - x.length :] if x.length else ""
        assert x.text.lower().startswith(typed.lower())


def test_completions_say_what_they_are():
    found = {x.text: x.about for x in person.complete("", TOOLS)}
    assert found["fare"] == "taxi fare" and "ask the user" in found["ask"]
    assert [x.about for x in person.complete("fare h", TOOLS)] == ["integer"]


def test_values_of_a_conversation():
    conversation = [
        {"role": "system", "content": "Never 99."},
        {"role": "user", "content": "Show the fare from Tower Cross at 7."},
        {"role": "assistant", "content": "Answer: 55"},
        {"role": "tool", "content": '{"place":"Oak \\"Bay","n":3,"code":"mus6"}'},
        {"role": "tool", "content": "| hora |\n| ---: |\n| 16 |"},
    ]
    assert person.values_in(conversation) == [
        *("16", "3", "mus6", 'Oak \\"Bay', "7", "Tower Cross"),
    ]


def test_signatures():
    assert person.signature(TOOLS[0]) == "fare(station, hour)"
    assert person.signature(tool("f", required=["a"], a="string", b="string")) == (
        "f(a, [b])"
    )
