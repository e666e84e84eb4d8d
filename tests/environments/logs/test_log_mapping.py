"""Mapping conversations to tasks, compared with tasks worked out by hand."""

import json
from decimal import Decimal

import pytest

from openagent_jax.domains.domain_spec import DONE
from openagent_jax.environments.logs import logged_task
from openagent_jax.environments.logs.log_values import Bare
from openagent_jax.environments.logs.logged_task import UNSOLVABLE
from openagent_jax.environments.tools import types
from openagent_jax.text import nesting
from tests.environments.logs.examples import (
    FOUND,
    GOOD,
    ORDER,
    PACK,
    TOOLS,
    calls,
    chain,
    mapped,
    nested,
    reason,
    result,
    says,
    tool,
    unsure,
    user,
    weather,
)

TRUE = Bare("true")


def kinds(document):
    """The kinds of values of each argument, by its path."""
    return {nesting.written(x.path): "/".join(x.kinds) for x in document.arguments}


def fields(step):
    return {nesting.written(path): x.value for path, x in step.fields.items()}


def needs(task):
    return {key: num for key, (num, _) in task.needs().items()}


def test_a_chain():
    task = mapped(chain(), source="web")
    assert [(x.name, kinds(x)) for x in task.documents] == [
        ("find_order", {"order_id": "text", "year": "number"}),
        ("get_weather", {"city": "text"}),  # never called: its required arguments
        ("ship", {"parcel": "text", "to": "text"}),
    ]
    assert task.documents[0].description == "Find an order."
    assert task.phrase == (
        "Please ship order ", 0, " of ", 1, " to ", 2, ", I am in ", 2, "-Nord.",
    )  # fmt: skip
    assert task.constants == ("A-17", Decimal(2024), "Oslo") and all(task.shown)
    first, second = task.steps
    assert first.sources == {("order_id",): 0, ("year",): 1}
    assert fields(first) == {
        "parcel": "p9", "state": "packed", "weight": Decimal("2.5"), "gift": TRUE,
    }  # fmt: skip
    assert [x.bare for x in first.fields.values()] == [False, False, True, True]
    assert second.sources == {("parcel",): (0, ("parcel",)), ("to",): 2}
    assert fields(second) == {"label": "L-4", "by": Bare("null")}
    assert task.answer == DONE  # nobody has asked for the label
    assert task.failures == task.codes == {}
    assert needs(task) == {
        "sandbox.num_tools": 3,
        "sandbox.num_args": 2,
        "sandbox.num_fields": 4,
        "sandbox.depth": 1,
        "sandbox.value_bytes": 11,
        "sandbox.num_steps": 2,
        "sandbox.num_constants": 3,
        "sandbox.max_turns": 3,
    }


def test_calls_of_one_message():
    """They cannot use each other's results; results are matched by id."""
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
    assert [x.values.get(("city",)) for x in task.steps] == ["Rome", "Bern", None]
    assert [*map(fields, task.steps[:2])] == [{"result": "sunny"}, {"result": "rainy"}]
    assert task.steps[2].sources == {("parcel",): 2, ("to",): 3}
    assert task.constants == ("Rome", "Bern", "sunny", "me")
    assert task.answer == DONE  # it mentions two values
    for message in messages[2:5]:
        del message["tool_call_id"]  # then results are matched by order
    assert fields(mapped(messages).steps[0]) == {"result": "rainy"}


@pytest.mark.parametrize(
    ("ending", "answer"),
    [
        ("Answer: sunny", (0, ("sky",))),
        ("Well.\nAnswer: 3\n", (0, ("wind",))),
        ("Answer: done", DONE),
        ("It is sunny!", (0, ("sky",))),
        ("Sunny.", (0, ("sky",))),
        ("It is sunny, with wind 3.", DONE),  # two of them
        ("Sunniest day: 3.5, 13 or 30", DONE),  # none of them
        ("Sun at 0.3", DONE),
        ("Nice in Rome.", DONE),
        ("", DONE),
        (None, DONE),
    ],
)
def test_answers(ending, answer):
    assert mapped(weather(*GOOD, last=ending)).answer == answer


