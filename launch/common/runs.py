"""The model of a run: save its description, restore it, and check it.

With adapters, a checkpoint holds only the adapters. The weights that they adapt are
read again from `init_from`, and compared with digests in the checkpoint.
"""

import contextlib
import dataclasses
from functools import partial
from pathlib import Path
from typing import Any

import jax

from launch.common import backbones, config, errors, placement
from launch.common.backbones import Backbone
from launch.common.config import Config
from launch.common.errors import UsageError
from openagent_jax import sharding
from openagent_jax.algorithms import policy_gradient, ppo
from openagent_jax.checkpoint import Checkpoints, digest
from openagent_jax.interop import chat_template
from openagent_jax.models import hf, hf_folder, lora
from openagent_jax.types import Params

FROZEN = "frozen"  # key in the meta of a checkpoint: digests of what it leaves out


def save_model(folder: Path, model: Backbone) -> None:
    """Write what `restore` needs besides weights: config, tokenizer and template."""
    with hf_folder.atomic_folder(folder) as made:
        hf.save_config(made, model.config)
        hf_folder.copy_auxiliary_files(model.folder, made)
        (made / chat_template.FILE).unlink(missing_ok=True)
        if model.template:
            (made / chat_template.FILE).write_text(model.template, "utf-8")


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
        raise UsageError(f"{workdir} is no workdir: it has no checkpoints")
    model = backbones.from_folder(workdir / "model", c.model if c else None)
    run = config.stored_config(workdir) if config.stored(workdir) else None
    saved_dtype = run.model.param_dtype if run else "float32"
    saved = dataclasses.replace(model.config, param_dtype=saved_dtype)
    if c is None:
        model = dataclasses.replace(model, config=saved)
    if shardings is None and c is not None:
        shardings = placement.split(c, model.config)
    abstract, frozen = placement.shapes(saved), {}
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
    params, step, meta = _read(folder, which, abstract)
    check_frozen(workdir, digests(frozen), meta)
    params = {**frozen, **params}
    dtype = model.config.param_dtype
    cast = jax.tree.map(lambda x: x.astype(dtype), lora.base(params))
    params = {**params, **cast}
    model = dataclasses.replace(model, init=lambda key, _=None: params)
    return model, params, step


def digests(frozen: Params) -> dict[str, str | None]:
    """Return a digest of each branch that a checkpoint leaves out."""
    return {name: digest(branch) for name, branch in frozen.items()}


def check_frozen(
    workdir: Path, ours: dict[str, str | None], meta: dict[str, Any]
) -> None:
    """Check that adapters are used with the weights that they were trained with.

    Args:
      workdir: workdir of the run, for the error message.
      ours: digests of the weights that were found.
      meta: meta of the checkpoint, with the digests at the time of training.

    Raises:
      UsageError: the weights have changed.
    """
    for name, found in ours.items():
        expected = meta.get(FROZEN, {}).get(name)
        if expected and found and expected != found:
            raise UsageError(
                f'{workdir}: its adapters were trained beside another "{name}" than is '
                "found now; bring back the model that its config.json names"
            )


def _adapted(workdir: Path, run: Config, shardings: Any) -> Params:
    """Return the parameters that the adapters of a run were trained with."""
    with errors.blame(f"{workdir} holds adapters alone, and needs its init_from"):
        return backbones.first_params(run, backbones.backbone(run), shardings)


def _read(folder: Path, which: str, abstract: Any) -> tuple[Params, int, dict]:
    """Read the parameters of one checkpoint, their step and its meta."""
    with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
        try:
            return checkpoints.restore_params(
                abstract,
                int(which) if which.isdecimal() else which,
                without=(ppo.VALUE, policy_gradient.REFERENCE),
            )
        except FileNotFoundError:
            raise UsageError(
                f"{folder} has no step {which}; it has {checkpoints.steps()}"
            ) from None
