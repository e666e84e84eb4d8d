"""What an evaluation by messages costs: estimated before it, and counted after it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

CHARS_PER_TOKEN = 4  # of English and JSON, roughly, for any tokenizer
RESULT_CHARS = 80  # of the message with a result, roughly
MILLION = 1_000_000


class Prices(NamedTuple):
    """The prices of a million tokens, in any currency; 0 where they are not known."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Return what tokens cost.

        >>> Prices(prompt=2.0, completion=8.0).of(500_000, 10_000)
        1.08
        """
        tokens = self.prompt * prompt_tokens + self.completion * completion_tokens
        return tokens / MILLION


class Expected(NamedTuple):
    """What an episode needs if it is played as the expert plays it."""

    changed: bool  # False: it is the clean episode, whose outcome can be reused
    num_requests: int
    prompt_chars: int  # of all requests together: each sends the whole conversation
    reply_chars: int  # of all replies together


def expected(changed: bool, tools: Any, opening: Any, plan: Iterable[Any]) -> Expected:
    """Return what an episode needs.

    Args:
      changed: whether its task differs from the clean one.
      tools: the documents that each request sends.
      opening: the messages before the first reply.
      plan: the actions of the expert.

    >>> expected(True, [], [], ["Answer: 9"]).reply_chars
    11
    """
    replies = [_size(action) for action in plan] or [0]
    prompt, chars = _size(tools) + _size(opening), 0
    for reply in replies:
        chars += prompt
        prompt += reply + RESULT_CHARS
    return Expected(changed, len(replies), chars, sum(replies))


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False))


def estimate(
    episodes: Iterable[Expected], prices: Prices, more_chars: int = 0
) -> dict[str, Any]:
    """Estimate the cost of episodes, with the keys of `Cost.summary`.

    Args:
      episodes: those that will be played.
      prices: of a million tokens.
      more_chars: of every request, beyond what is expected.
    """
    rows = list(episodes)
    requests = sum(x.num_requests for x in rows)
    prompt = sum(x.prompt_chars for x in rows) + more_chars * requests
    prompt_tokens = max(prompt, 0) // CHARS_PER_TOKEN
    completion_tokens = sum(x.reply_chars for x in rows) // CHARS_PER_TOKEN
    return {
        "episodes": len(rows),
        "requests": requests,
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        **_money(prices, prompt_tokens, completion_tokens),
    }


@dataclass
class Cost:
    """What the episodes of a log have cost, also those that had to be repeated."""

    episodes: int = 0
    replies: int = 0
    requests: int = 0  # with retries, and those that were never answered
    prompt_tokens: int = 0
    completion_tokens: int = 0
    latencies: list[float] = field(default_factory=list)  # seconds, of each reply

    def add(self, line: dict[str, Any]) -> None:
        """Add an episode, as a line of the log; earlier versions lack some keys."""
        latencies = line.get("latencies", [])
        replies = line.get("num_replies", 0)
        self.episodes += 1
        self.replies += replies
        self.requests += line.get("num_requests", replies)
        self.prompt_tokens += line.get("prompt_tokens", 0)
        self.completion_tokens += line.get("completion_tokens", 0)
        self.latencies += latencies

    def summary(self, prices: Prices) -> dict[str, Any]:
        """Return the sums, and the median and the 95th percentile of the latency.

        The numbers of tokens are null if the agent does not count them.

        >>> done = Cost(1, 2, 3, latencies=[0.5, 1.5])
        >>> done.summary(Prices())["retries"], done.summary(Prices())["latency_median"]
        (1, 1.0)
        """
        known = self.prompt_tokens + self.completion_tokens > 0
        tokens = self.prompt_tokens, self.completion_tokens
        names = "prompt_tokens", "completion_tokens"
        times = [None, None]
        if self.latencies:
            quantiles = np.quantile(self.latencies, [0.5, 0.95]).tolist()
            times = [round(x, 3) for x in quantiles]
        return {
            "episodes": self.episodes,
            "requests": self.requests,
            "retries": self.requests - self.replies,
            **dict(zip(names, tokens if known else (None, None), strict=True)),
            "latency_median": times[0],
            "latency_p95": times[1],
            **(_money(prices, *tokens) if known else {}),
        }


def _money(
    prices: Prices, prompt_tokens: int, completion_tokens: int
) -> dict[str, float]:
    """Return the price as an entry of a summary; nothing if no price is known."""
    if not any(prices):
        return {}
    return {"price": round(prices.of(prompt_tokens, completion_tokens), 6)}
