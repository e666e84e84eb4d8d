"""Conversations as others log them, and the tasks that they become, by hand."""

import copy
import json

import pytest

from openagent_jax import types
from openagent_jax.sandbox import log_file, log_mapping
from openagent_jax.sandbox.domain_spec import DONE, DomainError
from openagent_jax.sandbox.log_mapping import REFUSED


def tool(name, description="", required=(), **kinds):
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in kinds.items()},
    }
    function = {"name": name, "description": description, "parameters": schema}
    schema["required"] = list(required or kinds)
    return {"type": "function", "function": function}


TOOLS = [
    tool("find_order", "Find an order.", order_id="string", year="integer"),
    tool("get_weather", "Weather of a city", ["city"], city="string", unit="string"),
    tool("ship", "Ship a parcel", parcel="string", to="string"),
]


def user(text):
    return {"role": "user", "content": text}


def says(text):
    return {"role": "assistant", "content": text}


def calls(*made, content=None):
    """`(name, arguments)` each; ids are a, b, c."""
    found = [
        {"id": i, "type": "function", "function": {"name": name, "arguments": x}}
        for i, (name, x) in zip("abc", made)
    ]
    return {"role": "assistant", "content": content, "tool_calls": found}


def result(content, call_id="a", **more):
    if isinstance(content, dict):
        content = json.dumps(content)
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


ORDER = {"order_id": "A-17", "year": 2024}
FOUND = {"parcel": "p9", "state": "packed", "weight": 2.5, "gift": True}


def chain():
    return [
        {"role": "system", "content": "Be kind."},
        user("Please ship order A-17 of 2024 to Oslo, I am in Oslo-Nord."),
        calls(("find_order", json.dumps(ORDER)), content="Let me look."),
        result(FOUND),
        calls(("ship", {"parcel": "p9", "to": "Oslo"})),
        result([{"type": "text", "text": '{"label": "L-4", "by": null}'}]),
        says("Done! The label is L-4."),
    ]


def mapped(messages, tools=TOOLS, **more):
    row = {"messages": messages, "tools": tools, **more}
    return log_mapping.recorded(log_file.conversation_of(row))


def reason(messages, tools=TOOLS, **more):
    with pytest.raises(log_file.Unmapped) as error:
        mapped(messages, tools, **more)
    return str(error.value)


def test_a_chain():
    task = mapped(chain(), source="web")
    assert [(x.name, x.arguments) for x in task.documents] == [
        ("find_order", (("order_id", False), ("year", False))),  # 2024 is over 999
        ("get_weather", (("city", False),)),  # not called: what is required
        ("ship", (("parcel", False), ("to", False))),
    ]
    assert task.documents[0].description == ("Find an order.",)
    assert task.phrase == (
        "Please ship order ", 0, " of ", 1, " to ", 2, ", I am in ", 2, "-Nord.",
    )  # fmt: skip
    assert task.constants == ("A-17", "2024", "Oslo") and all(task.shown)
    first, second = task.steps
    assert first.sources == {"order_id": 0, "year": 1}
    assert first.fields == {
        "parcel": "p9", "state": "packed", "weight": "2.5", "gift": "true",
    }  # fmt: skip
    assert second.sources == {"parcel": (0, "parcel"), "to": 2}
    assert second.fields == {"label": "L-4", "by": "null"}
    assert task.answer == (1, "label")
    assert task.failures == task.codes == {}
    assert task.needs() == {
        "sandbox.num_tools": 3,
        "sandbox.num_args": 2,
        "sandbox.num_fields": 4,
        "sandbox.num_steps": 2,
        "sandbox.num_constants": 3,
        "sandbox.max_turns": 3,
    }


