"""The forms in which tools return results: JSON, key-value pairs, markup and tables.

Forms are data, so one compiled program writes all of them; see `result_writing`.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")
JSON_OPEN = '{"'  # before the first key of a JSON form, after `Form.open`


class Form(NamedTuple, Generic[T]):
    """A form of results.

    A JSON form puts `open` and `close` around an object. Another one writes `open`, the
    fields with `comma` between them, and `close`. A field is `key`, its name, `equals`,
    its value and `after`; where `end_key` is given, the name once more, and `end_key`.
    A table writes all names first, then `rule` for each column, between `head_end` and
    `rule_end`, and then the values with `cell_comma` between them.

    Attributes:
      is_json: whether it is a JSON form.
      is_typed: whether numbers, booleans and null are written without quotes.
      is_table: whether it is a table.
      before: what is before a value that has quotes, and before one that has none.
      after: what is after it, likewise.
      Others: see above.
    """

    open: T
    close: T
    key: T
    equals: T
    before: tuple[T, T]
    after: tuple[T, T]
    end_key: T
    comma: T
    head_end: T
    rule: T
    rule_end: T
    cell_comma: T
    is_json: bool = False
    is_typed: bool = False
    is_table: bool = False

    def mapped(self, function: Callable[[T], U]) -> "Form[U]":
        """Return the form with a function applied to each of its texts."""

        def walk(x: Any) -> Any:
            if isinstance(x, bool):
                return x
            return tuple(map(walk, x)) if isinstance(x, tuple) else function(x)

        fields: Any = map(walk, self)
        return Form(*fields)


def _json(open: str, close: str, is_typed: bool = True) -> Form[str]:
    return Form(
        *(open, close, "", "", ("", ""), ("", ""), "", "", "", "", "", ""),
        is_json=True,
        is_typed=is_typed,
    )


def _pairs(
    open: str,
    equals: str,
    comma: str,
    close: str,
    key: str = "",
    quote: str = "",
    end_key: str = "",
    is_typed: bool = False,
) -> Form[str]:
    quotes = (quote, "" if is_typed else quote)
    return Form(
        *(open, close, key, equals, quotes, quotes, end_key, comma),
        *("", "", "", ""),
        is_typed=is_typed,
    )


def _table(
    open: str,
    comma: str,
    head_end: str,
    close: str,
    quote: str = "",
    rule: str = "",
    rule_end: str = "",
) -> Form[str]:
    quotes = (quote, "")
    return Form(
        *(open, close, "", "", quotes, quotes, "", comma),
        *(head_end, rule, rule_end, comma),
        is_typed=bool(quote),
        is_table=True,
    )


# The first form is the default. A family of forms is for training or for evaluation as
# a whole, so that a new form differs in more than its words.
TRAIN: dict[str, Form[str]] = {
    # JSON
    "json": _json("", "", is_typed=False),
    "json_typed": _json("", ""),
    "json_envelope": _json('{"ok":true,"data":', "}"),
    "json_list": _json("[", "]"),
    "json_status": _json('{"status":200,"result":', ',"next":null}'),
    # pairs, on one line or on several
    "key_value": _pairs("", "=", "\n", ""),
    "yaml": _pairs("", ": ", "\n", "", quote='"', is_typed=True),
    "brackets": _pairs("[", "=", "; ", "]"),
    "parentheses": _pairs("(", ": ", " / ", ")"),
    "log_line": _pairs("INFO ", "=", " ", "", quote='"', is_typed=True),
    "query_string": _pairs("?", "=", "&", ""),
    # tables without rules
    "csv": _table("", ",", "\n", "", quote='"'),
    "tsv": _table("", "\t", "\n", ""),
}
TEST: dict[str, Form[str]] = {
    # markup
    "xml": _pairs("<result>", ">", "", "</result>", key="<", end_key=">"),
    "html_list": _pairs("<ul>", ": ", "", "</ul>", key="<li>"),
    # tables with rules
    "markdown_table": _table(
        "| ", " | ", " |\n|", " |", rule=" --- |", rule_end="\n| "
    ),
    # prose
    "sentence": _pairs("Here you are: the ", " is ", ", the ", "."),
    # the syntax of a programming language
    "python": _pairs("Result(", "=", ", ", ")", quote="'"),
    "toml": _pairs("[result]\n", " = ", "\n", "", quote='"', is_typed=True),
}
# What closes the name of a field that is repeated, and what closes an item of a list.
TEST["xml"] = TEST["xml"]._replace(after=("</", "</"))
TEST["html_list"] = TEST["html_list"]._replace(after=("</li>", "</li>"))
FORMS = {**TRAIN, **TEST}
# The range of each split, without the normal form.
RANGES = (1, len(TRAIN)), (len(TRAIN), len(FORMS))
