"""Errors that the user can correct: one line that names the key and the remedy."""

import contextlib
import difflib
from collections.abc import Collection, Iterable, Iterator


class UsageError(ValueError):
    """Flags or a config that cannot work. The message names the key and the remedy."""


def check_names(key: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that every name is a known one.

    >>> check_names("x", ["tset"], ["train", "test"])
    Traceback (most recent call last):
    launch.common.errors.UsageError: x: there is no "tset"; did you mean "test"?

    Raises:
      UsageError: a name is unknown; the message suggests the closest one, or lists all.
    """
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f'did you mean "{close[0]}"?' if close else ", ".join(sorted(known))
            raise UsageError(f'{key}: there is no "{name}"; {hint}')


@contextlib.contextmanager
def blame(key: str) -> Iterator[None]:
    """Turn a `ValueError` raised in the block into a `UsageError` that names `key`."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise UsageError(text if text.startswith(key) else f"{key}: {text}") from error


@contextlib.contextmanager
def needs_extra(what: str, extra: str) -> Iterator[None]:
    """Turn an `ImportError` raised in the block into advice to install an extra."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{what} needs packages that are not installed ({error}): "
            f'pip install -e ".[{extra}]"'
        ) from None