def test_a_value_from_the_request_is_not_an_answer():
    echoed = result({"city": "Rome", "sky": "sunny"})
    assert mapped(weather(GOOD[0], echoed, last="sunny in Rome")).answer == (
        0,
        ("sky",),
    )


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
    """If a failed call is repeated at once, the tool fails as often in the task; other
    failed calls are not steps."""
    failed = calls(("get_weather", {"city": "Rome"})), result(content)
    task = mapped(weather(*failed, *failed, *GOOD))
    assert task.failures == {"get_weather": 2} and len(task.steps) == 1
    assert needs(task)["sandbox.max_turns"] == 4
    other = calls(("get_weather", {"city": "Roma"})), result(content)
    task = mapped(weather(*other, *GOOD))
    assert task.failures == {} and len(task.steps) == 1
    unknown = calls(("no_such_tool", "{oops")), result(content)
    assert mapped(weather(*unknown, *GOOD)) == task
    late = *GOOD, *failed, *GOOD
    assert mapped(weather(*late)).failures == {}
    assert reason(weather(*failed)) == "no successful call and no refusal"


def test_refusals():
    assert mapped(weather(last="I cannot.\nRefuse")).answer == UNSOLVABLE
    failed = calls(("get_weather", {"city": "Rome"})), result("error")
    task = mapped(weather(*failed, *failed, last="Refuse"))
    assert task.failures == {"get_weather": types.FOREVER}
    assert task.steps[0].fields == {} and len(task.steps) == 1
    assert needs(task)["sandbox.max_turns"] == 2
    assert (
        reason(weather(*GOOD, last="Refuse")) == "a refusal after calls that succeeded"
    )
    after = (*GOOD, *failed)
    assert (
        reason(weather(*after, last="Refuse")) == "a refusal after calls that succeeded"
    )


def test_all_user_messages_are_the_request():
    messages = [user("What weather?"), says("Where?"), user("In Rome"), *GOOD]
    task = mapped([*messages, says("sunny"), user("Thanks!")])
    assert task.phrase == ("What weather?\nIn ", 0, "\nThanks!")
    assert task.answer == (0, ("sky",))


def test_replies_to_ask():
    messages = [user("Weather of it?"), says("Which?\nAsk"), user("Rome"), *GOOD]
    task = mapped(messages)
    assert task.phrase == ("Weather of it?",)
    assert (task.constants, task.shown) == (("Rome",), (False,))
    assert needs(task)["sandbox.max_turns"] == 3
    messages[2] = user("whatever")  # it contains no value
    assert mapped(messages).phrase == ("Weather of it?\nwhatever",)


def test_uninformative_user_replies_are_not_part_of_the_request():
    ours = [says("hm"), user('{"error":"cannot read this"}'), says("Ask")]
    task = mapped(weather(*ours, user("I said all"), *GOOD))
    assert task == mapped(weather(*GOOD))


def test_the_longest_matching_value_becomes_the_slot():
    messages = [
        user("From Rome to Rome Nord"),
        calls(("ship", {"parcel": "Rome", "to": "Rome Nord"})),
        result("x"),
    ]
    assert mapped(messages).phrase == ("From ", 0, " to ", 1)


def test_kinds_of_arguments():
    """They are those of the recorded values; a schema speaks for uncalled tools."""

    def found(*years, kind="integer"):
        tools = [tool("find", year=kind), tool("other", year=kind)]
        made = [(calls(("find", {"year": x})), result({"n": x})) for x in years]
        task = mapped([user("x"), *(m for pair in made for m in pair)], tools)
        return [kinds(x)["year"] for x in task.documents]

    assert found(7, 9999.25) == ["number", "number"]
    assert found(7, "MMXX", kind="boolean") == ["text/number", "bare"]
    assert found(True, kind="string") == ["bare", "text"]
    assert found(10**9) == ["bare", "number"]  # larger than exact decimals


def test_numbers_are_compared_by_value():
    messages = [
        user("The stock of 2.50 and of 7?"),
        calls(("find", {"year": 2.5})),
        result('{"n": 12.0, "id": 33}'),
        calls(("find", {"year": 2.50})),
        result('{"n": 1.2e1, "id": 33.00}'),  # the same result
        calls(("find", {"year": 33})),
        result({"n": "33"}),
        says("It is 12.00."),
    ]
    tools = [tool("find", year="number")]
    task = mapped(messages, tools)
    assert len(task.steps) == 2
    assert task.constants == (Decimal("2.5"),)  # in other words than in the request
    assert task.steps[1].sources == {("year",): (0, ("id",))}
    assert task.answer == (0, ("n",))
    messages[-1] = says("Answer: 12")
    assert mapped(messages, tools).answer == (0, ("n",))
    messages[-1] = says("It is 1,012.")
    assert mapped(messages, tools).answer == DONE


