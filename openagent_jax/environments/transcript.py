"""Episodes as messages: what an agent that communicates by messages sees and writes."""

import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from openagent_jax.environments.world import Message, Transcriber
from openagent_jax.text.messages import STRICT
from openagent_jax.types import Action, Trajectory


def messages(
    transcriber: Transcriber,
    episode: Trajectory,
    shown: Any,
    texts: Sequence[str] = (),
) -> list[Message]:
    """Return the messages of one episode; every call has its own id.

    Args:
      transcriber: the transcriber of the environment.
      episode: one episode, in NumPy.
      shown: [T, P] pieces of what the agent is shown after each turn, as returned by
        `transcriber.observe`.
      texts: what the agent wrote in each turn, if that is known; see `turns`.
    """
    parts = turns(transcriber, episode, shown, texts)
    return list(chat(transcriber.opening(episode.task), parts))


class Turn(NamedTuple):
    """An action of the agent, and what it is shown afterwards."""

    message: Message
    reply: tuple[str, str] | None  # role and content; None if it is shown nothing


def turns(
    transcriber: Transcriber,
    episode: Trajectory,
    shown: Any,
    texts: Sequence[str] = (),
) -> list[Turn]:
    """Return the turns of one episode.

    Args:
      transcriber: the transcriber of the environment.
      episode: one episode, in NumPy.
      shown: [T, P] pieces of what the agent is shown after each turn, as returned by
        `transcriber.observe`.
      texts: what the agent wrote in each turn, if that is known. Actions hold neither
        texts that could not be parsed nor wrong arguments; they are taken from here.
    """
    made, (leaves, tree) = [], jax.tree.flatten(episode.action)
    for turn in np.flatnonzero(episode.valid).tolist():
        action = jax.tree.unflatten(tree, [leaf[turn] for leaf in leaves])
        message = dict(transcriber.message(episode.task, action))
        if texts:
            message = as_written(message, texts[turn])
        made.append(Turn(message, transcriber.shown(shown[turn])))
    return made


def chat(opening: Iterable[Message], turns: Iterable[Turn]) -> Iterator[Message]:
    """Yield the messages of an episode; every call has its own id."""
    yield from opening
    for number, (message, reply) in enumerate(turns):
        message, answer = dict(message), {}
        if message.get("tool_calls"):
            answer["tool_call_id"] = f"call{number:05d}"
            calls = message["tool_calls"]
            message["tool_calls"] = [
                call | {"id": answer["tool_call_id"]} for call in calls
            ]
        yield message
        if reply is not None:
            role, content = reply
            # A message with the role "tool" must answer a call.
            yield {"role": role if answer else "user", **answer, "content": content}


def as_written(message: Message, text: str) -> Message:
    """Return a message with what the agent wrote where its action does not hold it.

    This is a text that could not be parsed, or wrong arguments of a call.
    """
    calls = message.get("tool_calls") or ()
    if not calls:
        return message if message["content"] else message | {"content": text}
    (call,) = calls
    function = call["function"]
    arguments = _arguments(text, function["name"])
    if arguments is None or _same(arguments, function["arguments"]):
        return message  # equal as texts: 4 and "4" are the same value
    function = function | {"arguments": arguments}
    return message | {"tool_calls": [call | {"function": function}]}


def _arguments(text: str, name: str) -> dict[str, Any] | None:
    """Return the arguments of the call in a text.

    The result is None if the text has no call of that name, or if the call has a
    duplicate key or arguments that are not an object.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_once, **STRICT)
    try:
        call, _ = decoder.raw_decode(text, max(text.find("{"), 0))
    except (ValueError, RecursionError):
        return None
    if not isinstance(call, dict) or call.get("name") != name:
        return None
    found = [call[key] for key in ("arguments", "parameters") if key in call]
    return found[0] if found and isinstance(found[0], dict) else None


def _same(written: dict[str, Any], understood: dict[str, Any]) -> bool:
    """Tell whether two sets of arguments are equal when written as texts."""
    texts = ({key: str(x) for key, x in made.items()} for made in (written, understood))
    return operator.eq(*texts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a dictionary of these pairs.

    Raises:
      ValueError: a key occurs twice.
    """
    if len(made := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return made


def plan(
    transcriber: Transcriber, task: Any, actions: Action, valid: Any
) -> list[dict[str, Any]]:
    """Return the valid actions of one episode (in NumPy), each as by `described`."""
    leaves, tree = jax.tree.flatten(actions)
    parts = (
        jax.tree.unflatten(tree, [leaf[turn] for leaf in leaves])
        for turn in np.flatnonzero(valid).tolist()
    )
    return [described(transcriber.message(task, action)) for action in parts]


def described(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a short description of a message of the agent, for reports.

    >>> described({"role": "assistant", "content": "Answer: 4"})
    {'text': 'Answer: 4'}
    >>> call = {"function": {"name": "get", "arguments": {"item": "log"}}}
    >>> described({"content": "", "tool_calls": [call]})
    {'name': 'get', 'arguments': {'item': 'log'}}
    """
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function["arguments"]
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments, **STRICT)
            except ValueError:
                pass
        return {"name": function["name"], "arguments": arguments}
    return {"text": message.get("content") or ""}


def in_short(action: Mapping[str, Any]) -> str:
    """Return the result of `described` as one line of text.

    >>> in_short({"name": "get", "arguments": {"item": "log"}})
    "get(item='log')"
    """
    if "name" not in action:
        return action["text"]
    arguments = action["arguments"]
    if not isinstance(arguments, Mapping):
        return f"{action['name']}({arguments})"
    pairs = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    return f"{action['name']}({pairs})"
