"""Map a logged conversation to a task.

The world of the task is what the log recorded. The rules are:

* A step of the goal is a call that succeeded, in the order of the log. Repeating a call
  is not a new step. If it returns something else the second time, no world can answer
  both, so the conversation is skipped.
* A result that is a JSON object has its leaves as fields, each with a path; any other
  result is under one key. A result reports an error if it has `error`, `isError`,
  `"success": false`, `"ok": false` or `"status": "error"`, or if it begins with error,
  exception or traceback. Then the call is not a step. If it is repeated at once and
  succeeds, and the tool has not succeeded before, the tool fails as many times in the
  task too.
* The request is everything that the user says, as one text. If the agent asks by `Ask`,
  the values of the reply are left out of the request, and given when the agent asks.
  System messages are left out, and so is the agent's text beside its calls.
* An argument takes its value from the request if the request contains it, else from the
  reply to `Ask`, else from the latest earlier result that has it. Otherwise the value
  is a constant that the request does not contain.
* An argument called `code` can only come from a result: the tool whose result has a
  field `code` of that value must have been called.
* If a description ends as our own descriptions do when a tool needs another tool, the
  task has that precondition.
* An argument is documented if the calls of the conversation have it, or, for a tool
  that is not called, if it is required. Objects and arrays are taken apart: each leaf
  is an argument with a path (see `text.nesting`).
* Values keep their JSON types (see `log_values`). Numbers are compared by value. If a
  result has a number that the next call has as a text, or the other way around, both
  are the same value.
* The answer comes from the agent's last text. `Answer: VALUE` is that value; `Refuse`
  alone on the last line is a refusal, and so is a text that refuses in the agent's own
  words (see `log_language`) and tells no value of a result. If any other text contains
  exactly one value of the results that is not in the request, and the user has asked
  for something to be told (see `log_language`) or has named the value's field, that is
  the answer; otherwise it is `done`.
* A refusal without calls means that the task cannot be solved. A refusal after a failed
  call means that its tool fails for good. Any other refusal cannot be told from an
  agent that gave up, so the conversation is skipped.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from openagent_jax.domains import tool_names
from openagent_jax.environments.logs import log_answers, log_values, logged_schemas
from openagent_jax.environments.logs.log_conversation import (
    CannotMap,
    Conversation,
    LoggedCall,
    LoggedTool,
)
from openagent_jax.environments.logs.log_values import Value
from openagent_jax.environments.logs.logged_task import (
    Document,
    Field,
    LoggedTask,
    Source,
    Step,
    checked_name,
    needs_escapes,
    pieces,
)
from openagent_jax.environments.tools import types
from openagent_jax.text import chat, nesting, style
from openagent_jax.text.nesting import Path

_CODE = (style.CODE,)
# A description, and what we write after it if the tool needs another tool.
_CODE_FROM, _CALL_AFTER = (
    f"(?:{prefix}(\\S+?))?" for prefix in (chat.CODE_FROM[0], chat.CALL_AFTER[0])
)
_DESCRIPTION = re.compile(f"(.*?){_CODE_FROM}{_CALL_AFTER}", re.S)


def map_conversation(parsed: Conversation) -> LoggedTask:
    """Return the task that a conversation becomes.

    >>> from openagent_jax.environments.logs import log_conversation
    >>> function = {"name": "get_weather", "arguments": {"city": "Rome"}}
    >>> messages = [
    ...     {"role": "user", "content": "Weather in Rome?"},
    ...     {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]},
    ...     {"role": "tool", "tool_call_id": "1", "content": '{"sky": "clear"}'},
    ...     {"role": "assistant", "content": "It is clear."},
    ... ]
    >>> schema = {"properties": {"city": {"type": "string"}}}
    >>> row = {
    ...     "messages": messages,
    ...     "tools": [{"name": "get_weather", "parameters": schema}],
    ... }
    >>> task = map_conversation(log_conversation.parse(row))
    >>> task.phrase, task.constants, task.answer
    (('Weather in ', 0, '?'), ('Rome',), (0, ('sky',)))

    Raises:
      CannotMap: the conversation cannot become a task.
    """
    try:
        task = _map(_with_valid_names(parsed))
        "".join(task.texts()).encode()
    except UnicodeEncodeError:
        raise CannotMap("an unpaired surrogate") from None
    return task


def renamed(parsed: Conversation) -> str:
    """Return which tools get another name, since APIs of models do not allow theirs."""
    pairs = zip(parsed.tools, _with_valid_names(parsed).tools, strict=True)
    changes = [(old.name, new.name) for old, new in pairs if old.name != new.name]
    return ", ".join(f"{old!r:.60} is {new}" for old, new in changes)


def _with_valid_names(parsed: Conversation) -> Conversation:
    """Return the conversation with the names that `tool_names` gives its tools."""
    names = [tool.name for tool in parsed.tools]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CannotMap("two tools with the same name", twice)
    valid = dict(zip(names, tool_names.valid(names), strict=True))
    tools = tuple(tool._replace(name=valid[tool.name]) for tool in parsed.tools)
    calls = tuple(x._replace(tool=valid.get(x.tool, x.tool)) for x in parsed.calls)
    return replace(parsed, tools=tools, calls=calls)


def _map(parsed: Conversation) -> LoggedTask:
    tools = {tool.name: tool for tool in parsed.tools}
    calls, failures = _step_calls(parsed)
    for call in calls:
        _check(call, tools)
    codes, code_from = _codes(calls)
    documents = tuple(
        _document(tool, tools, calls, code_from) for tool in tools.values()
    )
    code_tools = {document.code_from for document in documents}
    constants = _Constants(parsed, calls)
    steps: list[Step] = []
    for call in calls:
        values, fields = _values(call), dict(call.fields)
        if call.tool in code_tools and _CODE in fields:
            codes[call.tool] = checked_name(log_values.text(fields.pop(_CODE)))
        for path in fields:
            for key in path:
                if isinstance(key, str):
                    checked_name(key, f"a result of {call.tool}")
        # Calls of the same message cannot use each other's results.
        earlier = steps[: sum(x.turn < call.turn for x in calls)]
        sources = {key: constants.source(x, earlier) for key, x in values.items()}
        shown = {
            path: Field(value, not isinstance(value, str))
            for path, value in fields.items()
        }
        steps.append(Step(call.tool, sources, values, shown))
    return LoggedTask(
        documents,
        constants.phrase,
        tuple(constants.values),
        tuple(constants.shown),
        tuple(steps),
        log_answers.answer(parsed, steps, constants.in_request),
        codes,
        failures,
    )


def _step_calls(parsed: Conversation) -> tuple[list[LoggedCall], dict[str, int]]:
    """Return the calls that are steps, and how often each tool fails at first."""
    steps: list[LoggedCall] = []
    failures: dict[str, int] = {}
    succeeded: set[str] = set()
    failed: list[LoggedCall] = []  # the failed calls since the latest success
    for call in parsed.calls:
        if call.failed:
            failed.append(call)
            continue
        same = [x for x in steps if _are_same(x, call)]
        if same and same[0].fields != call.fields:
            raise CannotMap("the same call twice with different results")
        if failed and call.tool not in succeeded:
            if all(_are_same(x, call) for x in failed):
                failures[call.tool] = len(failed)
        if not same:
            steps.append(call)
        succeeded.add(call.tool)
        failed = []
    if log_answers.refuses(parsed):
        last = failed[-1] if failed else None
        if last and last.tool not in succeeded:
            steps.append(last._replace(fields={}))
            failures[last.tool] = types.FOREVER
        elif parsed.calls:
            raise CannotMap("a refusal after calls that succeeded")
    elif not steps:
        raise CannotMap("no successful call and no refusal")
    return steps, failures


def _are_same(one: LoggedCall, other: LoggedCall) -> bool:
    return (one.tool, one.arguments) == (other.tool, other.arguments)


def _check(call: LoggedCall, tools: Mapping[str, LoggedTool]) -> None:
    if call.tool not in tools:
        raise CannotMap("a call of an undocumented tool", call.tool)
    if call.problem:
        raise CannotMap(call.problem, call.tool)
    properties = tools[call.tool].parameters["properties"]
    for path in (*call.arguments, *call.empty):
        if path[0] not in properties:
            where = f"{call.tool}: {nesting.written(path)}"
            raise CannotMap("an undocumented argument", where)
    for path, value in call.arguments.items():
        if needs_escapes(log_values.text(value)):
            where = f"{call.tool}: {nesting.written(path)}"
            raise CannotMap("an argument with a quote, backslash or line break", where)


def _codes(calls: Sequence[LoggedCall]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the code that a tool reveals, and the tool whose code a tool needs."""
    codes: dict[str, str] = {}
    code_from: dict[str, str] = {}
    for call in calls:
        if (code := _code(call.arguments)) is None:
            continue
        earlier = (x for x in calls if x.turn < call.turn)
        givers = [x.tool for x in earlier if _code(x.fields) == code]
        if not givers:
            problem = "whose value no earlier result has"
            raise CannotMap(f"an argument called `{style.CODE}` {problem}", call.tool)
        if code_from.setdefault(call.tool, givers[-1]) != givers[-1]:
            reason = f"a tool that gets its `{style.CODE}` from two tools"
            raise CannotMap(reason, call.tool)
        codes[givers[-1]] = code
    for call in calls:
        if call.tool in codes and _code(call.fields) != codes[call.tool]:
            reason = f"a tool that returns two values of `{style.CODE}`"
            raise CannotMap(reason, call.tool)
    return codes, code_from