def test_a_result_of_another_type_is_a_source():
    """A text that the next call has as a number, and the other way around."""
    tools = [tool("find", year="integer"), tool("name", text="string")]
    messages = [
        user("x"),
        calls(("find", {"year": 1})),
        result({"text": "17", "number": 18}),
        calls(("find", {"year": 17})),
        result("a"),
        calls(("name", {"text": "18"})),
        result("b"),
    ]
    task = mapped(messages, tools)
    assert task.steps[1].sources == {("year",): (0, ("text",))}
    assert task.steps[2].sources == {("text",): (0, ("number",))}
    assert task.steps[0].fields == {
        ("text",): (Decimal(17), False),
        ("number",): ("18", True),
    }


NESTED = tool("book", "Book", to="object", tags="array", day="string")
NESTED["function"]["parameters"]["properties"] |= {
    "to": {
        "type": "object",
        "properties": {"city": {}, "zip": {"type": "integer"}, "floor": {}},
        "required": ["city", "zip"],
    },
    "tags": {"type": "array", "items": {"type": "object", "properties": {"id": {}}}},
}


def booked(*given, found="ok"):
    made = [calls(("book", x)) for x in given]
    return [user("x"), *(m for call in made for m in (call, result(found)))]


def test_nested_arguments():
    """Each leaf is an argument with a path."""
    to = {"city": "Rome", "zip": 12}
    both = {"to": to, "tags": [{"id": 1}, {"id": "x"}], "day": "Monday"}
    task = mapped(booked(both, {"to": to, "tags": []}), [NESTED])
    (document,) = task.documents
    assert document.arguments == (
        (("to", "city"), ("text",), False),
        (("to", "zip"), ("number",), False),
        (("tags", 0, "id"), ("number",), True),
        (("tags", 1, "id"), ("text",), True),
        (("day",), ("text",), True),
    )
    properties = json.loads(document.parameters)["properties"]
    assert [*properties] == ["to", "tags", "day"]
    assert [*properties["to"]["properties"]] == ["city", "zip"]  # no floor
    assert task.steps[0].values[("tags", 1, "id")] == "x"
    assert [*task.steps[1].values] == [("to", "city"), ("to", "zip")]
    assert task.needs()["sandbox.num_args"] == (5, "5 arguments of book")
    assert task.needs()["sandbox.depth"] == (3, "tags.1.id of book")
    # An array that is always empty can still be passed.
    (document,) = mapped(booked({"to": to, "tags": []}), [NESTED]).documents
    assert document.arguments[-1] == (("tags", 0), ("text",), True)


def test_nested_arguments_that_have_no_paths():
    reason_ = "an argument that is a container in one call only"
    assert reason(booked({"tags": "x"}, {"tags": ["x"]}), [NESTED]) == reason_
    reason_ = "an argument whose name is a number"
    assert reason(booked({"to": {"7": 1}}), [NESTED]) == reason_
    (document,) = mapped(booked({"to": {"a.b": 1}}), [NESTED]).documents
    assert kinds(document) == {"to.a~.b": "number"}


def test_tools_that_are_not_called_have_what_they_require():
    (document,) = mapped([user("x"), says("Refuse")], [NESTED]).documents
    assert kinds(document) == {
        "to.city": "text", "to.zip": "number", "day": "text",
    }  # fmt: skip


def test_nested_results():
    found = {"page": {"next": None}, "items": [{"id": 1, "of": []}, {"id": 2.5}]}
    (step,) = mapped(weather(GOOD[0], result(found), last="ok")).steps
    assert fields(step) == {
        "page.next": Bare("null"),
        "items.0.id": Decimal(1),
        "items.0.of": Bare("[]"),
        "items.1.id": Decimal("2.5"),
    }
    (step,) = mapped(weather(GOOD[0], result("[[1], {}]"), last="ok")).steps
    assert fields(step) == {"result.0.0": Decimal(1), "result.1": Bare("{}")}


@pytest.mark.parametrize(
    ("written", "inexact"),
    [
        ("67108862", ""),
        ("67108863", "67108863 (get_weather: n)"),
        ("0.0000001", ""),
        ("0.00000010000001", "0.00000010000001 (get_weather: n)"),
        ("1e400", "1e400 (get_weather: n)"),
        ('"67108863"', ""),
    ],
)
def test_numbers_beyond_exact_decimals(written, inexact):
    """They are texts with their spelling."""
    content = '{"n": ' + written + "}"
    answer = "Answer: " + written.strip('"')
    task = mapped(weather(GOOD[0], result(content), last=answer))
    assert task.inexact() == inexact
    if inexact:
        assert fields(task.steps[0]) == {"n": Bare(written)}
        assert task.answer == (0, ("n",))