def test_tools_as_others_list_them():
    task = mapped(chain())
    bare = [x["function"] for x in TOOLS]
    mcp = [
        {
            "name": x["name"],
            "description": x["description"],
            "inputSchema": x["parameters"],
        }
        for x in bare
    ]
    filled = copy.deepcopy(TOOLS)  # as a table fills in what a row has not
    filled[0]["function"]["parameters"]["properties"]["city"] = None
    for tools in (bare, mcp, json.dumps(TOOLS), filled):
        assert mapped(chain(), tools) == task


def test_what_is_null_is_not_there():
    messages = chain()
    messages[4]["tool_calls"][0]["function"]["arguments"]["city"] = None
    messages[0]["tool_calls"] = None
    assert mapped(messages) == mapped(chain())


def test_calls_of_one_message():
    """They do not feed each other, and results are told apart by their ids."""
    messages = [
        user("Weather in Rome and in Bern?"),
        calls(
            ("get_weather", {"city": "Rome"}),
            ("get_weather", {"city": "Bern"}),
            ("ship", {"parcel": "sunny", "to": "me"}),
        ),
        result("rainy", "b"),
        result("sunny", "a"),
        result({"label": 5}, "c"),
        says("Sunny, and rainy."),
    ]
    task = mapped(messages)
    assert [x.values.get("city") for x in task.steps] == ["Rome", "Bern", None]
    assert [x.fields for x in task.steps[:2]] == [
        {"result": "sunny"}, {"result": "rainy"},
    ]  # fmt: skip
    assert task.steps[2].sources == {"parcel": 2, "to": 3}
    assert task.constants == ("Rome", "Bern", "sunny", "me")
    assert task.answer == DONE  # two values are told
    for message in messages[2:5]:
        del message["tool_call_id"]  # then in their order
    assert mapped(messages).steps[0].fields == {"result": "rainy"}


def weather(*between, last="Answer: sunny", city="Rome"):
    return [user(f"Weather in {city}?"), *between, says(last)]


GOOD = calls(("get_weather", {"city": "Rome"})), result({"sky": "sunny", "wind": "3"})


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("Answer: sunny", (0, "sky")),
        ("Well.\nAnswer: 3\n", (0, "wind")),
        ("Answer: done", DONE),
        ("It is sunny!", (0, "sky")),
        ("Sunny.", (0, "sky")),
        ("It is sunny, with wind 3.", DONE),  # two of them
        ("Sunniest day: 3.5, 13 or 30", DONE),  # none of them
        ("Sun at 0.3", DONE),
        ("Nice in Rome.", DONE),
        ("", DONE),
        (None, DONE),
    ],
)
def test_answers(said, answer):
    assert mapped(weather(*GOOD, last=said)).answer == answer


def test_an_answer_is_not_what_the_user_said():
    told = result({"city": "Rome", "sky": "sunny"})
    assert mapped(weather(GOOD[0], told, last="sunny in Rome")).answer == (0, "sky")


@pytest.mark.parametrize(
    "content",
    [
        {"error": "no such city"},
        {"success": False, "detail": "x"},
        {"ok": False},
        {"status": "error"},
        {"isError": True, "text": "x"},
        "Error: no such city",
        "Traceback (most recent call last):",
    ],
)
def test_errors(content):
    """Made again at once, the call fails as often; else it was no step."""
    failed = calls(("get_weather", {"city": "Rome"})), result(content)
    task = mapped(weather(*failed, *failed, *GOOD))
    assert task.failures == {"get_weather": 2} and len(task.steps) == 1
    assert task.needs()["sandbox.max_turns"] == 4
    other = calls(("get_weather", {"city": "Roma"})), result(content)
    task = mapped(weather(*other, *GOOD))
    assert task.failures == {} and len(task.steps) == 1
    unknown = calls(("no_such_tool", "{oops")), result(content)
    assert mapped(weather(*unknown, *GOOD)) == task
    late = *GOOD, *failed, *GOOD
    assert mapped(weather(*late)).failures == {}
    assert reason(weather(*failed)) == "no call that worked, and no refusal"


