"""Read the lines of a log file: JSON Lines, one conversation per line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.environments.logs import log_values

SUFFIX = ".jsonl"  # of a domain that is a log
HEADER = "evaluation"  # the key of the first line of an evaluation's log
_GZIP_MAGIC = b"\x1f\x8b"


def lines(file: Path) -> Iterator[tuple[int, Any]]:
    """Yield `(line number, parsed JSON)` of each line that is not blank.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "x.jsonl")
    ...     _ = file.write_text('{"messages": []}')
    ...     list(lines(file))
    [(1, {'messages': []})]

    Raises:
      DomainError: the file cannot be read, or a line is not UTF-8 or not JSON.
    """
    number = 0
    try:
        with file.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield number, log_values.loads(text.rstrip("\r\n"))
        return
    except OSError as error:
        problem = f"{error.strerror}; check the path"
    except UnicodeDecodeError as error:
        problem = f"line {number}: byte {error.start} is not UTF-8; save it as UTF-8"
        if number == 1 and error.object.startswith(_GZIP_MAGIC):
            problem = "the file is compressed with gzip; unpack it first"
    except json.JSONDecodeError as error:
        problem = (
            f"line {number}, column {error.colno}: invalid JSON ({error.msg}); write "
            "one complete conversation per line"
        )
    except log_values.RepeatedKey as error:
        problem = f"line {number}: {error} in an object; keep one"
    except RecursionError:
        problem = f"line {number}: an array or object is nested too deeply; remove it"
    except ValueError as error:  # a huge number
        problem = f"line {number}: {error}; remove it"
    raise DomainError(f"{file}: {' '.join(problem.split())}")
