"""The oracle's demonstrations as records, each a function of (seed, split, index)."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import perturb
from openagent_jax.sandbox import demonstrate, domain, lexicon, render
from openagent_jax.types import Task, Trajectory

CLEAN = "clean"  # in place of the name of a perturbation
BATCH = 64  # demonstrations made at once
Record = dict[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What demonstrations are made of."""

    lexicon: lexicon.Lexicon
    sample: Callable[[jax.Array, str], Task]  # (key, split) -> task
    domain: str
    families: Sequence[str]  # names of the goals
    max_turns: int
    num_tokens: int  # what is longer is left out
    seed: int
    # As PAFT: a share of the tasks, by one of the names, at a strength.
    alpha: float = 0.0
    strength: float = 1.0
    perturbations: Sequence[str] = ()
    edits: dict[str, perturb.Perturbation] | None = None  # one of them, by split
    about: Record = field(default_factory=dict)  # what else readers are told

    def metadata(self) -> Record:
        """What a reader needs to know of the records."""
        return {
            **fingerprints(self.lexicon),
            "domain": self.domain,
            "seed": self.seed,
            "num_tokens": self.num_tokens,
            "max_turns": self.max_turns,
            "alpha": self.alpha,
            "strength": self.strength,
            "perturbations": list(self.perturbations) if self.alpha else [],
            **self.about,
        }


def fingerprints(lexicon: lexicon.Lexicon) -> dict[str, str]:
    """Of what the tokens mean, and of how messages are written with them."""
    table = lexicon.token_bytes
    digest = hashlib.sha256(np.asarray(table.flat).tobytes())
    digest.update(np.asarray(table.length).tobytes())
    return {
        "tokenizer": digest.hexdigest()[:16],
        "chat_form": lexicon.style_digest,
    }


def is_perturbed(index: np.ndarray, alpha: float) -> np.ndarray:
    """A share `alpha` of all indices, spread evenly."""

    def before(n):
        return np.floor(np.round(alpha * n, 6))  # 0.3 * 10 is 3

    return before(index + 1) > before(index)


def player(
    recipe: Recipe, split: str
) -> Callable[[jax.Array, jax.Array], tuple[Trajectory, jax.Array]]:
    """`(index, whether it is perturbed) -> (episode, which perturbation, or -1)`."""
    root = jax.random.key(recipe.seed)
    root = jax.random.fold_in(root, domain.SPLITS[split])

    def play(index, noisy):
        task_key, perturb_key = jax.random.split(jax.random.fold_in(root, index))
        task, name = recipe.sample(task_key, split), jnp.int32(-1)
        if recipe.alpha and recipe.edits:
            # Perturbed at no strength is not perturbed at all.
            strength = jnp.where(noisy, recipe.strength, 0.0)
            new = recipe.edits[split](perturb_key, task, strength)
            drawn, _ = perturb.drawn(perturb_key, len(recipe.perturbations))
            # Some find nothing to change in some tasks.
            name = jnp.where(perturb.equal(new, task), -1, drawn)
            task = new
        return demonstrate.demonstrate(recipe.lexicon, task, recipe.max_turns), name

    return play


def maker(recipe: Recipe, split: str) -> Callable[[jax.Array, jax.Array], Record]:
    """`(indices, which are perturbed) -> arrays` of demonstrations, compiled."""
    play = player(recipe, split)

    def one(index, noisy):
        episode, name = play(index, noisy)
        task = episode.task
        tokens, _, loss_mask, length = render.trajectory(
            recipe.lexicon, episode, recipe.num_tokens
        )
        return {
            "tokens": tokens,
            "loss_mask": loss_mask,
            "length": length,
            "world": task.world,
            "perturbation": name,
            "family": task.goal.family,
            "num_calls": episode.state.num_calls,
            "solvable": episode.state.solvable,
        }

    return jax.jit(jax.vmap(one))


def records(recipe: Recipe, split: str, num: int) -> Iterator[Record | None]:
    """Of the indices 0 to num - 1, in their order; None for one that is too long."""
    for index, row in enumerate(made(maker(recipe, split), recipe.alpha, num)):
        length, name = int(row.pop("length")), int(row["perturbation"])
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
            "perturbation": recipe.perturbations[name] if name >= 0 else CLEAN,
            "strength": recipe.strength if name >= 0 else 0.0,
            "family": recipe.families[int(row["family"])],
        }


def made(make: Callable, alpha: float, num: int) -> Iterator[Any]:
    """What `make` makes of the indices 0 to num - 1, one by one."""
    for first in range(0, num, BATCH):
        # All batches have one size, and so one program.
        index = np.arange(first, first + BATCH)
        noisy = is_perturbed(index, alpha)
        rows = jax.device_get(make(jnp.asarray(index), jnp.asarray(noisy)))
        for i in range(min(BATCH, num - first)):
            yield jax.tree.map(lambda x, i=i: x[i], rows)