@pytest.mark.parametrize(
    ("messages", "tools", "unstated"),
    [
        (chain(), TOOLS, ""),
        (unsure(), TOOLS, ""),  # the reply has the value
        (weather(*GOOD, city="Rome"), TOOLS, ""),
        (weather(*GOOD, city="Bern"), TOOLS, "'Rome' (get_weather: city)"),
        (nested(), [PACK], "'true' (pack: box.gift)"),
    ],
)
def test_values_from_nowhere(messages, tools, unstated):
    assert mapped(messages, tools).unstated() == unstated


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
    assert fields(task.steps[0]) == {"name": "Kim"}
    assert (kinds(pay), pay.code_from) == ({"amount": "number"}, "sign_in")
    assert "code" not in pay.parameters
    assert hold[1:5] == ("Hold a seat", (), "sign_in", "")
    assert kinds(free) == {"code": "text"} and not free.code_from
    assert free.description == "Free a seat, needs the code from nobody"
    assert sign_in.code_from == ""
    messages[3]["tool_calls"][0]["function"]["arguments"]["code"] = "other"
    assert "`code` whose value no earlier result has" in reason(messages, tools)


def test_a_documented_code_that_no_result_has():
    """The log does not confirm what the description says, so it stays plain text."""
    tools = [tool("sign_in"), tool("hold", "Hold, needs the code from sign_in")]
    messages = [user("Hold it"), calls(("sign_in", {})), result({"name": "Kim"})]
    _, hold = mapped(messages, tools).documents
    assert hold.description == "Hold, needs the code from sign_in"
    assert hold.code_from == ""


def test_a_value_is_from_the_latest_result():
    messages = [user("Ship it to me"), GOOD[0], result({"sky": "p9"})]
    messages += [calls(("find_order", {"order_id": "x", "year": 1})), result(FOUND)]
    messages += [calls(("ship", {"parcel": "p9", "to": "me"})), result("x")]
    assert mapped(messages).steps[2].sources == {
        ("parcel",): (1, ("parcel",)),
        ("to",): 0,
    }


def test_long_texts_are_cut_into_pieces():
    request = "word " * 200 + "Rome"
    task = mapped([user(request), *GOOD])
    assert "".join(x for x in task.phrase[:-1]) == "word " * 200
    assert task.phrase[-1] == 0
    assert max(map(len, task.phrase[:-1])) <= logged_task.MAX_PIECE


def test_descriptions_are_kept_word_for_word():
    text = 'The "weather"  of\na city. ' + "é" * 300
    (document,) = mapped(
        weather(*GOOD), [tool("get_weather", text, city="string")]
    ).documents
    assert document.description == text


def test_long_values_need_room():
    call, found = calls(("get_weather", {"city": LONG})), result("x" * 5000)
    task = mapped(weather(call, found, last="ok"))
    assert task.needs()["sandbox.value_bytes"] == (65, f"{LONG!r:.40}")


TWICE = *GOOD, GOOD[0], result({"sky": "dark", "wind": "3"})
LONG = "x" * 65


BAD = {
    "a call without a result": [GOOD[0]],
    "a result without a call": [GOOD[1]],
    "a message with the role 'robot'": [{"role": "robot", "content": "x"}],
    "a content that is not text": [{"role": "user", "content": [{"type": "image"}]}],
    "malformed `tool_calls`": [{"role": "assistant", "tool_calls": "x"}],
    "`function_call`, the predecessor of `tool_calls`": [
        {"role": "assistant", "function_call": {"name": "x"}}
    ],
    "arguments with a duplicate key": [
        calls(("get_weather", '{"city": "Rome", "city": "Bern"}')), result("x"),
    ],
    "a result with a duplicate key": [GOOD[0], result('{"sky": 1, "sky": 2}')],
    "arguments that are not an object": [calls(("get_weather", "[1]")), result("x")],
    "an undocumented argument": [
        calls(("get_weather", {"town": "Rome"})), result("x"),
    ],
    "an argument with a quote, backslash or line break": [
        calls(("get_weather", {"city": 'R"'})), result("x"),
    ],
    "an unpaired surrogate": [GOOD[0], result("\ud83d")],
    "the same call twice with different results": TWICE,
    "an answer that is in no result": [*GOOD, says("Answer: snow")],
    "no successful call and no refusal": [],
}  # fmt: skip


@pytest.mark.parametrize(("why", "messages"), BAD.items(), ids=BAD)
def test_conversations_that_are_skipped(why, messages):
    assert reason([user("Weather in Rome?"), *messages]) == why


