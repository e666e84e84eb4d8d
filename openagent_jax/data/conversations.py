"""The expert's demonstrations as conversations: `messages` and `tools`, in the format
of trainers and chat APIs. The tasks are the same as in `demonstrations`."""

from collections.abc import Iterator

import jax

from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.data import demonstrations
from openagent_jax.data.demonstrations import Recipe, Record
from openagent_jax.environments import transcript


def conversations(recipe: Recipe, split: str, num: int) -> Iterator[Record]:
    """Yield the conversations of the tasks 0 to num - 1, each as a JSON object.

    Args:
      recipe: how the demonstrations are made.
      split: "train" or "test".
      num: number of conversations.
    """
    environment, transcriber = recipe.world.environment, recipe.world.transcriber
    play = demonstrations.player(recipe, split)

    def one(tables, index, perturbed):
        episode, name = play(tables, index, perturbed)
        observe = jax.vmap(transcriber.observe, (None, 0))
        shown = observe(episode.task, episode.timestep.observation)
        outcome = environment.outcome(tables, episode.task, episode.state)
        return episode, shown, outcome.solvable, name

    make = jax.jit(jax.vmap(one, in_axes=(None, 0, 0)))
    rows = demonstrations.made(make, recipe, num)
    for index, (episode, shown, solvable, name) in enumerate(rows):
        yield {
            "messages": transcript.messages(transcriber, episode, shown),
            "tools": transcriber.tools(episode.task),
            "task_id": f"{recipe.domain}/{split}/{recipe.seed}/{index}",
            "perturbation": recipe.perturbations[name - 1] if name else CLEAN,
            "solvable": bool(solvable),
        }
