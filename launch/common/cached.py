"""Cache slow computations across runs, beside the compiled programs."""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import launch
import openagent_jax
from openagent_jax import files


def result(
    folder: str, key: Mapping[str, Any], arrays: Any, compute: Callable[[], Any]
) -> Any:
    """Return what `compute` returns, from a file if it has been computed before.

    A file is found only by the same code: its name is a hash of the files of `launch`
    and `openagent_jax`, of the version of JAX and of what the result depends on.

    Args:
      folder: the folder of the files (`compile_cache` of a config); "" keeps none.
      key: what the result depends on, as JSON.
      arrays: a pytree of arrays that it depends on; static fields are not hashed.
      compute: returns the result, which can be written as JSON.
    """
    if not folder:
        return compute()
    digest = hashlib.sha256(
        f"{code_digest()} {json.dumps(key, sort_keys=True)}".encode()
    )
    for path, x in jax.tree_util.tree_leaves_with_path(arrays):
        x = np.asarray(x)
        digest.update(f"{path} {x.dtype} {x.shape}".encode() + x.tobytes())
    file = Path(os.path.expanduser(folder), "results", digest.hexdigest() + ".json")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # there is none, or it is damaged
        pass
    found = compute()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(file) as part:
            part.write_text(json.dumps(found), encoding="utf-8")
    except OSError:  # the folder cannot be written to; the next run computes again
        pass
    return found


@functools.cache
def code_digest() -> str:
    """Return a hash of the code of `launch`, of the library, and JAX's version."""
    digest = hashlib.sha256(jax.__version__.encode())
    for folder in map(Path, (*launch.__path__, *openagent_jax.__path__)):
        # The domains of the library are JSON.
        for file in sorted([*folder.rglob("*.py"), *folder.rglob("*.json")]):
            digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return digest.hexdigest()
