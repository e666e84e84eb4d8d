"""Find settings that do not suit the tasks of a run, before it trains on them."""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from launch.common import cached, scenarios
from launch.common.config import Config
from openagent_jax import expert, fast_compile, perturb
from openagent_jax.curriculum import draw, mix
from openagent_jax.environments import registry
from openagent_jax.environments.world import World

NUM_TASKS = 256  # tasks of each scenario, or fewer: BLOCK if there are many scenarios
MOST_TASKS = 4096  # of all scenarios: more take minutes in large mixtures
BLOCK = 64  # tasks that are played at once
# The part of `expert.Lengths` that each setting limits, and what becomes of tasks for
# which it is too small.
OF_DEMONSTRATIONS = {"algorithm.num_tokens": ("episode", "not trained on")}
OF_EPISODES = {
    "sandbox.prompt_tokens": ("prompt", "played, but not trained on"),
    "sandbox.action_tokens": ("action", "beyond what the policy can do"),
    "sandbox.result_tokens": ("result", "played, but not trained on"),
    "sandbox.context_tokens": ("episode", "beyond what the policy can do"),
}


def shortfalls(c: Config, source: World) -> Iterator[str]:
    """Yield a line for each setting that is too small for some tasks of a run.

    Args:
      c: the config of a run that makes its tasks itself.
      source: the world of its tasks.
    """
    lengths = measure(c, source)
    limits = OF_EPISODES if c.algorithm.is_reinforcement else OF_DEMONSTRATIONS
    for key, (part, consequence) in limits.items():
        limit = c.max_sizes[key]
        longer = {
            name: found[part] > limit
            for name, found in lengths.items()
            if np.any(found[part] > limit)
        }
        if longer:
            shares = ", ".join(
                f"{100 * x.mean():.2g} % of {name}" for name, x in longer.items()
            )
            most = max(int(found[part].max()) for found in lengths.values())
            yield (
                f"{key}={limit} is too small for {shares} tasks (up to {most} tokens), "
                f"which are {consequence}; raise it"
            )


def measure(c: Config, source: World) -> dict[str, dict[str, np.ndarray]]:
    """Return the lengths of the expert's episodes, by scenario and part.

    The scenarios are clean tasks and each perturbation that the run draws from, at the
    strength that it reaches.
    """
    return of_tasks(c, source, _drawn(c, source))


def check_compositions(c: Config, source: World) -> None:
    """Check that each composition that PAFT draws from changes some task.

    `NUM_TASKS` tasks are sampled, at strength 1. Without compositions, none is.

    Args:
      c: the config of a run, or of a dataset.
      source: the world of its tasks.

    Raises:
      UsageError: one changes none, because its parts do not go together there.
    """
    names = tuple(perturb.split_strength(x)[0] for x in _drawn(c, source).names)
    drawn = scenarios.Drawn(names, "train", c.seed, NUM_TASKS, strength=1.0)
    changed = scenarios.changed_by_compositions(source, drawn, BLOCK)
    scenarios.check_compositions(
        perturb.entries(source.environment, names),
        changed,
        f"{NUM_TASKS} sampled tasks of {c.sandbox.domain}",
        "paft.perturbations",
    )


def _drawn(c: Config, source: World) -> scenarios.Drawn:
    names = mix.chosen(source.environment, c.paft.perturbations, c.paft.leave_out)
    names = dict.fromkeys(names if c.paft.alpha else ())
    num_blocks = MOST_TASKS // (1 + len(names)) // BLOCK
    num_tasks = min(max(num_blocks, 1) * BLOCK, NUM_TASKS)
    return scenarios.Drawn(tuple(names), "train", c.seed, num_tasks, c.paft.strength)


def of_tasks(
    c: Config, source: World, drawn: scenarios.Drawn
) -> dict[str, dict[str, np.ndarray]]:
    """Return the lengths of the expert's episodes, by scenario and part.

    They are kept between runs, unless a domain is a user's file.

    Args:
      c: the config with which the world was made; its sizes may have been raised.
      source: the world of the tasks.
      drawn: the tasks, which are played clean and under each perturbation.
    """
    used = c.sandbox.domain, c.eval_domain, c.suite, c.sandbox.transfer
    own = any(map(registry.is_own, used))
    found = cached.result(
        "" if own else c.compile_cache,
        {
            "sandbox": dataclasses.asdict(c.sandbox),
            "sizes": source.environment.sizes,  # these may be other ones
            "drawn": drawn,
            "style": source.tables.lexicon.style_digest,
        },
        source.tables,
        lambda: {
            name: {part: lengths.tolist() for part, lengths in parts.items()}
            for name, parts in _measured(source, drawn).items()
        },
    )
    return {
        name: {part: np.array(lengths) for part, lengths in parts.items()}
        for name, parts in found.items()
    }


def _measured(
    source: World, drawn: scenarios.Drawn
) -> dict[str, dict[str, np.ndarray]]:
    environment, tables, repeats = source.environment, source.tables, drawn.repeats
    batch = draw.make_batch(environment, drawn.names, drawn.split, BLOCK, repeats)
    num, strength = drawn.num_tasks * repeats, jnp.float32(drawn.strength)

    def lengths(tables, task):
        episode = expert.demonstrate(environment, tables, task)
        return expert.lengths(environment, tables, episode)

    play = fast_compile.jit(jax.vmap(lengths, (None, 0)))
    root, found = jax.random.key(drawn.seed), {}
    for i, name in enumerate((draw.CLEAN, *drawn.names)):
        blocks = []
        for start in range(0, num, BLOCK):
            place = jnp.int32(i), root, jnp.int32(start)
            edited, _ = batch(tables, *place, strength)
            blocks.append(jax.device_get(play(tables, edited.task)))
        joined = jax.tree.map(lambda *x: np.concatenate(x)[:num], *blocks)
        found[name] = joined._asdict()
    return found