@pytest.mark.parametrize(
    "content", [{"error": None, "sky": "x"}, {"errors": []}, "erroneous"]
)
def test_no_errors(content):
    assert mapped(weather(GOOD[0], result(content), last="ok")).failures == {}


def test_an_error_by_its_message():
    failed = calls(("get_weather", {"city": "Rome"})), result("no", is_error=True)
    assert mapped(weather(*failed, *GOOD)).failures == {"get_weather": 1}


def test_refusals():
    assert mapped(weather(last="I cannot.\nRefuse")).answer == REFUSED
    failed = calls(("get_weather", {"city": "Rome"})), result("error")
    task = mapped(weather(*failed, *failed, last="Refuse"))
    assert task.failures == {"get_weather": types.FOREVER}
    assert task.steps[0].fields == {} and len(task.steps) == 1
    assert task.needs()["sandbox.max_turns"] == 2
    assert reason(weather(*GOOD, last="Refuse")) == "a refusal after calls that worked"
    after = (*GOOD, *failed)
    assert reason(weather(*after, last="Refuse")) == "a refusal after calls that worked"


def test_all_that_the_user_says_is_the_request():
    messages = [user("Some weather."), says("Where?"), user("In Rome"), *GOOD]
    task = mapped([*messages, says("sunny"), user("Thanks!")])
    assert task.phrase == ("Some weather.\nIn ", 0, "\nThanks!")
    assert task.answer == (0, "sky")


def test_what_was_asked_for():
    messages = [user("Weather of it?"), says("Which?\nAsk"), user("Rome"), *GOOD]
    task = mapped(messages)
    assert task.phrase == ("Weather of it?",)
    assert (task.constants, task.shown) == (("Rome",), (False,))
    assert task.needs()["sandbox.max_turns"] == 3
    messages[2] = user("whatever")  # no value is told by it
    assert mapped(messages).phrase == ("Weather of it?\nwhatever",)


def test_what_our_users_say_is_no_request():
    ours = [says("hm"), user('{"error":"cannot read this"}'), says("Ask")]
    task = mapped(weather(*ours, user("I said all"), *GOOD))
    assert task == mapped(weather(*GOOD))


def test_the_longest_value_is_the_slot():
    messages = [
        user("From Rome to Rome Nord"),
        calls(("ship", {"parcel": "Rome", "to": "Rome Nord"})),
        result("x"),
    ]
    assert mapped(messages).phrase == ("From ", 0, " to ", 1)


def test_numbers():
    """Of the schema, if all values are small enough for the sandbox."""

    def document(*years, kind="integer"):
        tools = [tool("find", year=kind)]
        made = [(calls(("find", {"year": x})), result({"n": x})) for x in years]
        return mapped([user("x"), *(m for pair in made for m in pair)], tools).documents

    assert document(7, 999)[0].arguments == (("year", True),)
    assert document(7, kind="number")[0].arguments == (("year", True),)
    assert document(7, 1000)[0].arguments == (("year", False),)
    assert document(7, 2.5)[0].arguments == (("year", False),)
    assert document(7, kind="string")[0].arguments == (("year", False),)


def test_codes():
    tools = [
        tool("sign_in", "Sign in"),
        tool("pay", "Pay", amount="integer", code="string"),
        tool("hold", "Hold a seat, needs the code from sign_in", code="string"),
        tool("free", "Free a seat, needs the code from nobody", code="string"),
    ]
    messages = [
        user("Pay 5"),
        calls(("sign_in", "")),
        result({"code": "zuk4", "name": "Kim"}),
        calls(("pay", {"amount": 5, "code": "zuk4"})),
        result({"receipt": 8}),
        says("Answer: 8"),
    ]
    task = mapped(messages, tools)
    sign_in, pay, hold, free = task.documents
    assert task.codes == {"sign_in": "zuk4"}
    assert task.steps[0].fields == {"name": "Kim"}
    assert (pay.arguments, pay.code_from) == ((("amount", True),), "sign_in")
    assert hold[1:] == (("Hold a seat",), (), "sign_in", "")
    assert free.arguments == (("code", False),) and not free.code_from
    assert free.description == ("Free a seat, needs the code from nobody",)
    assert sign_in.code_from == ""
    messages[3]["tool_calls"][0]["function"]["arguments"]["code"] = "other"
    assert "`code` that no result told" in reason(messages, tools)


