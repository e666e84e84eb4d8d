"""Episodes as text for people, two of them side by side.

They are what an agent that speaks OpenAI's protocol is told; the oracle plays them.
"""

import difflib
import itertools
import json
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import evaluate
from openagent_jax.sandbox import conversation, demonstrate, render
from openagent_jax.types import Action, Task
from openagent_jax.worlds import Worlds

# Beside a line: it is the same in both, differs, or stands in one alone.
SAME, OTHER, LEFT, RIGHT = " ", "|", "<", ">"
_INDENT = " " * 7


def episodes(
    worlds: Worlds, scenario: str, keys: jax.Array, strength: float, max_turns: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Lines of each task, clean and under a scenario; the tasks are those of the test.

    Args:
      worlds: in the compact style.
      scenario: a perturbation of the catalogue; "clean" leaves tasks as they are.
      keys: one for each task.
      strength: of the perturbation.
      max_turns: of an episode.

    Raises:
      ValueError: there is no such perturbation.
    """
    names = [] if scenario == evaluate.CLEAN else [scenario]
    draw = evaluate.make_draw(worlds, names)
    writer = conversation.Writer(worlds.lexicon)

    @jax.jit
    def play(number, keys):
        def one(key):
            task, _ = draw(number, key, jnp.float32(strength))
            episode = demonstrate.demonstrate(worlds.lexicon, task, max_turns)
            show = partial(render.observation, worlds.lexicon.style, task)
            told = jax.vmap(show)(episode.result), episode.valid
            return task, episode.action, *told, episode.state.success

        return jax.vmap(one)(keys)

    both = [jax.device_get(play(jnp.int32(i), keys)) for i in (0, len(names))]
    for row in range(len(keys)):
        clean, other = (list(_lines(writer, *_row(played, row))) for played in both)
        yield clean, other


def _lines(
    writer: conversation.Writer,
    task: Task,
    actions: Action,
    told: np.ndarray,
    valid: np.ndarray,
    success: np.ndarray,
) -> Iterator[str]:
    for tool in writer.tools(task):
        function = tool["function"]
        arguments = ", ".join(function["parameters"]["properties"])
        yield f"offers {function['name']}({arguments}): {function['description']}"
    yield f"user   {writer.opening(task)[-1]['content']}"
    for turn in np.flatnonzero(valid):
        yield f"agent  {_said(writer.message(task, _row(actions, int(turn))))}"
        shown = writer.shown(told[turn])
        if shown is not None:
            yield f"{shown[0]:7}{shown[1]}"
    yield f"{'solved' if success else 'not solved'} by the oracle"


def _row(tree: Any, index: int) -> Any:
    return jax.tree.map(lambda x: x[index], tree)


def _said(message: conversation.Message) -> str:
    """What an agent says, in short."""
    for call in conversation.calls(message):
        arguments: dict[str, Any] = json.loads(call.arguments)
        pairs = (f"{name}={value!r}" for name, value in arguments.items())
        return f"{call.name}({', '.join(pairs)})"
    return conversation.content(message)


def side_by_side(
    left: Sequence[str], right: Sequence[str], width: int
) -> Iterator[tuple[str, str]]:
    """Rows of two columns, each with its mark; what belongs together is on one row.

    Args:
      left: lines.
      right: lines.
      width: of both columns and the mark between them.
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