def _code(leaves: Mapping[Path, Value]) -> str | None:
    return log_values.text(leaves[_CODE]) if _CODE in leaves else None


def _document(
    tool: LoggedTool,
    tools: Mapping[str, LoggedTool],
    calls: Sequence[LoggedCall],
    code_from: Mapping[str, str],
) -> Document:
    used = [x for x in calls if x.tool == tool.name]
    text = tool.description
    matched = _DESCRIPTION.fullmatch(text)
    bare, giver, after = matched.groups() if matched else (text, None, None)
    # A tool that was called can only need tools that were called before it.
    order = [x.tool for x in calls]
    possible = {*order[: order.index(tool.name)]} if used else {*tools}
    revealed = {_code(x.fields) for x in calls if x.tool == giver}
    giver, after = code_from.get(tool.name, giver or ""), after or ""
    if {giver, after} <= possible | {""} and None not in revealed and len(revealed) < 2:
        text = bare
    else:  # the log does not confirm what the description says
        giver, after = code_from.get(tool.name, ""), ""
    skip = style.CODE if giver else ""
    leaves = logged_schemas.arguments(tool.parameters, used, tool.name, skip)
    paths = [argument.path for argument in leaves]
    found = tool.parameters, paths, bool(used), tool.name, skip
    schema = logged_schemas.documented(*found)
    return Document(checked_name(tool.name), text, leaves, giver, after, schema)


