"""Play many episodes concurrently by exchanging messages with an agent."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from openagent_jax.agents.agents import Agent, Full, Rejected, Reply, Unanswered
from openagent_jax.agents.cost import Prices
from openagent_jax.agents.log import Line
from openagent_jax.evaluation import episodes as kept
from openagent_jax.report import causes
from openagent_jax.text.messages import Message
from openagent_jax.types import Outcome

NO_ROOM = "no room"  # starts the reason if the conversation exceeds the agent's context
PATIENCE = 16  # give up after this many episodes in a row without an answer


class BudgetExceeded(RuntimeError):
    """The budget is used up."""


@dataclass
class Budget:
    """Limits of replies, of tokens as the agent counts them, and of what they cost.

    0 means no limit.
    """

    max_calls: int = 0
    max_tokens: int = 0
    max_cost: float = 0.0  # in the currency of the prices
    prices: Prices = Prices()
    num_calls: int = 0
    num_tokens: int = 0
    cost: float = 0.0
    # Whether some reply came with its tokens of the prompt or of the completion. Others
    # have their sum alone, which has no price.
    is_priced: bool = False

    def take(self) -> None:
        """Count one more request for a reply.

        Raises:
          BudgetExceeded: the budget does not allow it.
        """
        if self.max_calls and self.num_calls >= self.max_calls:
            raise BudgetExceeded(
                f"max_calls is reached: {self.num_calls} calls were made"
            )
        if self.max_tokens and self.num_tokens >= self.max_tokens:
            raise BudgetExceeded(
                f"max_tokens is reached: {self.num_tokens} tokens were used"
            )
        if self.max_cost and self.cost >= self.max_cost:
            raise BudgetExceeded(f"max_cost is reached: {self.cost:.2f} was spent")
        self.num_calls += 1

    def use(self, reply: Reply) -> None:
        """Count the tokens of a reply.

        Raises:
          Rejected: tokens are limited, and the agent has not told of any so far.
        """
        both = reply.prompt_tokens + reply.completion_tokens
        self.num_tokens += reply.num_tokens or both
        self.is_priced |= both > 0
        limit = ""
        if self.max_tokens and not self.num_tokens:
            limit = "max_tokens"
        if self.max_cost and not self.is_priced:
            limit = "max_cost"
        if limit:
            what = "tokens it uses"
            if self.num_tokens:
                what = "of its tokens are prompt and how many are completion tokens"
            raise Rejected(
                f"the agent does not report how many {what}, so {limit} cannot be "
                "enforced; give max_calls instead"
            )
        self.cost += self.prices.of(reply.prompt_tokens, reply.completion_tokens)


class Turns(Protocol):
    """An episode that is played by messages, such as `dialogue.Dialogue`."""

    tools: list[dict[str, Any]]
    messages: list[Message]
    finished: bool
    terminated: bool  # whether the agent ended the episode
    outcome: Outcome
    actions: list[dict[str, Any]]
    results: list[str | None]
    rewards: dict[str, list[float]]

    def receive(self, reply: Message, cut: bool) -> None: ...
    def close(self) -> None: ...


class Episode(NamedTuple):
    """An episode to be played."""

    scenario: str
    index: int  # of the task
    begin: Callable[[], Turns]
    facts: Line  # known before it is played: task_key, changed, unsolvable, plan


async def play(
    episodes: Iterable[Episode], agent: Agent, num: int, budget: Budget
) -> AsyncGenerator[Line]:
    """Play episodes concurrently, and yield each as soon as it is over.

    Args:
      episodes: the episodes to play.
      agent: the agent that plays them.
      num: how many episodes are played at the same time.
      budget: the budget of all episodes together.

    Raises:
      BudgetExceeded: the budget is used up; running episodes that still finish are
        yielded.
      agents.Rejected: the agent can play no episode.
      RuntimeError: the agent has stopped answering.
    """
    waiting, silent, spent, reason = _compiled(episodes), 0, None, ""
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
            for task in sorted(over, key=_failed):  # errors last: they end the loop
                if isinstance(error := task.exception(), BudgetExceeded):
                    spent = error  # episodes that wait for a last reply may get it
                    continue
                outcome = task.result()
                silent = 0 if outcome["answered"] else silent + 1
                reason = outcome.get("reason", "")
                yield outcome
            if silent >= patience:  # finished episodes have been yielded by now
                raise RuntimeError(
                    f"{silent} episodes in a row had no answer: {reason}"
                )
        if spent:
            raise spent
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _compiled(episodes: Iterable[Episode]) -> Iterator[Episode]:
    """Yield episodes, once a turn of the first one has been compiled.

    Otherwise the latency of the first replies would include the time of compilation.
    """
    for number, episode in enumerate(episodes):
        if not number:
            episode.begin().receive({"role": "assistant", "content": ""}, False)
        yield episode


async def _play(episode: Episode, agent: Agent, budget: Budget) -> Line:
    begin, reason, num_failed = time.monotonic(), "", 0
    replies: list[Reply] = []
    latencies: list[float] = []
    dialogue = episode.begin()
    try:
        while not dialogue.finished:
            budget.take()
            asked = time.monotonic()
            reply = await agent(dialogue.messages, dialogue.tools)
            latencies.append(round(time.monotonic() - asked, 3))
            replies.append(reply)
            budget.use(reply)
            dialogue.receive(reply.message, reply.cut)
    except Full as error:
        dialogue.close()
        reason, num_failed = f"{NO_ROOM}: {error}", error.num_requests
    except Unanswered as error:
        reason, num_failed = str(error), error.num_requests
    full = reason.startswith(NO_ROOM)
    line = {
        "scenario": episode.scenario,
        "index": episode.index,
        **kept.outcome(dialogue.outcome),
        "answered": dialogue.finished,
        "failure": kept.failure(
            dialogue.outcome, dialogue.terminated, full, dialogue.finished
        ),
        **episode.facts,
        "num_replies": len(replies),
        "num_requests": sum(x.num_requests for x in replies) + num_failed,
        "num_tokens": sum(x.num_tokens for x in replies),
        "prompt_tokens": sum(x.prompt_tokens for x in replies),
        "completion_tokens": sum(x.completion_tokens for x in replies),
        "seconds": round(time.monotonic() - begin, 3),
        "latencies": latencies,
        **({"reason": reason} if reason else {}),
        "tools": dialogue.tools,
        "messages": dialogue.messages,
        "actions": dialogue.actions,
        "results": dialogue.results,
        "rewards": dialogue.rewards,
    }
    return line | {"cause": causes.why(line).cause}


def _failed(task: asyncio.Task) -> bool:
    return task.exception() is not None
