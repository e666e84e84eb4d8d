"""Single cases: the details of calls, and the last line of a reply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.text import reply_scan, scalars
from tests import helpers
from tests.environments.tools.parsing import (
    parsed,
    reference,
    sampled,
    segments,
)

# Replies in a task of `table_booking` in poi; `N` stands for the tool, `P` for a place.
# Expected: place and hour (-1: missing or not accepted), "unknown" for an unknown tool,
# or None for MALFORMED.
CASES = {
    '{"name":"N","arguments":{"place":"P","hour":"17"}}': (0, 17),
    '{"arguments":{"hour":17,"place":"P"},"name":"N"}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":"017"}}': (0, -1),
    '{"name":"N","arguments":{"place":"P","hour":017}}': None,
    '{"name":"N","arguments":{"place":"P","hour":-1}}': (0, -1),
    '{"name":"N","arguments":{"place":"P","hour":1e1}}': (0, 10),
    '{"name":"N","arguments":{"place":"P","hour":17.0}}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":"1.70E1"}}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":17.5}}': (0, -1),
    '{"name":"N","arguments":{"place":"P","hour":17.}}': None,
    '{"name":"N","arguments":{"place":"P","hour":+17}}': None,
    '{"name":"N","arguments":{"place":"P","hour":NaN}}': None,
    '{"name":"N","arguments":{"place":"P","hour":17e}}': None,
    '{"name":"N","arguments":{"place":"P","hour":12345678901234567890}}': (0, -1),
    '{"name":"N","arguments":{"place":true,"hour":17}}': (-1, 17),
    '{"name":"N","arguments":{"place":truer,"hour":17}}': None,
    '{"name":"N","arguments":{"place":17,"hour":17}}': (-1, 17),
    '{"name":"N","arguments":{"place":"P","hour":1 7}}': None,
    '{"name":"N","arguments":{"place":"P","hour":"999"}}': (0, -1),
    '{"name":"N","arguments":{"place":" P","hour":"17"}}': (-1, 17),
    '{"name":"N","arguments":{"place":"17","hour":"17"}}': (-1, 17),
    '{"name":"N","arguments":{"place":"P","place":"P","hour":"17"}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P","hour":"17","x":"y"}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P"}}': (0, -1),
    '{"name":"N","arguments":{}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P",}}': None,
    '{"name":"N","arguments":{"place":"P" "hour":"17"}}': None,
    '{"name":"N","arguments":{"place":"P","hour":"17"}': None,
    '{"name":"N","arguments":{"place":"P","hour":"17"}}}': None,
    '{"name":"N","arguments":{"place":"P","hour":["17"]}}': None,
    '{"name":"N","arguments":{"place":"P","hour":null}}': (0, -1),
    '{"name":"N","arguments":"place"}': None,
    '{"name":"N"}': None,
    '{"arguments":{},"name":"N"}': (-1, -1),
    '{"id":"N","arguments":{}}': None,
    '{"id":"x","name":"N","arguments":{}}': None,
    '{"name":"N","arguments":{},"name":"N"}': None,
    '{"name":7,"arguments":{}}': None,
    '{"name":{},"arguments":{}}': None,
    '{"arguments":{}}': None,
    '{"name":"N","name":"N"}': None,
    '{"name":"N","parameters":{}}': None,
    '{"name":"N","arguments":{},"id":"1"}': None,
    "{'name':'N','arguments':{}}": None,
    '{"name":"N\\"","arguments":{}}': "unknown",
    '{"name":"n","arguments":{}}': "unknown",
    '{"\\u006eame":"N","arguments":{"place":"P","\\u0068our":"1\\u0037"}}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":"17\\u0000"}}': (0, -1),
    '{"name":"N","arguments":{"place":"P\\ud83d","hour":"17"}}': (-1, 17),
    '{"name":"N\\ud83d\\ude00","arguments":{}}': "unknown",
    '{"name":"N😀","arguments":{}}': "unknown",
    '{"name":"N\\x","arguments":{}}': None,
    '{"name":"N\\u12","arguments":{}}': None,
    '{"name":"N\\u12"}","arguments":{}}': None,
    '{"name":"N\t","arguments":{}}': None,
    '{"name":\\u0022N\\u0022,"arguments":{}}': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call>': None,
    '```{"name":"N","arguments":{}}```': None,
    "": None,
    "refuse": None,
    "Refuse now": None,
}  # fmt: skip


MARKED = {
    '<tool_call>{"name":"N","arguments":{"place":"P","hour":17}}</tool_call>': (0, 17),
    ' <tool_call>\n{"name":"N","arguments":{}}\n</tool_call>\n': (-1, -1),
    'Answer: 17 <tool_call>{"name":"N","arguments":{}}</tool_call>': (-1, -1),
    '{"name":"N","arguments":{}}': None,
    '<tool_call>{"name":"N","arguments":{}}': None,
    '{"name":"N","arguments":{}}</tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call>.': None,
    '<tool_call><tool_call>{"name":"N","arguments":{}}</tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call></tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call><tool_call>{}</tool_call>': None,
    "<tool_call>Refuse</tool_call>": None,
    "Answer: 17 <tool_call>": None,
    "<tool_call></tool_call>": None,
    "<tool_call>": None,
}


@pytest.mark.parametrize(("name", "cases"), [("poi", CASES), ("poi hermes", MARKED)])
def test_cases(name, cases):
    goal = helpers.goal_kind("poi", "table_booking")
    tasks = reference(name).tasks
    i = next(i for i, task in enumerate(tasks) if task.goal.kind == goal)
    n = helpers.tool_rows("poi")["count_seats"]
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[i], x.shape), sampled(name))
    texts, tools = helpers.texts("poi"), tasks[i].tools
    place, zero = tools.arg_low[n, :2]
    lines = [
        text.replace("N", texts[tools.name[n]]).replace("P", texts[place])
        for text in cases
    ]
    lines = [segments().single(line.encode()) for line in lines]
    actions = parsed(name, lines, same)
    for (text, want), got in zip(cases.items(), actions, strict=True):
        if want is None:
            assert got.kind == reply_scan.MALFORMED, text
        elif want == "unknown":
            assert (got.kind, got.call.tool) == (reply_scan.CALL, -1), text
        else:
            args = [
                place if want[0] == 0 else -1,
                zero + want[1] if want[1] >= 0 else -1,
            ]
            assert (got.kind, got.call.tool) == (reply_scan.CALL, n), text
            assert np.maximum(got.call.args[:2], -1).tolist() == args, text


LINES = {
    "Answer: 17": reply_scan.ANSWER,
    "It opens at five.\n\n  Answer: 17 \n": reply_scan.ANSWER,
    "<think>\nRefuse\n</think>\rAnswer: 17": reply_scan.ANSWER,
    "No tool does that.\nRefuse": reply_scan.REFUSE,
    "Which one?\r\nAsk": reply_scan.ASK,
    "Answer:\n": reply_scan.ANSWER,  # no value
    "Answer: 1.70e1": reply_scan.ANSWER,
    "Answer: 17\nRefuse": reply_scan.REFUSE,
    "Answer: 17\n.": reply_scan.MALFORMED,
    "It is Answer: 17": reply_scan.MALFORMED,
    "Refuse\nI do": reply_scan.MALFORMED,
    "Refuse\nto Ask": reply_scan.MALFORMED,
    "\n \n": reply_scan.MALFORMED,
}


@pytest.mark.parametrize("name", ["poi", "poi hermes"])
def test_the_last_line_counts(name):
    lines = [segments().single(line.encode()) for line in LINES]
    for line, got in zip(LINES, parsed(name, lines, sampled(name)), strict=True):
        assert got.kind == LINES[line], line
        right = got.kind == reply_scan.ANSWER and ("17" in line or "1.7" in line)
        assert got.value == (scalars.code(17) if right else -1)
