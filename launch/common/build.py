"""Build the parts of a run from its config."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from launch.common import errors, tokenizer_files
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from launch.common.sections import Monitor
from openagent_jax import (
    expert,
    monitors,
    rollout,
)
from openagent_jax.algorithms import grpo, policy_gradient, ppo, sft
from openagent_jax.curriculum import draw, mix
from openagent_jax.data.demonstrations import Recipe
from openagent_jax.environments import registry
from openagent_jax.environments.world import Spelling, World
from openagent_jax.interop import chat_template
from openagent_jax.text import chat, style
from openagent_jax.types import (
    Algorithm,
    Curriculum,
    Environment,
    Local,
    Metrics,
    Policy,
    undivided,
)


def world(c: Config, model: Backbone, domain: str) -> World:
    """Return the environment of a domain under the model's tokenizer and template.

    Raises:
      UsageError: the domain cannot be used, or its texts do not fit the config's sizes.
    """
    if c.sandbox.context_tokens > model.config.max_positions:
        raise UsageError(
            f"sandbox.context_tokens={c.sandbox.context_tokens} is more than the "
            f"{model.config.max_positions} positions that {model.folder} has"
        )
    _, text_style = style_of(c.sandbox.num_args, model)
    with errors.blame(f"sandbox, with the domain {domain}"):
        made = registry.make(
            c.sandbox.of(domain),
            Spelling(model.tokenizer, text_style, model.config.vocab_size, c.max_sizes),
        )
    if model.template:  # documents are long in a chat template
        _check_sizes(c, made)
    return made


def style_of(
    num_args: int, model: Backbone
) -> tuple[chat.Template | None, style.Style[str]]:
    """Return how episodes are written: in the model's chat template, or compactly.

    Returns:
      The template, or None for the compact style; and the style of its text.

    Raises:
      UsageError: the model has no template that can be used, and no compact style.
    """
    if model.template:
        with errors.blame("model.chat_template"):
            template = chat_template.load(model.tokenizer, model.template, model.folder)
            return template, chat.read(template, num_args)
    if model.tokenizer.token_to_id(style.END) is None:
        raise UsageError(
            f"{model.folder} has no chat template; name one by model.chat_template: "
            f"{', '.join(tokenizer_files.TEMPLATES)}, or a .jinja file"
        )
    return None, style.compact(num_args)


def _check_sizes(c: Config, source: World) -> None:
    """Check that the prompts of a few tasks fit."""
    longest = _longest_prompt(source, jax.random.key(c.seed), num=64)
    limits = {"sandbox.prompt_tokens": c.sandbox.prompt_tokens}
    if not c.algorithm.is_reinforcement:
        limits["algorithm.num_tokens"] = c.algorithm.num_tokens
    for key, size in limits.items():
        if longest > size:
            raise UsageError(
                f"{key}={size} is too short for the prompts of these tasks, which take "
                f"{longest} tokens and more; raise it, and sandbox.context_tokens too"
            )


def _longest_prompt(source: World, key: jax.Array, num: int) -> int:
    """Return the number of tokens of the longest of `num` prompts."""
    environment = source.environment

    @jax.jit
    def lengths(tables, keys):
        def one(key):
            task = environment.sample(tables, key, "train")
            return expert.num_tokens(tables, environment.prompt(tables, task))

        return jax.vmap(one)(keys)

    return int(lengths(source.tables, jax.random.split(key, num)).max())


def curriculum(
    c: Config, environment: Environment, key: jax.Array, local: Local = undivided
) -> Curriculum:
    """Return the curriculum, which mixes in perturbed tasks if `paft.alpha` > 0.

    Args:
      c: the config.
      environment: the environment of the tasks.
      key: the root key of the run, for tasks that are repeated.
      local: lets each device make its own tasks.
    """
    clean = draw.clean(environment, local=local)
    if c.train.num_tasks:
        clean = draw.repeated(environment, c.train.num_tasks, key, local=local)
    if c.paft.alpha == 0:
        return clean
    return mix.paft(
        clean,
        environment,
        mix.chosen(environment, c.paft.perturbations, c.paft.leave_out),
        c.paft.alpha,
        c.paft.schedule,
        c.paft.paired,
        c.num_sampled_tasks // c.train.batch_size,  # of which GRPO keeps one
        local,
    )


def algorithm(
    c: Config,
    policy: Policy,
    environment: Environment,
    local: Local = undivided,
    platform: str = "",
) -> Algorithm:
    """Return the algorithm that makes batches and computes their loss.

    Args:
      c: the config.
      policy: the model that is trained.
      environment: the environment of the tasks.
      local: lets each device make its own rows.
      platform: where it runs; by default on the platform that JAX uses.
    """
    if c.algorithm.name == "sft":
        num_tokens, num_rows = c.algorithm.num_tokens, c.algorithm.num_rows
        return sft.sft(policy, environment, num_tokens, num_rows, local)
    learner = policy_gradient.Learner(
        policy,
        environment,
        c.reward.weights,
        c.algorithm.temperature,
        c.surrogate.objective,
        local,
        c.rollout.num_rows or rollout.usual_rows(platform or jax.default_backend()),
    )
    if c.algorithm.name == "grpo":
        apart = c.paft.alpha and c.paft.paired and not c.grpo.paired
        return grpo.grpo(learner, c.grpo.groups._replace(unit=2 if apart else 1))
    return ppo.ppo(learner, c.ppo.critic)


def recipe(c: Config, source: World, **about: Any) -> Recipe:
    """Return the recipe of a dataset of demonstrations.

    Args:
      c: the config.
      source: the world that tasks are drawn from.
      **about: further metadata of the dataset.
    """
    names = mix.chosen(source.environment, c.paft.perturbations, c.paft.leave_out)
    return Recipe(
        world=source,
        domain=c.sandbox.domain,
        num_tokens=c.algorithm.num_tokens,
        seed=c.seed,
        alpha=c.paft.alpha,
        strength=c.paft.strength,
        perturbations=names if c.paft.alpha else (),
        about=about | {"sandbox": dataclasses.asdict(c.sandbox)},
    )


def watch(
    monitor: Monitor, warn: Callable[[str], None]
) -> Callable[[int, Metrics], None]:
    """Return a function that compares the metrics of each step with their bounds.

    Args:
      monitor: the bounds.
      warn: called with a warning of one line.
    """
    watched = monitors.Watchdog(monitor.bounds, monitor.patience, monitor.stop, warn)
    return watched.check
