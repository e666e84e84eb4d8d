"""Where two batches of tasks differ."""

import jax
import numpy as np


def leaves(task):
    """`{path: array}` of a task, paths such as `tools.name`."""
    return {
        ".".join(key.name for key in path): np.asarray(leaf)
        for path, leaf in jax.tree.leaves_with_path(task)
    }


def changed(old, new):
    """`{path: which tasks of the batch differ there}`."""
    old, new = leaves(old), leaves(new)
    differs = {path: new[path] != leaf for path, leaf in old.items()}
    return {path: d.reshape(len(d), -1).any(axis=1) for path, d in differs.items()}


def changed_tasks(old, new):
    """Which tasks of the batch differ at all."""
    return np.any([*changed(old, new).values()], axis=0)