class _Constants:
    """The constants of a task, and its request with slots for them.

    Constants are values in the request, values in the reply to `Ask`, and values of
    arguments that come from nowhere else.
    """

    def __init__(self, parsed: Conversation, calls: Iterable[LoggedCall]):
        written: dict[str, Value] = {}
        for call in calls:
            for value in _values(call).values():
                written.setdefault(log_values.text(value), value)
        pattern = log_answers.any_of(written)
        self.values: list[Value] = []
        self.shown: list[bool] = []
        self.phrase: tuple[str | int, ...] = ()
        self._taken: dict[tuple[int, Path], Value] = {}
        hidden = {*pattern.findall(parsed.reply)} - {*pattern.findall(parsed.request)}
        request = parsed.request
        if not hidden:  # the reply has no value to hold back, so it joins the request
            request = f"{parsed.request}\n{parsed.reply}".strip()
        for i, part in enumerate(re.split(f"({pattern.pattern})", request)):
            if i % 2:
                self.phrase += (self._constant(written[part]),)
            elif part:
                self.phrase += pieces(part)
        self.in_request = frozenset(map(log_values.meaning, self.values))
        for text in sorted(hidden, key=parsed.reply.index):
            self._constant(written[text], shown=False)

    def source(self, value: Value, steps: Sequence[Step]) -> Source:
        """Return the source of a value in a call that follows these steps."""
        text = log_values.text(value)
        alike = [
            shown
            for x, shown in zip(self.values, self.shown, strict=True)
            if log_values.text(x) == text
        ]
        if value not in self.values and not alike:
            for i in reversed(range(len(steps))):
                for path, field in steps[i].fields.items():
                    if log_values.text(field.value) != text:
                        continue
                    # The field gets the type that the argument has.
                    if self._taken.setdefault((i, path), value) == value:
                        steps[i].fields[path] = field._replace(value=value)
                        return i, path
        return self._constant(value, all(alike))

    def _constant(self, value: Value, shown: bool = True) -> int:
        if value not in self.values:
            self.values.append(value)
            self.shown.append(shown)
        return self.values.index(value)


def _values(call: LoggedCall) -> dict[Path, Value]:
    """Return the arguments of a call without its code."""
    return {key: x for key, x in call.arguments.items() if key != _CODE}