def test_what_is_documented_but_not_told():
    """A tool that told no code reveals none: the description is only a text."""
    tools = [tool("sign_in"), tool("hold", "Hold, needs the code from sign_in")]
    messages = [user("Hold it"), calls(("sign_in", {})), result({"name": "Kim"})]
    _, hold = mapped(messages, tools).documents
    assert hold.description == ("Hold, needs the code from sign_in",)
    assert hold.code_from == ""


def test_a_value_is_from_the_latest_result():
    messages = [user("Ship it to me"), GOOD[0], result({"sky": "p9"})]
    messages += [calls(("find_order", {"order_id": "x", "year": 1})), result(FOUND)]
    messages += [calls(("ship", {"parcel": "p9", "to": "me"})), result("x")]
    assert mapped(messages).steps[2].sources == {"parcel": (1, "parcel"), "to": 0}


def test_long_texts_are_cut_into_pieces():
    said = "word " * 200 + "Rome"
    task = mapped([user(said), *GOOD])
    assert "".join(x for x in task.phrase[:-1]) == "word " * 200
    assert task.phrase[-1] == 0
    assert max(map(len, task.phrase[:-1])) <= log_mapping.PIECE
    described = tool("get_weather", "é" * 300, city="string")
    (document,) = mapped(weather(*GOOD), [described]).documents
    assert "".join(document.description) == "é" * 300


def test_results_are_shown_as_json():
    nested = {"sky": {"now": "sunny"}, "wind": 3}
    task = mapped(weather(GOOD[0], result(nested), last="done"))
    assert task.steps[0].fields == {"result": json.dumps(json.dumps(nested))[1:-1]}


@pytest.mark.parametrize(
    "content", ["0", "false", "null", "[]", "1.10", "12345678901234567890.5"]
)
def test_what_is_no_object_is_a_result_as_it_stands(content):
    task = mapped(weather(GOOD[0], result(content), last=f"Answer: {content}"))
    assert task.steps[0].fields == {"result": content}
    assert task.answer == (0, "result")


@pytest.mark.parametrize("content", ["", '""', "{}", None, []])
def test_nothing_is_no_result(content):
    task = mapped(weather(GOOD[0], {**result("x"), "content": content}, last="ok"))
    assert task.steps[0].fields == {}


def test_ids_that_are_numbers():
    messages = [
        user("Weather in Rome and Bern?"),
        calls(("get_weather", {"city": "Rome"}), ("get_weather", {"city": "Bern"})),
        result("rainy", 2),
        result("sunny", 1),
    ]
    for number, call in enumerate(messages[1]["tool_calls"], 1):
        call["id"] = number
    assert mapped(messages).steps[0].fields == {"result": "sunny"}


TWICE = *GOOD, GOOD[0], result({"sky": "dark", "wind": "3"})
LONG = "x" * 65
UNMAPPED = {
    "no messages": ({"tools": TOOLS}, "no `messages`"),
    "no object": (1, "no `messages`"),
    "a list": ([{}], "a list; write each conversation on a line of its own"),
    "ShareGPT": (
        {"conversations": []},
        "no `messages`, but ShareGPT's `conversations`; convert them",
    ),
    "it failed": ({"messages": chain(), "success": False}, "`success` is false"),
    "no object in it": ({"messages": ["hi"]}, "a message that is no object"),
    "no tools": ({"messages": chain()}, "a call of a tool that is not documented"),
    "no user": ({"messages": [*GOOD], "tools": TOOLS}, "no user message"),
    "tools": ({"messages": chain(), "tools": "[{"}, "`tools` is no JSON"),
    "a tool": ({"messages": chain(), "tools": [{}]}, "a tool without a name"),
}


