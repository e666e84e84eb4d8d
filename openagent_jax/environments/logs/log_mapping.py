"""Map a logged conversation to a task.

The world of the task is what the log recorded. The rules are:

* A step of the goal is a call that succeeded, in the order of the log. Repeating a call
  is no new step. If it returns something else the second time, no world can answer
  both, so the conversation is skipped.
* A result that is a JSON object of scalars has these fields; any other result is one
  field. A result reports an error if it has `error`, `isError`, `"success": false`,
  `"ok": false` or `"status": "error"`, or if it begins with error, exception or
  traceback. Then the call is no step. If it is repeated at once and succeeds, and the
  tool has not succeeded before, the tool fails as many times in the task too.
* The request is everything that the user says, as one text. If the agent asks by `Ask`,
  the values of the reply are left out of the request, and given when the agent asks.
  System messages are left out, and so is the agent's text beside its calls.
* An argument takes its value from the request if the request contains it, else from the
  reply to `Ask`, else from the latest earlier result that has it. Otherwise the value
  is a constant that the request does not contain.
* An argument called `code` can only come from a result: the tool whose result has a
  field `code` of that value must have been called.
* A description is one line without quotes and backslashes. If it ends as our own
  descriptions do when a tool needs another tool, the task has that precondition.
* An argument is documented if the calls of the conversation have it, or, for a tool
  that is not called, if it is required. It is a number if its schema says integer or
  number and all its values are whole numbers from 0 to 999; otherwise it is a text.
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

from openagent_jax.domains.domain_spec import DONE
from openagent_jax.environments.logs import json_kinds, log_language
from openagent_jax.environments.logs.log_conversation import (
    CannotMap,
    Conversation,
    LoggedCall,
    LoggedTool,
)
from openagent_jax.environments.logs.logged_task import (
    UNSOLVABLE,
    Document,
    LoggedTask,
    Source,
    Step,
    checked_name,
    escaped,
    is_environment_number,
    needs_escapes,
    one_line,
    pieces,
)
from openagent_jax.environments.tools import types
from openagent_jax.text import chat, style
from openagent_jax.text import messages as conversation
from openagent_jax.text.lexicon import MAX_TEXT

_NUMBER_TYPES = "integer", "number"
# A request may contain these words, and the short ones, without naming a field.
_NO_FIELDS = {style.shared()["result"], *"from with for and the not you".split()}
_SHORTEST_FIELD = 3  # letters
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
    (('Weather in ', 0, '?'), ('Rome',), (0, 'sky'))

    Raises:
      CannotMap: the conversation cannot become a task.
    """
    try:
        return _map(parsed)
    except UnicodeEncodeError:
        raise CannotMap("an unpaired surrogate") from None


def _map(parsed: Conversation) -> LoggedTask:
    tools = {tool.name: tool for tool in parsed.tools}
    if len(tools) < len(parsed.tools):
        raise CannotMap("two tools with the same name")
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
        if call.tool in code_tools and style.CODE in fields:
            codes[call.tool] = checked_name(fields.pop(style.CODE))
        fields = {checked_name(key): escaped(text) for key, text in fields.items()}
        # Calls of the same message cannot use each other's results.
        earlier = steps[: sum(x.turn < call.turn for x in calls)]
        sources = {key: constants.source(text, earlier) for key, text in values.items()}
        steps.append(Step(call.tool, sources, values, fields))
    return LoggedTask(
        documents,
        constants.phrase,
        tuple(constants.texts),
        tuple(constants.shown),
        tuple(steps),
        _answer(parsed, steps, constants),
        codes,
        failures,
        {x.name: _kinds(x, tools[x.name], calls) for x in documents},
        _literals(calls),
    )


def _kinds(
    document: Document, tool: LoggedTool, calls: Sequence[LoggedCall]
) -> tuple[str, ...]:
    """Return the JSON types of the arguments that fit all their values in the log."""
    used = [call.arguments for call in calls if call.tool == tool.name]

    def kind(name: str, is_number: bool) -> str:
        found = json_kinds.declared(tool.types[name])
        fits = all(json_kinds.fits(x[name], found) for x in used)
        return found if fits else "integer" if is_number else "string"

    return tuple(kind(*argument) for argument in document.arguments)


