"""Keep the episodes of an evaluation, so that people can see what a policy did.

`report.trajectories` writes them to files, and says what a line holds.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from openagent_jax import expert, fast_compile
from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.environments.world import World
from openagent_jax.evaluation.evaluate import Played, Recording
from openagent_jax.report import causes, trajectories
from openagent_jax.report.trajectories import Failure, Line
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import Environment, Outcome

CUT = "\N{HORIZONTAL ELLIPSIS}"  # marks the end of a reply that was cut off


class Keeper:
    """Collects the first episodes of each scenario and writes them to files.

    Pass it as the argument `keep` of `evaluate.evaluate`.
    """

    def __init__(
        self,
        world: World,
        folder: Path,
        num: int,
        seed: int,
        repeats: int = 1,
        tokens: bool = False,
    ):
        """
        Args:
          world: the world of the episodes.
          folder: the folder of the report; files are written to its `trajectories`.
          num: the largest number of episodes to keep of each scenario.
          seed: the seed of the tasks.
          repeats: the number of episodes of each task.
          tokens: whether lines have the tokens of their episodes.
        """
        self._tokens = tokens
        self._world, self._folder, self._num = world, folder, num
        self._repeats = repeats
        self._root = jax.random.key(seed)
        self._lines: dict[str, list[Line]] = {}
        self._spelled = _token_bytes(world.tables.lexicon)
        self._plan = _planner(world.environment)

    def __call__(self, name: str, start: int, played: Played) -> None:
        """Add a batch of episodes.

        Args:
          name: the scenario.
          start: the number of the first episode.
          played: the batch, with a recording; without one, nothing is kept.
        """
        if start >= self._num or played.recording is None:
            return
        batch = played.recording.trajectory.task
        plan = self._plan(self._world.tables, batch)
        keys = draw.task_keys(self._root, start, len(played.changed), self._repeats)
        played = played._replace(bounds=None)
        played, plan, keys = jax.device_get((played, plan, jax.random.key_data(keys)))
        size = min(len(played.changed), self._num - start)
        lines = self._lines.setdefault(name, [])
        for i, (one, planned) in enumerate(
            zip(_rows(played, size), _rows(plan, size), strict=True)
        ):
            where = {
                "scenario": name,
                "index": start + i,
                "task_key": keys[i].tolist(),
                "task": int(one.task),
                "phrasing": int(one.phrasing),
            }
            lines.append(where | self._line(one, planned))

    def lines(self, name: str) -> list[Line]:
        """Return the episodes of a scenario that have been added."""
        return self._lines.get(name, [])

    def restore(self, name: str, lines: list[Line]) -> None:
        """Take the episodes of a scenario from an evaluation that was stopped."""
        if lines:
            self._lines[name] = lines

    def write(self, num_episodes: int) -> None:
        """Write the files, replacing those of an earlier evaluation.

        Args:
          num_episodes: of each scenario; the last batch may have more.
        """
        trajectories.clear(self._folder / trajectories.FOLDER, self._lines)
        for name, lines in self._lines.items():
            trajectories.write(
                self._folder / trajectories.FOLDER, name, lines[:num_episodes]
            )

    def _line(self, played: Played, plan: Any) -> Line:
        """Return the fields of an episode except those that identify its task."""
        recording = played.recording
        assert recording is not None
        world, episode = self._world, recording.trajectory
        transcriber, task = world.transcriber, episode.task
        actions, valid, reason = plan
        made = transcript.turns(
            transcriber, episode, recording.shown, self._texts(recording)
        )
        num_turns, timestep = len(made), episode.timestep
        line = {
            **outcome(played.outcome),
            "changed": bool(played.changed),
            "answered": True,
            "failure": failure(
                played.outcome,
                terminated=bool((timestep.terminated & episode.valid).any()),
                cut=bool(played.cut),
            ),
            "unsolvable": world.environment.reasons[int(reason)],
            "tools": transcriber.tools(task),
            "messages": list(transcript.chat(transcriber.opening(task), made)),
            "actions": [transcript.described(turn.message) for turn in made],
            "results": [turn.reply and turn.reply[1] for turn in made],
            "rewards": {
                component: [round(x, 6) for x in paid[:num_turns].tolist()]
                for component, paid in timestep.reward.items()
            },
            "plan": transcript.plan(transcriber, task, actions, valid),
            "prompt_tokens": int(played.read),
            "completion_tokens": int(played.written),
            **({"tokens": self._token_fields(recording)} if self._tokens else {}),
        }
        return line | {"cause": causes.why(line).cause}

    def _token_fields(self, recording: Recording) -> Line:
        """Return the tokens of an episode; see `trajectories`."""
        valid = recording.valid
        sampled = recording.sampled[valid]
        log_prob = recording.log_prob[valid][sampled]
        spelled = (self._spelled[token] for token in recording.tokens[valid].tolist())
        return {
            "text": [x.decode(errors="replace") for x in spelled],
            "sampled": sampled.astype(int).tolist(),
            "log_prob": [round(x, 4) for x in log_prob.tolist()],
        }

    def _texts(self, recording: Recording) -> list[str]:
        """Return the text of each turn, with `CUT` after those that did not end."""
        sampled = recording.sampled.astype(np.int8)
        edges = np.diff(sampled, prepend=0, append=0)
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        texts = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            *tokens, last = recording.tokens[begin:end].tolist()
            ended = last == self._world.tables.lexicon.end_token
            spelled = self._spelled
            data = b"".join(spelled[t] for t in (tokens if ended else [*tokens, last]))
            texts.append(data.decode(errors="replace") + CUT * (not ended))
        return texts


def outcome(found: Outcome) -> Line:
    """Return the fields of an outcome as plain Python values."""
    return {name: np.asarray(x).item() for name, x in found._asdict().items()}


def failure(
    found: Outcome, terminated: bool, cut: bool, answered: bool = True
) -> Failure:
    """Return why an episode failed: one of `trajectories.FAILURES`.

    Args:
      found: the outcome of the episode.
      terminated: whether the agent ended the episode.
      cut: whether it ended because the context was full.
      answered: whether the agent replied; False if it failed to.

    >>> refusal = Outcome(False, True, True, 0, 0, 0, 0, 3)  # of a solvable task
    >>> failure(refusal, terminated=True, cut=False)
    'false_refusal'
    """
    if found.success:
        return ""
    if not answered:
        return "unanswered"
    if cut:
        return "out_of_context"
    if not terminated:
        return "out_of_turns"
    if found.refused:
        return "false_refusal"
    return "wrong_answer" if found.solvable else "missed_refusal"


@functools.cache  # an environment is compiled once, not for each evaluation
def _planner(environment: Environment) -> Callable[..., Any]:
    """Return the compiled `(tables, tasks)` -> the expert's actions, which of them are
    made, and why a task cannot be solved.

    Jitted separately: plans are for people to read and do not affect scores.
    """

    def plan(tables, task):
        episode = expert.demonstrate(environment, tables, task)
        reason = environment.certificate(tables, task).reason
        return episode.action, episode.valid, reason

    return fast_compile.jit(jax.vmap(plan, in_axes=(None, 0)))


def _rows(tree: Any, num: int) -> Iterator[Any]:
    """Yield the first `num` elements of a batch in NumPy."""
    leaves, structure = jax.tree.flatten(tree)
    for i in range(num):
        yield jax.tree.unflatten(structure, [leaf[i] for leaf in leaves])


def _token_bytes(lexicon: Lexicon) -> list[bytes]:
    """Return the bytes of every token."""
    table = jax.device_get(lexicon.token_bytes)
    data = table.flat.tobytes()
    ends = (table.start + table.length).tolist()
    return [data[a:b] for a, b in zip(table.start.tolist(), ends, strict=True)]
