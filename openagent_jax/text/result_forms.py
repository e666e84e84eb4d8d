"""The forms in which tools return results: JSON, key-value pairs, markup and tables.

Forms are data, so one compiled program writes all of them; see `result_writing`.
"""

import re
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
      before: what is before a value that has quotes, and before one that has none.
      after: what is after it, likewise.
      thousands: what divides the digits of numbers from 1000 on; may be empty.
      point: what is before the decimals of numbers; if empty, a point. Where one of the
        two is not empty, numbers have quotes.
      is_json: whether it is a JSON form.
      is_typed: whether numbers, booleans and null are written without quotes.
      is_table: whether it is a table.
      escapes: whether special characters are escaped as in JSON, so that it can write
        every value. A form without escapes can only write what `is_plain` accepts.
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
    thousands: T
    point: T
    is_json: bool = False
    is_typed: bool = False
    is_table: bool = False
    escapes: bool = False

    def mapped(self, function: Callable[[T], U]) -> "Form[U]":
        """Return the form with a function applied to each of its texts."""

        def walk(x: Any) -> Any:
            if isinstance(x, bool):
                return x
            return tuple(map(walk, x)) if isinstance(x, tuple) else function(x)

        fields: Any = map(walk, self)
        return Form(*fields)


_BLANK = Form(
    *("", "", "", "", ("", ""), ("", "")),
    end_key="",
    comma="",
    head_end="",
    rule="",
    rule_end="",
    cell_comma="",
    thousands="",
    point="",
)


def _json(
    open: str, close: str, is_typed: bool = True, thousands: str = ""
) -> Form[str]:
    return _BLANK._replace(
        open=open,
        close=close,
        thousands=thousands,
        is_json=True,
        is_typed=is_typed,
        escapes=True,
    )


def _pairs(
    open: str,
    equals: str,
    comma: str,
    close: str,
    key: str = "",
    quote: str = "",
    end_key: str = "",
    after: str = "",
    is_typed: bool = False,
    escapes: bool = False,
) -> Form[str]:
    """Return a form of pairs; `quote` is around values that are not typed."""
    bare = "" if is_typed else quote
    return _BLANK._replace(
        open=open,
        close=close,
        key=key,
        equals=equals,
        before=(quote, bare),
        after=(quote + after, bare + after),
        end_key=end_key,
        comma=comma,
        is_typed=is_typed,
        escapes=escapes,
    )


def _table(
    open: str,
    comma: str,
    head_end: str,
    close: str,
    quote: str = "",
    rule: str = "",
    rule_end: str = "",
    thousands: str = "",
    point: str = "",
) -> Form[str]:
    return _BLANK._replace(
        open=open,
        close=close,
        before=(quote, ""),
        after=(quote, ""),
        comma=comma,
        head_end=head_end,
        rule=rule,
        rule_end=rule_end,
        cell_comma=comma,
        thousands=thousands,
        point=point,
        is_typed=bool(quote),
        is_table=True,
    )


# By family. The first form is the default. A family is for training or for evaluation
# as a whole, so that a new form differs in more than its words.
TRAIN: dict[str, dict[str, Form[str]]] = {
    "json": {
        "json": _json("", "", is_typed=False),
        "json_typed": _json("", ""),
        "json_envelope": _json('{"ok":true,"data":', "}"),
        "json_list": _json("[", "]"),
        "json_status": _json('{"status":200,"result":', ',"next":null}'),
        "json_thousands": _json('{"display":', "}", thousands=","),
    },
    "pairs": {
        "key_value": _pairs("", "=", "\n", ""),
        "yaml": _pairs("", ": ", "\n", "", quote='"', is_typed=True),
        "brackets": _pairs("[", "=", "; ", "]"),
        "parentheses": _pairs("(", ": ", " / ", ")"),
        "log_line": _pairs(
            *("INFO ", "=", " ", ""), quote='"', is_typed=True, escapes=True
        ),
        "query_string": _pairs("?", "=", "&", ""),
    },
    "separated": {
        "csv": _table("", ",", "\n", "", quote='"'),
        "csv_semicolon": _table("", ";", "\n", "", point=","),
        "tsv": _table("", "\t", "\n", ""),
    },
}
TEST: dict[str, dict[str, Form[str]]] = {
    "markup": {
        "xml": _pairs(
            *("<result>", ">", "", "</result>"), key="<", after="</", end_key=">"
        ),
        "html_list": _pairs("<ul>", ": ", "", "</ul>", key="<li>", after="</li>"),
    },
    "ruled": {
        "markdown_table": _table(
            "| ", " | ", " |\n|", " |", rule=" --- |", rule_end="\n| "
        ),
        "markdown_european": _table(
            *("| ", " | ", " |\n|", " |"),
            rule=" ---: |",
            rule_end="\n| ",
            thousands=".",
            point=",",
        ),
    },
    "prose": {
        "sentence": _pairs(
            *("Here you are: the ", " is ", ", the ", "."), quote='"', is_typed=True
        ),
    },
    "code": {
        "python": _pairs(
            *("OrderedDict([", '", ', ", ", "])"),
            key='("',
            quote='"',
            after=")",
            escapes=True,
        ),
        "toml": _pairs(
            *("[result]\n", '" = ', "\n", ""), key='"', quote='"', escapes=True
        ),
    },
}
FORMS = {
    name: form
    for family in (*TRAIN.values(), *TEST.values())
    for name, form in family.items()
}
_NUM_TRAIN = sum(map(len, TRAIN.values()))
# The range of each split, without the normal form.
RANGES = (1, _NUM_TRAIN), (_NUM_TRAIN, len(FORMS))

# What one of the forms cannot write, or what one of their readers would change.
_NOT_PLAIN = re.compile(
    r'[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff"\\<>&|;%+\[\]]|(^| )/( |$)|^[\s$@]|\s$|^$'
)


def is_plain(text: str) -> bool:
    """Tell whether all forms can write a text as a value or a key.

    >>> is_plain("Oak Bay, north"), is_plain("A+"), is_plain("$ref")
    (True, False, False)
    """
    return not _NOT_PLAIN.search(text)
