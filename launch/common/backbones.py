"""Find a backbone by name, and restore what runs have trained.

A backbone is random, builtin, a folder, a GGUF file or another run. With adapters, the
checkpoint of a run holds only these; the weights that they adapt are found again by the
`init_from` of the run, and compared with digests in the checkpoint.
"""

import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax

from launch.common import (
    config,
    errors,
    lineage,
    model_folders,
    model_loading,
    placement,
    runs,
)
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from openagent_jax import sharding
from openagent_jax.models import hf, lora, transformer
from openagent_jax.types import Params


def backbone(c: Config) -> Backbone:
    """Return the backbone that `init_from` names.

    Its weights are read when its `init` is called.

    Raises:
      UsageError: there is no such backbone, or its files cannot be used.
    """
    return _find(c, c.init_from, "init_from")


def reference(c: Config, model: Backbone) -> Backbone | None:
    """Return the model that `surrogate.reference` names, for the KL penalty.

    Returns:
      None if there is no penalty, or if its reference is the start of training.

    Raises:
      UsageError: there is no such model, or its shapes are not those of `model`.
    """
    name = c.surrogate.reference
    if not c.algorithm.is_reinforcement or not c.surrogate.kl or not name:
        return None
    found = _find(c, name, "surrogate.reference")
    if transformer.shapes(model.config) != transformer.shapes(found.config):
        raise UsageError(
            f'surrogate.reference="{name}" has a different shape from the model '
            "that is trained; take one like init_from"
        )
    return found


def first_params(c: Config, model: Backbone, shardings: Any = None) -> Params:
    """Return the parameters that training starts from.

    Args:
      c: the config; its seed determines random weights.
      model: the model whose parameters are returned.
      shardings: how to place them; by default they are on the first device.
    """
    # No step has this number, so no step draws its tasks from this key.
    key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 1)
    return model.init(key, shardings)


def restore(
    workdir: Path,
    which: str = "latest",
    c: Config | None = None,
    shardings: Any = None,
) -> tuple[Backbone, Params, int]:
    """Restore the policy that a run has trained.

    Args:
      workdir: workdir of the run.
      which: "latest", "best", or a step.
      c: determines the dtype of the parameters and the mesh; if None, they keep the
        dtype that they were saved with, on one device.
      shardings: how to place the parameters; by default according to `c.mesh`.

    Returns:
      The model, its parameters, and their step.

    Raises:
      UsageError: there is no such run or step, or the model that its adapters need is
        gone or has changed.
    """
    folder = workdir / "checkpoints"
    if not folder.is_dir():
        raise UsageError(f"{workdir} is not a workdir of a run: it has no checkpoints")
    model = model_loading.from_folder(workdir / "model", c.model if c else None)
    run = config.stored_config(workdir) if config.stored(workdir) else None
    saved_dtype = run.model.param_dtype if run else "float32"
    saved = dataclasses.replace(model.config, param_dtype=saved_dtype)
    if c is None:
        model = dataclasses.replace(model, config=saved)
    if shardings is None and c is not None:
        shardings = placement.split(c, model.config)
    abstract, frozen = transformer.shapes(saved), {}
    if run and run.model.lora.adapters:
        adapters = run.model.lora.adapters
        model = dataclasses.replace(
            model, config=dataclasses.replace(model.config, lora=adapters)
        )
        frozen = _adapted(workdir, run, shardings)
        abstract = jax.eval_shape(
            partial(lora.init, adapters), jax.random.key(0), frozen
        )
        if shardings is not None:  # adapters are small: each device holds all of them
            mesh = jax.tree.leaves(shardings)[0].mesh
            shardings = jax.tree.map(lambda _: sharding.replicated(mesh), abstract)
    if shardings is not None:
        abstract = jax.tree.map(
            lambda x, sharding: x.update(sharding=sharding), abstract, shardings
        )
    params, step, meta = runs.read_params(folder, which, abstract)
    runs.check_frozen(workdir, runs.digests(frozen), meta)
    params = {**frozen, **params}
    dtype = model.config.param_dtype
    cast = jax.tree.map(lambda x: x.astype(dtype), lora.base(params))
    params = {**params, **cast}
    model = dataclasses.replace(
        model, init=lambda key, _=None: params, trained_on=lineage.of_run(workdir)
    )
    return model, params, step


def _find(c: Config, name: str, key: str) -> Backbone:
    """Return the backbone that `name`, the value of the config key `key`, refers to."""
    if name == "random":
        return model_loading.random(c.model)
    folder, what = model_folders.with_weights(name, key), f'{key}="{name}"'
    if (folder / "checkpoints").is_dir():
        return _of_run(c, folder, what)
    model = model_loading.from_folder(folder, c.model, what)
    with errors.blame(what):
        hf.check(folder, model.config)
    return model


def _of_run(c: Config, workdir: Path, what: str) -> Backbone:
    """Return the model of another run, with its adapters merged."""
    model = model_loading.from_folder(workdir / "model", c.model, what)

    def init(_, shardings=None):
        restored, params, _ = restore(workdir, c=c, shardings=shardings)
        return lora.merge(restored.config.lora, params)

    return dataclasses.replace(
        model,
        init=init,
        stage=runs.stage(workdir) + 1,
        trained_on=lineage.of_run(workdir),
    )


def _adapted(workdir: Path, run: Config, shardings: Any) -> Params:
    """Return the parameters that the adapters of a run were trained with."""
    with errors.blame(f"{workdir} holds adapters alone, and needs its init_from"):
        return first_params(run, backbone(run), shardings)
