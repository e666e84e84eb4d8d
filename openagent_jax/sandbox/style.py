"""How an episode is written, as data: texts, and slots between them.

A document or a call is a layout: a row of pieces, each a text or a slot that the task
fills. There is one layout for each number of arguments, so that a comma or a missing
list needs no code. `compact` is the form of the small backbone; `chat.read` makes the
style of any chat template.

Texts are strings here, and symbols once a `Lexicon` has been built.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from openagent_jax import types

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")

# Slots. `TEXT` and `NEEDS` are filled by several symbols.
LITERAL, NAME, TEXT, NEEDS, ARGUMENT, VALUE = range(6)

# What the agent says without a tool.
ANSWER, REFUSE, ASK = "Answer: ", "Refuse", "Ask"

ERRORS = {
    types.BAD_FORMAT: "cannot read this",
    types.UNKNOWN_TOOL: "no such tool",
    types.BAD_ARGUMENT: "wrong arguments",
    types.WRONG_CODE: "needs the code from ",
    types.OUT_OF_ORDER: "call first ",
    types.TRANSIENT: "failed, try again",
    types.PERMANENT: "out of service for good",
    types.MOVED: "replaced",
}
MOVED_GUIDED = "replaced by "
ERROR = '{"error":"', '"}'  # around an error
COMMA_BLANK = ", "
CODE = "code"  # the name of a field; no argument may have it

# (open, between name and value, between fields, close); the first is the norm.
# The last of them are held out: no training ever shows them.
RESULT_STYLES = (
    ('{"', '":"', '","', '"}'),
    ("[", "=", "; ", "]"),
    ("(", ": ", " / ", ")"),
    ("<", ">", "><", "</>"),
    ("ok ", " -> ", " & ", "!"),
)
NUM_TRAIN_STYLES = 3


class Piece(NamedTuple, Generic[T]):
    """Of a layout."""

    kind: int
    index: int  # of the argument whose name, value or type this is
    text: T  # of a literal
    # The same beside the value of argument `index`, where that is a number.
    number: T


Layout = tuple[Piece[T], ...]


def slot(kind: int, index: int = 0) -> Piece[str]:
    """What a task fills."""
    return Piece(kind, index, "", "")


def literal(text: str, number: str | None = None, index: int = 0) -> Piece[str]:
    """A text, and what it is beside a number."""
    return Piece(LITERAL, index, text, text if number is None else number)


class Marks(NamedTuple):
    """What the parser looks for, as it is: no symbols."""

    call_open: bytes  # before the JSON of a call; may be empty
    call_close: bytes
    answer: bytes = ANSWER.encode()
    refuse: bytes = REFUSE.encode()
    ask: bytes = ASK.encode()


@dataclass(frozen=True)
class Style(Generic[T]):
    """Static: part of the program."""

    # The prompt: system, documents, user, request, assistant.
    system: T
    documents: tuple[Layout[T], ...]  # by number of parameters; a value is a type here
    between: T  # two documents
    user: T
    assistant: T
    # What a tool needs, as it stands in `NEEDS`; and is the code a parameter?
    code_from: tuple[T, T]  # before and after the name of the other tool
    call_after: tuple[T, T]
    code_is_parameter: bool
    string: T  # names of types
    integer: T
    # What the agent says, up to the mark of its end.
    calls: tuple[Layout[T], ...]  # by number of arguments
    answer: Layout[T]
    refuse: Layout[T]
    ask: Layout[T]
    end: T
    # What it is shown then: a result, or what the user says.
    tool_open: T
    tool_close: T
    reply_open: T
    reply_close: T
    error_open: T
    error_close: T
    errors: tuple[T, ...]  # by status
    moved_guided: T
    results: tuple[tuple[T, ...], ...]  # by result style
    marks: Marks
    key_name: T  # of the JSON of a call
    key_arguments: T
    key_purpose: T
    code: T  # the name of the field
    done: T
    result: T
    unknown: T
    nothing: T
    comma_blank: T
    numbers: tuple[int, int] = (0, 0)  # range of the symbols that are numbers


def mapped(style: Style[str], function: Callable[[str], U], **changes: Any) -> Style[U]:
    """The same style with other texts, or a symbol for each text."""

    def walk(x: Any) -> Any:
        if isinstance(x, str):
            return function(x)
        if isinstance(x, Piece):
            return Piece(x.kind, x.index, walk(x.text), walk(x.number))
        if type(x) is tuple:
            return tuple(map(walk, x))
        return x  # Marks, numbers

    names = [field.name for field in dataclasses.fields(style)]
    return Style(**{name: walk(getattr(style, name)) for name in names} | changes)


def shared(escape: Callable[[str], str] = lambda text: text) -> dict[str, Any]:
    """The fields that are the same in all styles.

    Args:
      escape: what a chat template does to the text of a result.
    """
    return dict(
        error_open=escape(ERROR[0]),
        error_close=escape(ERROR[1]),
        errors=tuple(
            escape(ERRORS.get(status, "")) for status in range(types.NO_RESULT + 1)
        ),
        moved_guided=escape(MOVED_GUIDED),
        results=tuple(tuple(map(escape, form)) for form in RESULT_STYLES),
        code=CODE,
        done="done",
        result="result",
        unknown="something",
        nothing="I said all",
        comma_blank=COMMA_BLANK,
    )


# A document has its description before its name, and a call says what it is for in the
# words of the document: a causal model then finds the name by looking where it has seen
# those words before.
DOC_OPEN, DOC_NAME = '{"description":"', '","name":"'
DOC_PARAMS = ('","parameters":["', '","', '"]', '","parameters":[]')
DOC_NEEDS, DOC_CLOSE = (',"code_from":"', ',"call_after":"', '"'), "}"
CALL_OPEN, CALL_NAME = '{"purpose":"', '","name":"'
CALL_ARGS = ('","arguments":{"', '":"', '","', '"}}', '","arguments":{}}')
SPEAKERS = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
END = "<|end|>"


def compact(max_args: int) -> Style[str]:
    """The form of the small backbone: few tokens.

    Args:
      max_args: of a tool, the code not counted.
    """
    system, user, assistant, tool = SPEAKERS
    return Style(
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
        key_purpose="purpose",
        **shared(),
    )


def syntax_tokens() -> list[str]:
    """The texts of `compact` that a tokenizer of our own spells as one token."""
    first, _, last, none = DOC_PARAMS
    documents = (DOC_OPEN, DOC_NAME, first, last, none, *DOC_NEEDS, DOC_CLOSE)
    calls = (CALL_OPEN, CALL_NAME, *CALL_ARGS)
    results = (ERROR[0], RESULT_STYLES[0][0], RESULT_STYLES[0][-1], COMMA_BLANK)
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
    start = [literal(CALL_OPEN), slot(TEXT), literal(CALL_NAME), slot(NAME)]
    return (*start, *arguments)


def _joined(parts: list[list[Piece]], between: Piece) -> list[Piece]:
    """All parts, with a piece between two."""
    return [x for part in parts for x in (between, *part)][1:]
