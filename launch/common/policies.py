"""Load the policy that a command evaluates or serves, from a backbone or a run."""

from pathlib import Path
from typing import NamedTuple

from launch.common import backbones, checks, config, placement
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax.types import Params


class Loaded(NamedTuple):
    """A policy with its parameters on the devices."""

    config: Config
    model: Backbone
    params: Params
    step: int  # 0 for a backbone


def of_config(c: Config) -> Loaded:
    """Load the backbone that `init_from` names.

    Raises:
      UsageError: the config cannot work, or there is no such backbone.
    """
    checks.check(c)
    model = backbones.backbone(c)
    shardings = placement.split(c, model.config)
    return Loaded(c, model, backbones.first_params(c, model, shardings), 0)


def of_run(workdir: Path, which: str) -> Loaded:
    """Load the policy that a run has trained, under the config of that run.

    Args:
      workdir: workdir of the run.
      which: "latest", "best", or a step.

    Raises:
      UsageError: there is no such run or step, or its config no longer works.
    """
    c = config.stored_config(workdir)
    checks.check(c)
    return Loaded(c, *backbones.restore(workdir, which, c))
