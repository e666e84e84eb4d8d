"""Files that are written as a whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


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
