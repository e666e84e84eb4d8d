"""Files that are written as a whole or not at all."""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yield the path of a temporary file, which becomes `file` at the end of the block.

    No reader sees a partial file. After an exception, `file` is as it was before.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder, "report.md")) as part:
    ...         _ = part.write_text("all of it")
    ...     [x.name for x in Path(folder).iterdir()]
    ['report.md']
    """
    part = file.with_name(f"{file.name}.part")
    try:
        yield part
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def write_json(file: Path, value: Any) -> None:
    """Write a value as JSON, as a whole or not at all."""
    with replacing(file) as part:
        part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
