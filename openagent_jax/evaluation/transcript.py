"""Format episodes as text for people, one alone or two side by side.

Episodes are shown as they look to an agent that exchanges messages. They are either
played by the expert or read from the files of an evaluation.
"""

import difflib
import itertools
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import expert
from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.environments.world import Transcriber, World
from openagent_jax.types import Trajectory

# Marks of a line: the same on both sides, different, or on one side only.
SAME, OTHER, LEFT, RIGHT = " ", "|", "<", ">"
_INDENT = " " * 7


def episodes(
    world: World,
    scenario: str,
    key: jax.Array,
    num: int,
    strength: float,
    split: str = "test",
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the expert's episode of each task, clean and perturbed, as lines of text.

    Args:
      world: the world of the tasks.
      scenario: a perturbation of the catalogue; "clean" leaves tasks as they are.
      key: the key of the tasks, as for `draw.task_keys`.
      num: how many tasks; fewer if the split has only so many.
      strength: the strength of the perturbation, in [0, 1].
      split: the split of the tasks.

    Raises:
      ValueError: there is no such perturbation.
    """
    environment, transcriber = world.environment, world.transcriber
    names = [] if scenario == draw.CLEAN else [scenario]
    one = draw.make_draw(environment, names, split)
    num = draw.num_tasks(environment, world.tables, split, num)
    keys = draw.task_keys(key, 0, num)
    index = draw.indices(environment, world.tables, split, key, 0, num)

    @jax.jit
    def play(tables, number, keys):
        def play_one(key, edit_key, index):
            task = one(tables, key, edit_key, jnp.float32(strength), number, index).task
            episode = expert.demonstrate(environment, tables, task)
            shown = jax.vmap(transcriber.observe, (None, 0))(
                task, episode.timestep.observation
            )
            outcome = environment.outcome(tables, task, episode.state)
            return episode, shown, outcome.success

        return jax.vmap(play_one)(keys, draw.edit_keys(keys), index)

    both = [
        jax.device_get(play(world.tables, jnp.int32(i), keys)) for i in (0, len(names))
    ]
    for row in range(num):
        clean, other = (
            list(_lines(transcriber, *jax.tree.map(lambda x, row=row: x[row], played)))
            for played in both
        )
        yield clean, other


def _lines(
    transcriber: Transcriber, episode: Trajectory, shown: np.ndarray, success: bool
) -> Iterator[str]:
    messages = transcript.messages(transcriber, episode, shown)
    yield from conversation(messages, transcriber.tools(episode.task))
    yield f"{'solved' if success else 'not solved'} by the oracle"


def kept(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of an episode that an evaluation kept.

    They show what happened, how it ended, and what the expert would have done.

    Args:
      line: an episode as `report.trajectories.read` yields it.
    """
    yield from conversation(line["messages"], line["tools"])
    yield f"failure: {line['failure']}" if line["failure"] else "success"
    if line["unsolvable"]:
        yield f"by the oracle it cannot be solved: {line['unsolvable']}"
    if line["plan"]:
        yield f"oracle {'; '.join(map(transcript.in_short, line['plan']))}"


def conversation(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the lines of an episode: first its tools, then its messages.

    Args:
      messages: the messages of the episode; those of the system are left out.
      tools: the tools, in OpenAI's function format.
    """
    for tool in tools:
        function = tool["function"]
        properties = (function.get("parameters") or {}).get("properties", {})
        described = " ".join((function.get("description") or "").split())
        yield f"offers {function['name']}({', '.join(properties)}): {described}"
    for message in messages:
        role = message["role"]
        if role == "assistant":
            yield f"agent  {transcript.in_short(transcript.described(message))}"
        elif role != "system":
            yield f"{role:7}{message['content']}"


def side_by_side(
    left: Sequence[str], right: Sequence[str], width: int
) -> Iterator[tuple[str, str]]:
    """Yield `(mark, row)` for each row of a diff with two columns.

    Args:
      left: the lines of the left column.
      right: the lines of the right column.
      width: the width of a row, in characters: both columns and the mark between them.
    """
    room = (width - 3) // 2
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        for one, other in itertools.zip_longest(left[a:b], right[c:d]):
            mark = LEFT if other is None else RIGHT if one is None else OTHER
            mark = SAME if tag == "equal" else mark
            cells = (_wrapped(text, room) for text in (one, other))
            for first, second in itertools.zip_longest(*cells, fillvalue=""):
                yield mark, f"{first:{room}} {mark} {second}".rstrip()


def _wrapped(text: str | None, room: int) -> list[str]:
    return textwrap.wrap(text or "", room, subsequent_indent=_INDENT)
