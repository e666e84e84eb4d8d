"""How errors are worded; the wordings themselves are in `error_texts`.

A wording has a text for every status that a tool can answer with. Where a text names
another tool, the name is written between two parts.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")
Around = tuple[T, T]  # before the name of the other tool, and after it


class Wording(NamedTuple, Generic[T]):
    """How errors are written: `open`, a message, and `close`.

    Attributes:
      open: before the message.
      close: after it.
      bad_argument: an argument is missing, unknown, or of the wrong type.
      wrong_code: the code of another tool is missing or wrong.
      out_of_order: another tool must be called before.
      transient: it will work when it is called again.
      permanent: it will never work.
      no_record: what is to be read or changed does not exist.
      moved: it was replaced by an unnamed tool.
      moved_guided: it was replaced by the named tool.
      deprecated: it works, but will be replaced by the named tool. This is a notice
        below a result, so without `open` and `close`.
    """

    open: T
    close: T
    bad_argument: T
    wrong_code: Around[T]
    out_of_order: Around[T]
    transient: T
    permanent: T
    no_record: T
    moved: T
    moved_guided: Around[T]
    deprecated: Around[T]

    def mapped(self, function: Callable[[T], U]) -> "Wording[U]":
        """Return the wording with a function applied to each of its texts."""
        fields: Any = (
            tuple(map(function, x)) if isinstance(x, tuple) else function(x)
            for x in self
        )
        return Wording(*fields)


def wording(frame: str, *messages: str) -> Wording[str]:
    """Return a wording, given its texts in the order of the attributes.

    Args:
      frame: what is around a message, which is written as `...`.
      messages: the messages; `{}` stands for the name of a tool.
    """
    bad, code, order, transient, permanent, no_record, moved, *named = messages
    guided, deprecated = named

    def around(text: str) -> Around[str]:
        before, after = text.split("{}")
        return before, after

    return Wording(
        *frame.split("..."),
        bad_argument=bad,
        wrong_code=around(code),
        out_of_order=around(order),
        transient=transient,
        permanent=permanent,
        no_record=no_record,
        moved=moved,
        moved_guided=around(guided),
        deprecated=around("\n" + deprecated),
    )
