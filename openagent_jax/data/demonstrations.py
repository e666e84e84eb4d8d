"""The expert's demonstrations as records, each a function of (seed, split, index)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax import expert
from openagent_jax.curriculum import draw, mix
from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.environments.world import SPLITS, World
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import Tables, Trajectory

BATCH = 64  # number of demonstrations that are made at once
Record = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """How demonstrations are made."""

    world: World
    domain: str
    num_tokens: int  # longer demonstrations are left out
    seed: int
    # As in PAFT: a share `alpha` of the tasks is perturbed.
    alpha: float = 0.0
    strength: float = 1.0
    perturbations: Sequence[str] = ()  # names; one is drawn for each perturbed task
    about: Record = field(default_factory=dict)  # further entries of the metadata

    def metadata(self) -> Record:
        """Return the metadata that are stored with the records."""
        return {
            **fingerprints(self.world.tables.lexicon),
            "domain": self.domain,
            "seed": self.seed,
            "num_tokens": self.num_tokens,
            "max_turns": self.world.environment.sizes.max_turns,
            "alpha": self.alpha,
            "strength": self.strength,
            "perturbations": list(self.perturbations) if self.alpha else [],
            **self.about,
        }


def fingerprints(lexicon: Lexicon) -> dict[str, str]:
    """Return digests of the tokenizer and of the chat style.

    Records can be used only with the tokenizer and style that they were made with.
    """
    table = lexicon.token_bytes
    digest = hashlib.sha256(np.asarray(table.flat).tobytes())
    digest.update(np.asarray(table.length).tobytes())
    return {
        "tokenizer": digest.hexdigest()[:16],
        "chat_style": lexicon.style_digest,
    }


def player(
    recipe: Recipe, split: str
) -> Callable[..., tuple[Trajectory, Int[Array, ""]]]:
    """Return a function in which the expert demonstrates the task of an index.

    Returns:
      `play(tables, index, perturbed) -> (episode, scenario)`. Scenario 0 is clean, i is
      the i-th of the recipe's perturbations.
    """
    environment = recipe.world.environment
    root = jax.random.fold_in(jax.random.key(recipe.seed), SPLITS.index(split))
    names = recipe.perturbations if recipe.alpha else ()
    one = draw.make_draw(environment, names, split)

    def play(tables: Tables, index, perturbed):
        task_key, edit_key = jax.random.split(jax.random.fold_in(root, index))
        # Strength 0 leaves a task as it is.
        strength = jnp.where(perturbed, recipe.strength, 0.0)
        task, scenario, _ = one(tables, task_key, edit_key, strength)
        return expert.demonstrate(environment, tables, task), scenario

    return play


def maker(recipe: Recipe, split: str) -> Callable[..., tuple[Record, Any]]:
    """Return a compiled `make(tables, indices, perturbed) -> (records, tasks)`."""
    environment = recipe.world.environment
    play = player(recipe, split)

    def one(tables, index, perturbed):
        episode, scenario = play(tables, index, perturbed)
        tokens, _, loss_mask, length = expert.write(
            environment, tables, episode, recipe.num_tokens
        )
        outcome = environment.outcome(tables, episode.task, episode.state)
        record = {
            "tokens": tokens,
            "loss_mask": loss_mask,
            "length": length,
            "perturbation": scenario,
            "num_calls": outcome.num_calls,
            "solvable": outcome.solvable,
        }
        return record, episode.task

    return jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))


def records(recipe: Recipe, split: str, num: int) -> Iterator[Record | None]:
    """Yield the records of the indices 0 to num - 1; None for one that is too long."""
    rows = made(maker(recipe, split), recipe, num)
    for index, (row, task) in enumerate(rows):
        length, scenario = int(row.pop("length")), int(row["perturbation"])
        if length > recipe.num_tokens:
            yield None
            continue
        yield row | {
            "tokens": row["tokens"][:length],
            "loss_mask": row["loss_mask"][:length],
            "seed": recipe.seed,
            "index": index,
            "split": split,
            "domain": recipe.domain,
            "goal": recipe.world.transcriber.goal(task),
            "perturbation": recipe.perturbations[scenario - 1] if scenario else CLEAN,
            "strength": recipe.strength if scenario else 0.0,
        }


def made(make: Callable, recipe: Recipe, num: int) -> Iterator[Any]:
    """Yield the results of `make` for the indices 0 to num - 1, one by one.

    Args:
      make: `(tables, indices, perturbed) -> results`, for a batch of indices.
      recipe: how the demonstrations are made.
      num: number of indices.
    """
    for first in range(0, num, BATCH):
        # All batches have the same size, so that one compiled program makes them.
        index = np.arange(first, first + BATCH)
        perturbed = mix.is_perturbed(index, recipe.alpha)
        rows = make(recipe.world.tables, jnp.asarray(index), jnp.asarray(perturbed))
        rows = jax.device_get(rows)
        for i in range(min(BATCH, num - first)):
            yield jax.tree.map(lambda x, i=i: x[i], rows)
