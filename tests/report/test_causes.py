"""Why episodes failed, for episodes that were written by hand."""

import pytest

from openagent_jax.report import causes


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


FIND, BOOK = call("find", city="Rome"), call("book", place="Inn", hour=9)
BOOK_LATE = call("book", place="Inn", hour=23)
PAY, ANSWER, ASK = call("pay", code="x7"), {"text": "Answer: 4"}, {"text": "Ask"}
PLAN = [FIND, BOOK, PAY, ANSWER]
TOOLS = [{"function": {"name": x}} for x in ("find", "book", "pay", "other")]
TIRED, WRONG = "out_of_turns", "wrong_answer"
JUNK = {"text": '{"name": "fi'}


def line(actions, failure=WRONG, plan=PLAN, **more):
    made = {"success": False, "solvable": True, "failure": failure, "plan": plan}
    return made | {"actions": actions, "tools": TOOLS} | more


@pytest.mark.parametrize(
    ("actions", "failure", "found"),
    [
        # What is done instead of the first step that is never done.
        ([call("other"), ANSWER], WRONG, ("tool", 0, 0)),
        ([call("none_such"), ANSWER], WRONG, ("tool", 0, 0)),
        ([call("find", city="Bonn"), ANSWER], WRONG, ("arguments", 0, 0)),
        ([FIND, call("book", place="Inn"), ANSWER], WRONG, ("names", 1, 1)),
        ([call("find", town="Rome"), ANSWER], WRONG, ("names", 0, 0)),
        ([FIND, PAY, ANSWER], WRONG, ("order", 1, 1)),
        ([FIND, FIND], TIRED, ("feedback", 1, 1)),
        ([FIND, FIND, FIND], TIRED, ("feedback", 2, 1)),
        ([FIND, ANSWER], WRONG, ("gave_up", 1, 1)),
        ([JUNK, JUNK], TIRED, ("format", 0, 0)),
        ([FIND, BOOK], "out_of_context", ("context", None, 2)),
        # Detours that end well are not what it fails by, and neither are questions.
        ([call("other"), JUNK, FIND, BOOK, ANSWER], WRONG, ("gave_up", 4, 2)),
        ([ASK, call("other"), ANSWER], WRONG, ("tool", 1, 0)),
        # Every step was done.
        ([FIND, BOOK, PAY, {"text": "Answer: 5"}], WRONG, ("answer", 3, None)),
        ([FIND, BOOK, PAY, JUNK, JUNK], TIRED, ("format", 3, None)),
        ([FIND, BOOK, PAY, call("other")], TIRED, ("turns", 3, None)),
        # 9 and "9" are one value.
        ([FIND, call("book", place="Inn", hour="9"), ANSWER], WRONG, ("gave_up", 2, 2)),
    ],
)
def test_where_it_leaves_the_plan(actions, failure, found):
    assert causes.why(line(actions, failure)) == found


@pytest.mark.parametrize(
    ("actions", "failure", "found"),
    [
        # A call that nobody needs, or the same one again, before the real mistake.
        ([FIND, call("other"), BOOK_LATE, ANSWER], WRONG, ("arguments", 2, 1)),
        ([FIND, FIND, BOOK_LATE, ANSWER], WRONG, ("arguments", 2, 1)),
        ([FIND, JUNK, BOOK_LATE, ANSWER], WRONG, ("arguments", 2, 1)),
        ([FIND, call("find", city="Bonn"), BOOK_LATE], TIRED, ("arguments", 2, 1)),
        # Another order of steps, before the real mistake.
        ([FIND, PAY, BOOK_LATE, ANSWER], WRONG, ("arguments", 2, 1)),
        ([FIND, PAY, call("other"), ANSWER], WRONG, ("tool", 2, 1)),
        ([FIND, PAY, PAY], TIRED, ("order", 1, 1)),
    ],
)
def test_detours_and_other_orders_are_not_the_cause(actions, failure, found):
    assert causes.why(line(actions, failure, num_errors=1)) == found


def test_a_step_that_is_left_out_without_an_error():
    """Nothing says that the order was wrong, so it answered too soon."""
    skips = line([FIND, PAY, ANSWER], num_errors=0)
    assert causes.why(skips) == ("gave_up", 2, 1)
    assert causes.why(skips | {"num_errors": 1}) == ("order", 1, 1)