@pytest.mark.parametrize(("row", "why"), UNMAPPED.values(), ids=UNMAPPED)
def test_lines_that_are_not_mapped(row, why):
    with pytest.raises(log_file.Unmapped, match=why):
        log_mapping.recorded(log_file.conversation_of(row))


BAD = {
    "a call without a result": [GOOD[0]],
    "a result of no call": [GOOD[1]],
    "a message of 'robot'": [{"role": "robot", "content": "x"}],
    "a content that is not text": [{"role": "user", "content": [{"type": "image"}]}],
    "`tool_calls` of another form": [{"role": "assistant", "tool_calls": "x"}],
    "`function_call`, the old form of `tool_calls`": [
        {"role": "assistant", "function_call": {"name": "x"}}
    ],
    "a nested argument": [calls(("get_weather", {"city": ["Rome"]})), result("x")],
    "arguments that are no object": [calls(("get_weather", "[1]")), result("x")],
    "an argument that is not documented": [
        calls(("get_weather", {"town": "Rome"})), result("x"),
    ],
    "an argument of more than 64 bytes": [
        calls(("get_weather", {"city": LONG})), result("x"),
    ],
    "an argument with a quote, backslash or line break": [
        calls(("get_weather", {"city": 'R"'})), result("x"),
    ],
    "a result of more than 256 bytes": [GOOD[0], result("x" * 257)],
    "half a character": [GOOD[0], result("\ud83d")],
    "a call that was made twice, with two results": TWICE,
    "a tool that was called with and without an argument": [
        *GOOD, calls(("get_weather", {"city": "Bern", "unit": "C"})), result("x"),
    ],
    "an answer that is in no result": [*GOOD, says("Answer: snow")],
    "no call that worked, and no refusal": [],
}  # fmt: skip


@pytest.mark.parametrize(("why", "messages"), BAD.items(), ids=BAD)
def test_conversations_that_are_not_mapped(why, messages):
    assert reason([user("Weather in Rome?"), *messages]) == why


def test_the_same_call_again_is_no_other_step():
    assert mapped(weather(*GOOD, *GOOD)) == mapped(weather(*GOOD))


class TestLines:
    def read(self, tmp_path, data):
        file = tmp_path / "x.jsonl"
        file.write_bytes(data)
        return list(log_file.lines(file))

    def test_fine(self, tmp_path):
        data = b'\xef\xbb\xbf{"a": 1}\n\n  \n{"b": "\xc3\xa9"}'
        assert self.read(tmp_path, data) == [(1, {"a": 1}), (4, {"b": "é"})]

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b'{"a": 1}\n{"b": \n{"c": 2}\n', "line 2, column 7: no JSON"),
            (b'{"a": 1}\n{"messages": [{"role": "us', "line 2, column 24: no JSON"),
            (b'{"a": 1}\n{"b": "\xff"}\n', "line 2: byte 7 is not UTF-8"),
            (
                b"{\n",
                "line 1, column 2: no JSON, Expecting property name enclosed in double "
                "quotes; each line holds one whole conversation",
            ),
            (b"\x1f\x8b\x08\x00", "compressed by gzip; unpack it first"),
            (b"[" * 100_000, "line 1: "),
        ],
    )
    def test_faults(self, tmp_path, data, problem):
        with pytest.raises(DomainError) as error:
            self.read(tmp_path, data)
        assert str(error.value).startswith(f"{tmp_path / 'x.jsonl'}: {problem}")
        assert "\n" not in str(error.value)

    def test_no_file(self, tmp_path):
        with pytest.raises(DomainError, match="none.jsonl: No such file"):
            list(log_file.lines(tmp_path / "none.jsonl"))
