"""Many episodes at once, by messages: played, written down, and graded as all others.

Every episode that has come to its end is a line of a log, so that an evaluation that
was stopped goes on where it was. One that was never answered is tried again then.
"""

import asyncio
import functools
import hashlib
import json
import time
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import evaluate, report
from openagent_jax.interop.agents import Agent, Full, Unanswered
from openagent_jax.interop.dialogue import Dialogue
from openagent_jax.sandbox import conversation, oracle
from openagent_jax.types import Task
from openagent_jax.worlds import Worlds

BLOCK = 64  # tasks drawn at once
PATIENCE = 16  # episodes in a row without an answer, before it is given up

Outcome = dict[str, Any]  # a line of the log
_FIELDS = {  # of a report
    "success": bool,
    "solvable": bool,
    "refused": bool,
    "num_calls": int,
    "num_errors": int,
    "fewest_calls": int,
    "changed": bool,
    "answered": bool,
}


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
    messages: list[conversation.Message]
    finished: bool
    success: bool
    refused: bool
    num_calls: int
    num_errors: int

    def hear(self, reply: conversation.Message, cut: bool) -> None: ...
    def close(self) -> None: ...


class Episode(NamedTuple):
    """One that is to be played."""

    scenario: str
    index: int  # of the task
    task: Any
    begin: Callable[[], Turns]
    facts: Outcome  # what is known before: changed, solvable, fewest_calls


@dataclass(frozen=True)
class Suite:
    """Tasks, clean and perturbed: those that a checkpoint of these settings meets."""

    worlds: Worlds  # in the compact style
    scenarios: tuple[str, ...]
    seed: int
    num_tasks: int  # of each scenario
    strength: float
    split: str
    max_turns: int

    @property
    def names(self) -> tuple[str, ...]:
        return (evaluate.CLEAN, *self.scenarios)

    def episodes(self, done: Collection[tuple[str, int]] = ()) -> Iterator[Episode]:
        """All that are not done, in order; drawn as they are wanted."""
        lexicon = self.worlds.lexicon
        begin = partial(Dialogue, conversation.Writer(lexicon), lexicon)
        for i, name in enumerate(self.names):
            for start in range(0, self.num_tasks, BLOCK):
                stop = min(start + BLOCK, self.num_tasks)
                left = [n for n in range(start, stop) if (name, n) not in done]
                if not left:
                    continue
                drawn = jax.device_get(self._draw(jnp.int32(i), jnp.int32(start)))
                for n in left:
                    task, facts = _row(drawn, n - start)
                    facts = {key: value.item() for key, value in facts.items()}
                    start_one = partial(begin, task, self.max_turns)
                    yield Episode(name, n, task, start_one, facts)

    @functools.cached_property
    def _draw(self) -> Callable[..., tuple[Task, dict[str, jax.Array]]]:
        """A block of tasks of a scenario, and what is known of them; compiled once."""
        draw = evaluate.make_draw(self.worlds, self.scenarios, self.split)

        @jax.jit
        def block(scenario, start):
            keys = evaluate.task_keys(jax.random.key(self.seed), start, BLOCK)
            strength = jnp.float32(self.strength)
            tasks, changed = jax.vmap(draw, (None, 0, None))(scenario, keys, strength)
            return tasks, {
                "changed": changed,
                "solvable": jax.vmap(oracle.solvable)(tasks),
                "fewest_calls": jax.vmap(oracle.fewest_calls)(tasks),
            }

        return block

    def digest(self) -> str:
        """Of all texts, and of the first tasks."""
        found = hashlib.sha256()
        for leaf in jax.device_get(jax.tree.leaves(self._draw(0, 0))):
            found.update(leaf.tobytes())
        for text in conversation.texts(self.worlds.lexicon):
            found.update(text.encode() + b"\0")
        return found.hexdigest()[:16]


def rows(
    log: "Log", names: Sequence[str], num_tasks: int, strength: float, split: str
) -> list[report.Json]:
    """Rows of a report; all episodes are in the log.

    Args:
      log: of them.
      names: of the scenarios, the clean one first.
      num_tasks: of each.
      strength: of the perturbations.
      split: of the tasks.
    """
    scored = {}
    for name in names:
        found = [log.done[name, i] for i in range(num_tasks)]
        columns = {
            field: np.array([outcome[field] for outcome in found], kind)
            for field, kind in _FIELDS.items()
        }
        scored[name] = report.Episodes(**columns)
    return evaluate.rows(scored, strength, split)


class Log:
    """A file of JSON lines: what is evaluated, and the episodes that are over.

    Raises:
      ValueError: it is of another evaluation, or damaged.
      OSError: it cannot be written, or another evaluation is writing it.
    """

    def __init__(self, file: Path, about: dict[str, Any]):
        """
        Args:
          file: is made where there is none.
          about: what must be the same for the episodes to be of one evaluation.
        """
        self.done: dict[tuple[str, int], Outcome] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file = file.open("a+b")
        try:
            _lock(self._file)
            self._read(file, about)
        except BaseException:
            self._file.close()
            raise

    def add(self, outcome: Outcome) -> None:
        self._write(outcome)
        self._keep(outcome)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        self._file.write(text.encode(errors="replace") + b"\n")
        self._file.flush()

    def _keep(self, outcome: Outcome) -> None:
        """What is needed for a report, and no more: there may be many."""
        where = outcome["scenario"], outcome["index"]
        kept = {field: outcome[field] for field in _FIELDS}
        kept |= {"reason": outcome.get("reason", "")}
        if kept["answered"] or where not in self.done:
            self.done[where] = kept

    def _read(self, file: Path, about: dict[str, Any]) -> None:
        self._file.seek(0)
        size = 0
        for number, line in enumerate(self._file, 1):
            if not line.endswith(b"\n"):
                break  # it was being written when all ended
            size += len(line)
            try:
                found = json.loads(line.decode())
                if number == 1:
                    theirs = dict(found["evaluation"])
                else:
                    self._keep(found)
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{file}: line {number} is no line of this log ({error!r}); mend "
                    "or remove it, or take another workdir"
                ) from None
            if number == 1:
                _compare(file, about, theirs)
        self._file.truncate(size)
        self._file.seek(size)
        if not size:
            self._write({"evaluation": about})


async def play(
    episodes: Iterable[Episode], agent: Agent, num: int, budget: Budget
) -> AsyncGenerator[Outcome]:
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


async def _play(episode: Episode, agent: Agent, budget: Budget) -> Outcome:
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
        reason = f"no room: {error}"
    except Unanswered as error:
        reason = str(error)
    return {
        "scenario": episode.scenario,
        "index": episode.index,
        "answered": dialogue.finished,
        "success": dialogue.success,
        "refused": dialogue.refused,
        "num_calls": dialogue.num_calls,
        "num_errors": dialogue.num_errors,
        **episode.facts,
        "num_replies": num_replies,
        "num_tokens": num_tokens,
        "seconds": round(time.monotonic() - begin, 3),
        **({"reason": reason} if reason else {}),
        "messages": dialogue.messages,
        "tools": dialogue.tools,
    }


def _failed(task: asyncio.Task) -> bool:
    return task.exception() is not None


def _row(drawn: Any, i: int) -> Any:
    return jax.tree.map(lambda x: x[i], drawn)


def _compare(file: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    for key, value in ours.items():
        if theirs.get(key) != value:
            raise ValueError(
                f"{file} is of another evaluation: {key} was {theirs.get(key)!r}, and "
                f"is {value!r} now; take another workdir, or remove the file"
            )


def _lock(file: Any) -> None:
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise OSError(f"{file.name}: another evaluation is writing it") from None