def test_a_tool_that_takes_over():
    """The oracle first tries a tool that is out of service, then its replacement."""
    texts = {"book": "Book.", "reserve": "Book.", "find": "Find.", "pay": "Pay."}
    tools = [{"function": {"name": k, "description": x}} for k, x in texts.items()]
    instead = call("reserve", **BOOK["arguments"])
    plan = [FIND, BOOK, instead, PAY, ANSWER]

    def of(*actions, failure=WRONG, tools=tools):
        return causes.why(line(actions, failure, plan, tools=tools, num_errors=1))

    # It took the one that works at once.
    assert of(FIND, instead, call("pay", code="?"), ANSWER) == ("arguments", 2, 3)
    assert of(FIND, instead, PAY, {"text": "Answer: 5"}) == ("answer", 3, None)
    # It went on, or tried the same tool again in another way.
    assert of(FIND, BOOK, PAY, ANSWER) == ("feedback", 2, 2)
    assert of(FIND, BOOK, BOOK_LATE, failure=TIRED) == ("feedback", 2, 2)
    # Tools with other texts are other steps, although they take the same arguments.
    texts["reserve"] = "Reserve."
    tools = [{"function": {"name": k, "description": x}} for k, x in texts.items()]
    assert of(FIND, instead, PAY, ANSWER, tools=tools).step == 1


def test_errors_that_call_for_something():
    again = [FIND, FIND, BOOK, ANSWER]  # the first call fails, so the oracle repeats it
    assert causes.why(line([FIND, BOOK, ANSWER], plan=again)).cause == "feedback"
    moved = [FIND, call("find_now", city="Rome"), ANSWER]  # only an error names it
    assert causes.why(line([FIND, call("other")], TIRED, moved)).cause == "feedback"
    # Every call was made, but before what it needs.
    early = line([PAY, FIND, BOOK, ANSWER], num_errors=1)
    assert causes.why(early).cause == "order"
    assert causes.why(early | {"num_errors": 0}).cause == "answer"


def test_questions_and_refusals():
    asks = [ASK, *PLAN]
    assert causes.why(line([call("find", city="?")], plan=asks)).cause == "not_asked"
    early = [FIND, call("book", place="?", hour=9), ANSWER]  # FIND needs no answer
    assert causes.why(line(early, plan=asks)) == ("not_asked", 1, 0)
    refused = line([FIND, {"text": "Refuse"}], "false_refusal")
    assert causes.why(refused) == ("refused", 1, 1)  # instead of booking
    refused = line([*PLAN[:3], {"text": "Refuse"}], "false_refusal")
    assert causes.why(refused) == ("refused", 3, None)
    # What it did where the oracle refuses: at once, or after what it was told.
    refuse = {"text": "Refuse"}
    for failure in ("missed_refusal", TIRED):
        for plan, turn in (([refuse], 0), ([FIND, refuse], 1), ([BOOK, refuse], 0)):
            hopeless = line([FIND, PAY, ANSWER], failure, plan, solvable=False)
            assert causes.why(hopeless) == ("not_refused", turn, None)
        hopeless = line([FIND], failure, [FIND, refuse], solvable=False)
        assert causes.why(hopeless).turn == 0


def test_the_environment_says_what_it_could_not_read():
    """A call of no tool is a text here, which the environment could read."""
    text = {"text": '{"name": "none"}'}
    made = line([text], TIRED, rewards={"format": [0.0]})
    assert causes.why(made).cause == "tool"
    assert causes.why(made | {"rewards": {"format": [1.0]}}).cause == "format"


def test_lines_of_other_versions_and_of_no_plan():
    assert causes.why({"success": True, "failure": ""}) == ("", None, None)
    assert causes.why({"failure": "unanswered"}).cause == "unanswered"
    for failure, cause in ((WRONG, "answer"), (TIRED, "turns")):
        for bare in ({}, {"plan": None}, {"plan": [], "actions": ["?", 3, None]}):
            assert causes.why({"failure": failure} | bare).cause == cause


def test_every_cause_has_a_meaning():
    assert [*causes.MEANINGS] == [*causes.CAUSES]


ODD = (None, 3, "x", [], [None], ["a"], [{}], [{"name": ["x"]}], [{"function": 3}], {})
KEYS = ("plan", "actions", "results", "tools", "rewards", "failure", "num_errors")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("odd", ODD)
def test_fields_of_other_types_are_unknown(key, odd):
    for actions in ([FIND, call("other")], [FIND, JUNK, {"text": "Refuse"}]):
        for more in ({}, {"solvable": False}, {"rewards": {"format": odd}}):
            made = line(actions, TIRED, **more) | {key: odd}
            assert causes.why(made).cause in ("", *causes.CAUSES)
