"""Many episodes at once, by messages: played as they come, and graded as all others."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from openagent_jax.agents.agents import Agent, Full, Unanswered
from openagent_jax.agents.log import Line
from openagent_jax.evaluation import episodes as kept
from openagent_jax.text.messages import Message
from openagent_jax.types import Outcome

NO_ROOM = "no room"  # for more of the conversation, in the context of the agent
PATIENCE = 16  # episodes in a row without an answer, before it is given up


class Spent(RuntimeError):
    """The budget does not last."""


@dataclass
class Budget:
    """Of replies, and of tokens as the agent counts them; 0 is without end."""

    max_calls: int = 0
    max_tokens: int = 0
    num_calls: int = 0
    num_tokens: int = 0

    def take(self) -> None:
        """One more reply is asked for."""
        if self.max_calls and self.num_calls >= self.max_calls:
            raise Spent(f"{self.num_calls} calls are made, as many as max_calls allows")
        if self.max_tokens and self.num_tokens >= self.max_tokens:
            raise Spent(f"{self.num_tokens} tokens are used, max_tokens allows no more")
        self.num_calls += 1


class Turns(Protocol):
    """An episode that goes on by messages."""

    tools: list[dict[str, Any]]
    messages: list[Message]
    finished: bool
    terminated: bool  # by the agent
    outcome: Outcome
    actions: list[dict[str, Any]]
    results: list[str | None]
    rewards: dict[str, list[float]]

    def hear(self, reply: Message, cut: bool) -> None: ...
    def close(self) -> None: ...


class Episode(NamedTuple):
    """One that is to be played."""

    scenario: str
    index: int  # of the task
    begin: Callable[[], Turns]
    facts: Line  # what is known before: task_key, changed, unsolvable, plan


async def play(
    episodes: Iterable[Episode], agent: Agent, num: int, budget: Budget
) -> AsyncGenerator[Line]:
    """Play episodes, so many at once; what is over is yielded at once.

    Raises:
      Spent, agents.Rejected: no more can be played.
      RuntimeError: the agent has ceased to answer.
    """
    waiting, silent, spent, reason = iter(episodes), 0, None, ""
    running: set[asyncio.Task] = set()
    patience = max(PATIENCE, 2 * num)
    try:
        while True:
            while not spent and len(running) < num:
                if not (episode := next(waiting, None)):
                    break
                played = _play(episode, agent, budget)
                running.add(asyncio.ensure_future(played))
            if not running:
                break
            over, running = await asyncio.wait(
                running, return_when=asyncio.FIRST_COMPLETED
            )
            for task in sorted(over, key=_failed):  # an error ends all
                if isinstance(error := task.exception(), Spent):
                    spent = error  # those that wait for a last reply may get it
                    continue
                outcome = task.result()
                silent = 0 if outcome["answered"] else silent + 1
                reason = outcome.get("reason", "")
                yield outcome
            if silent >= patience:  # all that is over has been told by now
                raise RuntimeError(
                    f"{silent} episodes in a row had no answer: {reason}"
                )
        if spent:
            raise spent
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _play(episode: Episode, agent: Agent, budget: Budget) -> Line:
    begin, num_tokens, num_replies, reason = time.monotonic(), 0, 0, ""
    dialogue = episode.begin()
    try:
        while not dialogue.finished:
            budget.take()
            reply = await agent(dialogue.messages, dialogue.tools)
            num_replies += 1
            num_tokens += reply.num_tokens
            budget.num_tokens += reply.num_tokens
            dialogue.hear(reply.message, reply.cut)
    except Full as error:
        dialogue.close()
        reason = f"{NO_ROOM}: {error}"
    except Unanswered as error:
        reason = str(error)
    full = reason.startswith(NO_ROOM)
    return {
        "scenario": episode.scenario,
        "index": episode.index,
        **kept.outcome(dialogue.outcome),
        "answered": dialogue.finished,
        "failure": kept.failure(
            dialogue.outcome, dialogue.terminated, full, dialogue.finished
        ),
        **episode.facts,
        "num_replies": num_replies,
        "num_tokens": num_tokens,
        "seconds": round(time.monotonic() - begin, 3),
        **({"reason": reason} if reason else {}),
        "tools": dialogue.tools,
        "messages": dialogue.messages,
        "actions": dialogue.actions,
        "results": dialogue.results,
        "rewards": dialogue.rewards,
    }


def _failed(task: asyncio.Task) -> bool:
    return task.exception() is not None
