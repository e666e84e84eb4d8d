"""Runs that are small enough for a test, and their compiled steps, shared by all."""

import contextlib
import importlib
import json
from pathlib import Path
from unittest import mock

import jax

from launch.common import backbones, build, checks, compiled_step, model_loading, runs
from launch.common import config as configs
from launch.common.config import Config
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.types import TrainState

CHANGES = {
    "init_from": "random",
    "compile_cache": "",
    "sandbox.num_visible": 4,
    "sandbox.min_visible": 2,
    "sandbox.max_turns": 6,
    "model.chat_template": "",
    "model.width": 16,
    "model.num_layers": 1,
    "model.num_heads": 2,
    "model.num_kv_heads": 2,
    "model.head_size": 8,
    "model.mlp_width": 16,
    "model.look_back_heads": 0,  # so that at first all tokens are about equally likely
    "model.match_heads": 0,
    "model.copy_heads": 0,
    "algorithm.num_tokens": 256,
    "algorithm.num_rows": 0,
    "optim.learning_rate": 1e-3,  # tolerances in tests assume it
    # With a constant schedule, the compiled step does not depend on num_steps.
    "optim.schedule": "constant",
    "optim.warmup_steps": 2,
    "sandbox.action_tokens": 10,
    "grpo.size": 2,
    "mesh.tensor": 1,
    "train.num_epochs": 1,
    "train.num_minibatches": 1,
    "train.batch_size": 8,
    "train.num_steps": 4,
    "train.log_every": 1,
    "eval.num_tasks": 8,
    "eval.batch_size": 8,
    "eval.scenarios": ("identity_erasure",),
    "checkpoint.every": 2,
}
# What flags of a run of SFT may change: it refuses those that it does not use.
SFT_CHANGES = {key: x for key, x in CHANGES.items() if not key.startswith("grpo.")}
# Perturbations for tests of something else; each more takes longer to compile.
FEW = ("identity_erasure", "tool_withheld")
# Keys that do not affect the compiled step.
OUTSIDE = ("name", "eval.", "checkpoint.", "train.num_steps", "train.log_every")
TRAINERS = {}  # the values of `trainer`; they hold compiled programs


def config(name: str, arg: str = "", **changes) -> Config:
    """A config of `configs/`, made small; `a__b=1` changes the key `a.b`."""
    changed = {key.replace("__", "."): value for key, value in changes.items()}
    return full_config(name, arg).replace(CHANGES | changed)


def full_config(name: str = "base", arg: str = "") -> Config:
    """A config of `configs/`, unchanged."""
    made = importlib.import_module(f"configs.{name}").get_config(arg)
    return configs.resolve(made)


def trainer(c: Config, num_devices: int = 1):
    """`(step, state)` of `compiled_step.trainer`, compiled once per distinct step.

    All rows have the same number of columns. For shorter ones the gradient would be
    compiled four times more, which takes most of the time (see tests/test_train.py).
    """
    values = configs.flat(c).items()
    inside = {key: x for key, x in values if not key.startswith(OUTSIDE)}
    key = json.dumps([inside, num_devices], sort_keys=True)
    if key not in TRAINERS:
        checks.check(c)
        model = backbones.backbone(c)
        source = build.world(c, model, c.sandbox.domain)
        devices = jax.devices()[:num_devices]
        with mock.patch.object(compiled_step, "WIDTHS", ()):
            TRAINERS[key] = compiled_step.trainer(c, model, source, devices)
    step, state = TRAINERS[key]
    return step, copy(state)


def copy(state: TrainState) -> TrainState:
    """Copy a state, because a step donates its argument."""
    return jax.tree.map(lambda x: x.copy(), state)


def save_run(workdir: Path, c: Config, model: model_loading.Backbone, params) -> None:
    """Write the files of a run from which others can start."""
    with contextlib.closing(Checkpoints(workdir / "checkpoints")) as checkpoints:
        checkpoints.save(3, {"params": params}, {}, {})
    (workdir / "config.json").write_text(json.dumps(configs.to_dict(c)))
    runs.save_model(workdir / "model", model)