def test_a_tool_called_with_and_without_an_argument():
    more = *GOOD, calls(("get_weather", {"city": "Bern", "unit": "C"})), result("x")
    found = mapped(weather(*more, last="ok")).documents[1].arguments
    assert [(x.path, x.optional) for x in found] == [
        (("city",), False),
        (("unit",), True),
    ]


def test_escaped_surrogates():
    broken = '{"city": "\\ud83d"}'
    assert reason(weather(calls(("get_weather", broken)), GOOD[1])) == (
        "an unpaired surrogate"
    )


def test_a_repeated_call_adds_no_step():
    assert mapped(weather(*GOOD, *GOOD)) == mapped(weather(*GOOD))


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("Please ship p9 to Oslo.", DONE),
        ("Could you ship p9 to Oslo?", DONE),
        ("Ship p9 to Oslo and tell me the label.", (0, ("label",))),
        ("Ship p9 to Oslo. What does it cost?", (0, ("label",))),
        ("Ship p9 to Oslo, I need its label", (0, ("label",))),  # it names the field
    ],
)
def test_a_value_is_the_answer_if_it_was_asked_for(request_, answer):
    messages = [
        user(request_),
        calls(("ship", {"parcel": "p9", "to": "Oslo"})),
        result({"label": "L-4", "by": "Kim"}),
        says("It is on its way, the label is L-4."),
    ]
    assert mapped(messages).answer == answer
    messages[-1] = says("Answer: L-4")  # an explicit answer is kept
    assert mapped(messages).answer == (0, ("label",))


NO_TOOL = "Sorry, I have no tool for that."


def test_refusals_in_words():
    """They are read as if the agent had written `Refuse`."""
    assert mapped(weather(last=NO_TOOL)) == mapped(weather(last="Refuse"))
    failed = calls(("get_weather", {"city": "Rome"})), result("error")
    task = mapped(weather(*failed, last=NO_TOOL))
    assert task == mapped(weather(*failed, last="Refuse"))
    assert task.failures == {"get_weather": types.FOREVER}
    skipped = "a refusal after calls that succeeded"
    assert reason(weather(*GOOD, last=NO_TOOL)) == skipped
    # A text that tells a value is no refusal.
    assert mapped(weather(*GOOD, last=f"{NO_TOOL} It is sunny.")).answer == (
        0,
        ("sky",),
    )
    assert reason(weather(last="I can't find it.")) == (
        "no successful call and no refusal"
    )


def block(kind, **more):
    return {"type": kind, **more}


def test_messages_of_anthropic():
    """They give the same task as OpenAI's."""
    first = block("tool_use", id="1", name="find_order", input=ORDER)
    second = block(
        "tool_use", id="2", name="ship", input={"parcel": "p9", "to": "Oslo"}
    )
    found = block("tool_result", tool_use_id="1", content=json.dumps(FOUND))
    label = [block("text", text='{"label": "L-4", "by": null}')]
    shipped = block("tool_result", tool_use_id="2", content=label)
    system, request, *_, ending = chain()
    thought = block("thinking", thinking="Hm", signature="x")
    theirs = [
        user([block("text", text=request["content"])]),
        says([thought, block("text", text="Let me look."), first]),
        user([found]),
        says([second]),
        user([shipped]),
        says([block("text", text=ending["content"])]),
    ]
    tools = [
        {
            "name": tool["function"]["name"],
            "description": tool["function"]["description"],
            "input_schema": tool["function"]["parameters"],
        }
        for tool in TOOLS
    ]
    assert mapped(theirs, tools, system=system["content"]) == mapped(chain())
    more = [*theirs[:4], user([shipped, block("text", text="Hurry!")]), theirs[-1]]
    assert mapped(more, tools).phrase[-1] == "-Nord.\nHurry!"
    failed = block("tool_result", tool_use_id="1", content="x", is_error=True)
    again = [theirs[0], theirs[1], user([failed]), *theirs[1:]]
    assert mapped(again, tools).failures == {"find_order": 1}
    picture = user([block("image", source={})])
    assert reason([*theirs[:3], picture], tools) == "a content that is not text"
    odd = says([block("server_tool_use", id="3", name="web", input={}), second])
    assert reason([*theirs[:3], odd], tools) == "a content that is not text"
    for content in ([3], [{"type": []}], [block("tool_use", name=3)], 3):
        assert reason([*theirs[:3], says(content)], tools)
    assert reason([theirs[0], user([found])], tools) == "a result without a call"
    assert reason(theirs[:2], tools) == "a call without a result"
