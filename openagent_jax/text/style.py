"""How an episode is written, as data: texts, and slots between them.

The document of a tool and a call of it are layouts: sequences of pieces, each a literal
text or a slot that the environment fills (see `layout.fill`). There is one layout for
each number of arguments, so that commas and empty lists need no code. `compact` is the
style of the small backbone; `chat.read` derives the style of any chat template.

A `Style[str]` contains texts. In a `Style[int]`, which `lexicon.build` makes, each text
is replaced by its symbol.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from openagent_jax.text import error_texts, nesting, result_forms
from openagent_jax.text.error_texts import Wording
from openagent_jax.text.nesting import Syntax
from openagent_jax.text.result_forms import Form
from openagent_jax.text.scalars import Digits

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")

# Kinds of pieces: a literal text, and slots. `NAME` is the name of a tool, `TEXT` its
# description, `NEEDS` the tools that must be called before it. `ARGUMENT` is the name
# of an argument, `VALUE` its value (in a document, its type). `TEXT` and `NEEDS` take
# several symbols.
LITERAL, NAME, TEXT, NEEDS, ARGUMENT, VALUE = range(6)

# What the agent writes instead of a call.
ANSWER, REFUSE, ASK = "Answer: ", "Refuse", "Ask"

# The status of an action, which is a column of `error_table`.
(
    OK,
    BAD_FORMAT,  # the action could not be parsed
    UNKNOWN_TOOL,
    BAD_ARGUMENT,  # missing, unknown, or of the wrong type
    WRONG_CODE,  # the code that the tool needs is missing or wrong
    OUT_OF_ORDER,  # another tool must be called first
    TRANSIENT,  # a runtime error that goes away when the tool is called again
    PERMANENT,  # a runtime error that stays
    NO_RECORD,  # what is to be read or changed does not exist
    EXPIRED_CODE,  # the code was right, but is no longer
    STALE,  # a value that was read has changed since
    RATE_LIMITED,  # too many calls
    SCHEMA_CHANGED,  # the arguments have other names now
    MOVED,  # replaced by another tool
    USER_REPLY,  # the user's answer to `ASK`
    USER_CHANGE,  # what the user says to an answer, to change the request
    NO_RESULT,  # the episode is over, nothing is shown
) = range(17)
NOT_ERRORS = (OK, USER_REPLY, USER_CHANGE, NO_RESULT)
# More rows of `error_table`: `MOVED` where the new tool is named, and a notice below a
# result.
MOVED_GUIDED, DEPRECATED = range(17, 19)

# What is written where no tool answers, so in one wording only.
BAD_FORMAT_TEXT, UNKNOWN_TOOL_TEXT = "cannot read this", "no such tool"
_PLAIN = error_texts.WORDINGS[0]
BAD_FORMAT_REPLY = _PLAIN.open + BAD_FORMAT_TEXT + _PLAIN.close
COMMA_BLANK = ", "
CODE = "code"  # the name of the field for a code; no argument may have this name


class Piece(NamedTuple, Generic[T]):
    """One piece of a layout."""

    kind: int
    index: int  # the index of an argument in the call or document; see also `number`
    text: T  # the text of a literal
    # The text of a literal if the value of argument `index`, next to it, is written
    # without quotes, as numbers are.
    number: T


Layout = tuple[Piece[T], ...]


def slot(kind: int, index: int = 0) -> Piece[str]:
    """Return a slot.

    Args:
      kind: one of `NAME`, `TEXT`, `NEEDS`, `ARGUMENT` and `VALUE`.
      index: the index of the argument, for `ARGUMENT` and `VALUE`.
    """
    return Piece(kind, index, "", "")


def literal(text: str, number: str | None = None, index: int = 0) -> Piece[str]:
    """Return a literal.

    Args:
      text: the text.
      number: the text to write next to a number instead; None means the same text.
      index: the index of the argument next to the literal.

    >>> literal('":"', number='":', index=1)
    Piece(kind=0, index=1, text='":"', number='":')
    """
    return Piece(LITERAL, index, text, text if number is None else number)


class Marks(NamedTuple):
    """The texts that the parser looks for, as bytes."""

    call_open: bytes  # before the JSON of a call; may be empty
    call_close: bytes  # after it; may be empty
    answer: bytes = ANSWER.encode()
    refuse: bytes = REFUSE.encode()
    ask: bytes = ASK.encode()


class NestedCalls(NamedTuple, Generic[T]):
    """How a call with arguments is written where arguments may be nested.

    Attributes:
      before: what comes before the first key.
      syntax: what is between keys and values, and after the last value.
      after: what follows.
    """

    before: Layout[T]
    syntax: Syntax[T]
    after: Layout[T]


@dataclass(frozen=True)
class Style(Generic[T]):
    """All texts of an episode that do not come from its task.

    A style is static: it is part of the compiled program. `Symbols` adds the texts in
    the order of the fields, so the order must not change.
    """

    # The prompt is: system, documents, user, request, assistant. If `request_first`,
    # user and request also come before all of that.
    request_first: bool
    system: T
    documents: tuple[Layout[T], ...]  # by number of parameters
    between: T  # between two documents
    user: T
    assistant: T
    # How `NEEDS` names the tool whose code is needed, or that must be called first.
    code_from: tuple[T, T]  # before and after the name of the other tool
    call_after: tuple[T, T]
    code_is_parameter: bool  # whether documents list the code among the parameters
    string: T  # the names of types
    integer: T
    # What the agent writes, and the token that ends it.
    calls: tuple[Layout[T], ...]  # by number of arguments
    answer: Layout[T]
    refuse: Layout[T]
    ask: Layout[T]
    end: T
    # What the agent is shown next: the result of a tool, or a reply of the user.
    tool_open: T
    tool_close: T
    reply_open: T
    reply_close: T
    bad_format: T
    unknown_tool: T
    errors: tuple[Wording[T], ...]  # by wording; see `error_texts`
    results: tuple[Form[T], ...]  # by form; see `result_forms`
    result_open: T  # before the first key of a result that is JSON
    result_syntax: Syntax[T]  # of results that are JSON
    no_records: T  # an empty list in a result
    null: T  # a value that is missing
    marks: Marks
    key_name: T  # keys of the JSON object of a call
    key_arguments: T
    code: T  # name of the field that holds a code
    new_tool: T  # name of the field that holds the name of a tool
    done: T
    result: T
    unknown: T
    nothing: T
    comma_blank: T
    digits: Digits = Digits(0, 0, 0, 0)  # the symbols that spell numbers
    # Follows from `calls`; None unless `with_nesting` has added it.
    nested: NestedCalls[T] | None = dataclasses.field(default=None, repr=False)
    # The `chat.Template` that the style was read from; None for the compact style. It
    # serves on the host, to write the documents of tools word for word, and does not
    # count when styles are compared.
    template: Any = dataclasses.field(default=None, compare=False, repr=False)


def error_table(style: Style[int]) -> list[list[tuple[int, int]]]:
    """Return the message of each wording and status: before and after what it names.

    That is a tool, but a number of calls for `RATE_LIMITED`, and names of arguments for
    `SCHEMA_CHANGED`.
    """
    rows = []
    for of in style.errors:
        named = {
            WRONG_CODE: of.wrong_code,
            OUT_OF_ORDER: of.out_of_order,
            MOVED_GUIDED: of.moved_guided,
            DEPRECATED: of.deprecated,
            RATE_LIMITED: of.rate_limit,
            EXPIRED_CODE: of.expired_code,
            SCHEMA_CHANGED: of.schema_changed,
            STALE: of.stale,
        }
        plain = {
            BAD_FORMAT: style.bad_format,
            UNKNOWN_TOOL: style.unknown_tool,
            BAD_ARGUMENT: of.bad_argument,
            TRANSIENT: of.transient,
            PERMANENT: of.permanent,
            NO_RECORD: of.no_record,
            MOVED: of.moved,
        }
        texts = {status: (text, 0) for status, text in plain.items()} | named
        rows.append([texts.get(status, (0, 0)) for status in range(DEPRECATED + 1)])
    return rows


def mapped(style: Style[str], function: Callable[[str], U], **changes: Any) -> Style[U]:
    """Return a style with a function applied to each of its texts.

    Args:
      style: the style.
      function: maps a text to another text or to its symbol; it is called in the order
        of the fields.
      changes: fields to replace, with their values.

    >>> mapped(compact(2), len).end
    7
    """

    names = [field.name for field in dataclasses.fields(style)]
    kept = [name for name in names if name not in changes]
    found = {name: walked(getattr(style, name), function) for name in kept}
    return Style(**found | changes)


def walked(x: Any, function: Callable[[Any], Any]) -> Any:
    """Return a field of a style with a function applied to each of its texts."""
    if isinstance(x, str):
        return function(x)
    if isinstance(x, Piece):
        texts = (walked(text, function) for text in (x.text, x.number))
        return Piece(x.kind, x.index, *texts)
    if isinstance(x, Syntax | Form | Wording):
        return x.mapped(function)
    if isinstance(x, NestedCalls):
        return NestedCalls(*(walked(part, function) for part in x))
    if type(x) is tuple:
        return tuple(walked(part, function) for part in x)
    return x  # Marks, digits, the template


# The fields of what tools answer: many texts, of which the agent writes none.
ANSWERS = (
    "errors",
    "results",
    "result_open",
    "result_syntax",
    "no_records",
    "null",
)


def answers(style: Style[str], function: Callable[[str], U]) -> dict[str, Any]:
    """Return the fields `ANSWERS` with a function applied to each of their texts."""
    return {name: walked(getattr(style, name), function) for name in ANSWERS}


def with_nesting(style: Style[str]) -> Style[str]:
    """Return a style that also knows how nested arguments are written.

    It follows from how the style writes a call with two arguments.

    Raises:
      ValueError: these are not the pairs of a JSON object.

    >>> made = with_nesting(compact(2))
    >>> made.nested.syntax.enter[nesting.OBJECT], made.nested.syntax.end
    (('":{"', '":['), ('"}}', '}}'))
    """
    return dataclasses.replace(style, nested=_nested_calls(style.calls[2]))


def _nested_calls(layout: Layout[str]) -> NestedCalls[str]:
    """Return how nested arguments are written, given a call with two arguments."""
    at = next(i for i, piece in enumerate(layout) if piece.kind == ARGUMENT)
    kinds = [piece.kind for piece in layout[at : at + 8]]
    _, equals, _, comma, _, _, _, end = layout[at : at + 8]
    pair = [ARGUMENT, LITERAL, VALUE, LITERAL]
    is_json = equals.text.startswith('":') and comma.text.startswith('",')
    if kinds != 2 * pair or not is_json or not end.text.startswith('"}'):
        raise ValueError(f"chat template: arguments are not a JSON object: {layout}")
    syntax = nesting.json_syntax(
        (equals.text, equals.number),
        (comma.text, comma.text[1:]),
        (end.text, end.text[1:]),
    )
    return NestedCalls(layout[:at], syntax, layout[at + 8 :])


def shared(escape: Callable[[str], str] = lambda text: text) -> dict[str, Any]:
    """Return the fields that all styles share.

    Args:
      escape: how a chat template escapes the text of a result.

    >>> shared()["result_syntax"].close
    (('"}', '}'), ('"]', ']'))
    """
    syntax = nesting.json_syntax(('":"', '":'), ('","', ',"'), ('"}', "}"))
    return dict(
        bad_format=escape(BAD_FORMAT_TEXT),
        unknown_tool=escape(UNKNOWN_TOOL_TEXT),
        errors=tuple(x.mapped(escape) for x in error_texts.WORDINGS),
        results=tuple(x.mapped(escape) for x in result_forms.FORMS.values()),
        result_open=escape(result_forms.JSON_OPEN),
        # A template may write a result as a text of JSON.
        result_syntax=syntax.mapped(escape),
        no_records="[]",
        null="null",
        code=CODE,
        new_tool="new_tool",
        done="done",
        result="result",
        unknown="something",
        nothing="I said all",
        comma_blank=COMMA_BLANK,
    )


# In a document the description comes before the name, so that the name, where a causal
# model has read all of the description, can stand for it.
DOC_OPEN, DOC_NAME = '{"description":"', '","name":"'
DOC_PARAMS = ('","parameters":["', '","', '"]', '","parameters":[]')
DOC_NEEDS, DOC_CLOSE = (',"code_from":"', ',"call_after":"', '"'), "}"
CALL_OPEN = '{"name":"'
CALL_ARGS = ('","arguments":{"', '":"', '","', '"}}', '","arguments":{}}')
SPEAKERS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
END = "<|end|>"


def compact(max_args: int) -> Style[str]:
    """Return the style of the small backbone, which takes few tokens.

    The request comes before the documents and again after them: a causal model then
    knows what it looks for while it reads them (compare arXiv 2407.05483).

    Args:
      max_args: the largest number of arguments of a tool, not counting the code.

    >>> compact(2).end
    '<|end|>'
    """
    system, user, assistant, tool = SPEAKERS
    return Style(
        request_first=True,
        system=system,
        documents=tuple(map(_document, range(max_args + 1))),
        between="",
        user=user,
        assistant=assistant,
        code_from=(DOC_NEEDS[0], DOC_NEEDS[2]),
        call_after=(DOC_NEEDS[1], DOC_NEEDS[2]),
        code_is_parameter=False,
        string="",
        integer="",
        calls=tuple(map(_call, range(max_args + 2))),
        answer=(literal(ANSWER), slot(VALUE)),
        refuse=(literal(REFUSE),),
        ask=(literal(ASK),),
        end=END,
        tool_open=tool,
        tool_close=assistant,
        reply_open=user,
        reply_close=assistant,
        marks=Marks(b"", b""),
        key_name="name",
        key_arguments="arguments",
        **shared(),
    )


def syntax_tokens() -> list[str]:
    """Return the texts of `compact` that the small tokenizer has as single tokens."""
    first, _, last, none = DOC_PARAMS
    documents = (DOC_OPEN, DOC_NAME, first, last, none, *DOC_NEEDS, DOC_CLOSE)
    calls = (CALL_OPEN, *CALL_ARGS)
    results = (_PLAIN.open, result_forms.JSON_OPEN, _PLAIN.close, COMMA_BLANK)
    return list(dict.fromkeys((*documents, *calls, ANSWER, REFUSE, ASK, *results)))


def _document(num: int) -> Layout[str]:
    first, comma, last, none = map(literal, DOC_PARAMS)
    params = [none]
    if num:
        params = [first, *_joined([[slot(ARGUMENT, i)] for i in range(num)], comma)]
        params.append(last)
    start = [literal(DOC_OPEN), slot(TEXT), literal(DOC_NAME), slot(NAME)]
    return (*start, *params, slot(NEEDS), literal(DOC_CLOSE))


def _call(num: int) -> Layout[str]:
    first, equals, comma, last, none = map(literal, CALL_ARGS)
    pairs = [[slot(ARGUMENT, i), equals, slot(VALUE, i)] for i in range(num)]
    arguments = [first, *_joined(pairs, comma), last] if num else [none]
    return (literal(CALL_OPEN), slot(NAME), *arguments)


def _joined(parts: list[list[Piece]], between: Piece) -> list[Piece]:
    """Concatenate parts, with a piece between each two."""
    return [x for part in parts for x in (between, *part)][1:]
