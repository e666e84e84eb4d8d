"""How errors are worded, modelled on the errors of real interfaces.

The texts are in `error_texts.json`: by split, then by family of interfaces. A family is
for training or for evaluation as a whole, and the two splits share no words but
function words. The first wording is the default.

A wording has a text for every status that a tool can answer with. Each can say that a
call is worth repeating, and that it never will be, so the interface that an error is
from does not tell which of the two it is.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")  # str, or int: a symbol
U = TypeVar("U")
Around = tuple[T, T]  # before what is named, and after it


class Wording(NamedTuple, Generic[T]):
    """How errors are written: `open`, a message, and `close`.

    Attributes:
      open: before the message.
      close: after it.
      bad_argument: an argument is missing, unknown, or of the wrong type.
      wrong_code: the code of the named tool is missing or wrong.
      out_of_order: the named tool must be called before.
      transient: it will work when it is called again.
      permanent: it will never work.
      no_record: what is to be read or changed does not exist.
      moved: it was replaced by an unnamed tool.
      moved_guided: it was replaced by the named tool.
      deprecated: it works, but will be replaced by the named tool. This is a notice
        below a result, so without `open` and `close`.
      rate_limit: it will work after the given number of calls of any tool, which will
        be refused too.
      expired_code: the code is too old, and the named tool gives a new one.
      schema_changed: the arguments have the given names from now on.
      stale: the value is out of date, and the named tool reads it again.
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
    rate_limit: Around[T]
    expired_code: Around[T]
    schema_changed: Around[T]
    stale: Around[T]

    def mapped(self, function: Callable[[T], U]) -> "Wording[U]":
        """Return the wording with a function applied to each of its texts."""
        fields: Any = (
            tuple(map(function, x)) if isinstance(x, tuple) else function(x)
            for x in self
        )
        return Wording(*fields)


def _wording(frame: str, deprecated: str, **texts: str) -> Wording[str]:
    """Return a wording.

    Args:
      frame: what is around a message, which is written as `...`.
      deprecated: the notice, without the line break before it.
      **texts: the messages; `{}` stands for what is named.
    """
    open, close = frame.split("...")
    texts["deprecated"] = f"\n{deprecated}"
    parts: Any = {
        status: tuple(text.split("{}")) if "{}" in text else text
        for status, text in texts.items()
    }
    return Wording(open, close, **parts)


_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text())
TRAIN, TEST = (
    {
        family: tuple(_wording(**texts) for texts in wordings)
        for family, wordings in _TEXTS[split].items()
    }
    for split in ("train", "test")
)
WORDINGS = tuple(x for family in (*TRAIN.values(), *TEST.values()) for x in family)
_NUM_TRAIN = sum(map(len, TRAIN.values()))
# The range of each split, without the normal wording.
RANGES = (1, _NUM_TRAIN), (_NUM_TRAIN, len(WORDINGS))