def _literals(calls: Sequence[LoggedCall]) -> frozenset[str]:
    """Return the fields that are numbers, booleans or null in all results."""
    strings = {key for x in calls for key, _ in x.fields if key not in x.literals}
    return frozenset(key for x in calls for key in x.literals) - strings


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
    if _refuses(parsed):
        last = failed[-1] if failed else None
        if last and last.tool not in succeeded:
            steps.append(last._replace(fields=()))
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
        raise CannotMap("a call of an undocumented tool")
    if call.problem:
        raise CannotMap(call.problem)
    for key, text in call.arguments.items():
        if key not in tools[call.tool].types:
            raise CannotMap("an undocumented argument")
        if len(text.encode()) > MAX_TEXT:
            raise CannotMap(f"an argument longer than {MAX_TEXT} bytes")
        if needs_escapes(text):
            raise CannotMap("an argument with a quote, backslash or line break")


def _codes(calls: Sequence[LoggedCall]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the code that a tool reveals, and the tool whose code a tool needs."""
    codes: dict[str, str] = {}
    code_from: dict[str, str] = {}
    for call in calls:
        if (code := call.arguments.get(style.CODE)) is None:
            continue
        earlier = (x for x in calls if x.turn < call.turn)
        givers = [x.tool for x in earlier if dict(x.fields).get(style.CODE) == code]
        if not givers:
            problem = "whose value no earlier result has"
            raise CannotMap(f"an argument called `{style.CODE}` {problem}")
        if code_from.setdefault(call.tool, givers[-1]) != givers[-1]:
            raise CannotMap(f"a tool that gets its `{style.CODE}` from two tools")
        codes[givers[-1]] = code
    for call in calls:
        if call.tool in codes and dict(call.fields).get(style.CODE) != codes[call.tool]:
            raise CannotMap(f"a tool that returns two values of `{style.CODE}`")
    return codes, code_from


def _document(
    tool: LoggedTool,
    tools: Mapping[str, LoggedTool],
    calls: Sequence[LoggedCall],
    code_from: Mapping[str, str],
) -> Document:
    used = [_values(x) for x in calls if x.tool == tool.name]
    if len({frozenset(x) for x in used}) > 1:
        raise CannotMap("a tool called with and without an argument")
    text = one_line(tool.description)
    matched = _DESCRIPTION.fullmatch(text)
    bare, giver, after = matched.groups() if matched else (text, None, None)
    # A tool that was called can only need tools that were called before it.
    order = [x.tool for x in calls]
    possible = {*order[: order.index(tool.name)]} if used else {*tools}
    revealed = {dict(x.fields).get(style.CODE) for x in calls if x.tool == giver}
    giver, after = code_from.get(tool.name, giver or ""), after or ""
    if {giver, after} <= possible | {""} and None not in revealed and len(revealed) < 2:
        text = bare
    else:  # the log does not confirm what the description says
        giver, after = code_from.get(tool.name, ""), ""
    names = [key for key in tool.types if key in (used[0] if used else tool.required)]
    if giver:
        names = [key for key in names if key != style.CODE]
    is_number = [
        tool.types[key] in _NUMBER_TYPES
        and all(is_environment_number(x[key]) for x in used)
        for key in names
    ]
    arguments = tuple(zip(map(checked_name, names), is_number, strict=True))
    return Document(checked_name(tool.name), pieces(text), arguments, giver, after)


class _Constants:
    """The constants of a task, and its request with slots for them.

    Constants are values in the request, values in the reply to `Ask`, and values of
    arguments that come from nowhere else.
    """

    def __init__(self, parsed: Conversation, calls: Iterable[LoggedCall]):
        values = _any_of({text for call in calls for text in _values(call).values()})
        self.texts: list[str] = []
        self.shown: list[bool] = []
        self.phrase: tuple[str | int, ...] = ()
        in_request = values.findall(parsed.request)
        hidden = {*values.findall(parsed.reply)} - {*in_request}
        request = parsed.request
        if not hidden:  # the reply has no value to hold back, so it joins the request
            request = f"{parsed.request}\n{parsed.reply}".strip()
        for i, part in enumerate(re.split(f"({values.pattern})", request)):
            if i % 2:
                self.phrase += (self._constant(part),)
            elif part:
                self.phrase += pieces(part)
        self.in_request = frozenset(self.texts)
        for text in sorted(hidden, key=parsed.reply.index):
            self._constant(text, shown=False)

    def source(self, text: str, steps: Sequence[Step]) -> Source:
        """Return the source of a value in a call that follows these steps."""
        if text not in self.texts:
            for i in reversed(range(len(steps))):
                for key, value in steps[i].fields.items():
                    if value == text:
                        return i, key
        return self._constant(text)

    def _constant(self, text: str, shown: bool = True) -> int:
        if text not in self.texts:
            self.texts.append(text)
            self.shown.append(shown)
        return self.texts.index(text)


def _answer(
    parsed: Conversation, steps: Sequence[Step], constants: _Constants
) -> tuple[int, str] | str:
    last = conversation.last_line(parsed.ending)
    if _refuses(parsed):
        return DONE if steps else UNSOLVABLE
    possible = {
        text: (i, key)
        for i, step in enumerate(steps)
        for key, text in step.fields.items()
        if "\\" not in text and len(text.encode()) <= MAX_TEXT
    }
    if last.startswith(style.ANSWER):
        value = last.removeprefix(style.ANSWER)
        if value in possible:
            return possible[value]
        if value == DONE:
            return DONE
        raise CannotMap("an answer that is in no result")
    # Letters are compared without case: a sentence may begin with a value.
    lower = {text.lower(): source for text, source in possible.items()}
    mentioned = {*_any_of(lower).findall(parsed.ending.lower())}
    mentioned -= {text.lower() for text in constants.in_request}
    if len(mentioned) != 1:
        return DONE
    found = lower[mentioned.pop()]
    return found if _has_asked(parsed, found[1]) else DONE


def refuses_in_words(parsed: Conversation) -> bool:
    """Tell whether the agent refuses in words of its own, rather than by `Refuse`.

    A text that tells a value of a result, unless the request has it, is an answer.
    """
    last = conversation.last_line(parsed.ending)
    if last == style.REFUSE or last.startswith(style.ANSWER):
        return False
    if not log_language.refuses(parsed.ending):
        return False
    values = {text for x in parsed.calls if not x.failed for _, text in x.fields}
    told = {*_any_of(values).findall(parsed.ending)}
    return not told - {*_any_of(values).findall(parsed.request)}


def _refuses(parsed: Conversation) -> bool:
    last = conversation.last_line(parsed.ending)
    return last == style.REFUSE or refuses_in_words(parsed)


def _has_asked(parsed: Conversation, field: str) -> bool:
    """Tell whether the user seems to have asked for the value of a field."""
    said = f"{parsed.request}\n{parsed.reply}"
    words = re.sub(r"[\W_]+", " ", field).strip()
    named = len(words) >= _SHORTEST_FIELD and words not in _NO_FIELDS
    if named and _any_of([words.lower()]).search(re.sub("[_-]", " ", said).lower()):
        return True
    return log_language.asks(said)


def _values(call: LoggedCall) -> dict[str, str]:
    """Return the arguments of a call without its code."""
    return {key: x for key, x in call.arguments.items() if key != style.CODE}


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """Match any of the texts as whole words, the longest first."""
    ordered = sorted(filter(None, texts), key=lambda text: (-len(text), text))
    alternatives = "|".join(map(re.escape, ordered)) or "(?!)"
    return re.compile(rf"(?<!\w)(?<!\d\.)(?:{alternatives})(?!\w)(?!\.\d)")
