"""The versions of Python and of the packages."""

import importlib.metadata
import platform
import re
from collections.abc import Iterator

from packaging import requirements

from launch.common import origin

NAME = "openagent_jax"


def findings() -> Iterator[str]:
    """Yield the versions, and each package that is missing or too old."""
    versions = ", ".join(f"{name} {_version(name)}" for name in origin.PACKAGES)
    yield f"software: Python {platform.python_version()}, {versions}"
    try:
        needed = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:
        yield f"! {NAME} is not installed: pip install -e ."
        return
    for text in needed:
        need = requirements.Requirement(text)
        if need.marker:  # of an extra
            continue
        found = _version(need.name)
        if found is None:
            yield f"! {need.name} is missing: pip install '{need}'"
        elif found not in need.specifier:
            yield f"! {need.name} {found} is not {need.specifier}: pip install '{need}'"
    jax, jaxlib = (_series(_version(name)) for name in ("jax", "jaxlib"))
    if jax != jaxlib:
        yield f"! jax and jaxlib are of different versions: pip install -U jax=={jax}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _series(version: str | None) -> str:
    """Return the first two numbers of a version."""
    found = re.match(r"\d+\.\d+", version or "")
    return found[0] if found else ""
