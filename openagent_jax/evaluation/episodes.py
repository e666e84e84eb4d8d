"""Write episodes to files and read them back, so that people can see what a policy did.

    eval/<step>/trajectories/<scenario>.jsonl    one line per episode

The format is the same for checkpoints and for agents that are reached by messages:

    scenario, index, task_key      the task, and the PRNG key that it was drawn with
    task, phrasing                 numbers that equal tasks share, and tasks whose
                                   requests are worded alike
    success, solvable, refused, num_calls, num_errors, num_questions,
    num_needless_questions, fewest_calls, changed, answered              the outcome
    failure                        one of `FAILURES`; "" for a success
    cause                          one of `causes.CAUSES`; "" for a success
    unsolvable                     one of the environment's reasons; "" if solvable
    tools, messages                as the agent sees them
    actions, results               per turn: what the agent did, what it was shown
    rewards                        for each component, one number per turn
    plan                           the actions of the expert on the same task
"""

import gzip
import json
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import jax
import numpy as np

from openagent_jax import brief, expert, files
from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.environments.world import World
from openagent_jax.evaluation.evaluate import Played, Recording
from openagent_jax.report import causes, trajectories
from openagent_jax.text.lexicon import Lexicon
from openagent_jax.types import Outcome

CUT = "\N{HORIZONTAL ELLIPSIS}"  # marks the end of a reply that was cut off
MAX_BYTES = 10_000_000  # a larger file is compressed
Failure = Literal[
    "",
    "unanswered",  # a reply of a remote agent never came
    "out_of_context",  # the context had no room for another turn
    "out_of_turns",
    "false_refusal",  # the agent refused a task that can be solved
    "missed_refusal",  # the agent did not refuse a task that cannot be solved
    "wrong_answer",
]
FAILURES: tuple[str, ...] = get_args(Failure)


class Keeper:
    """Collects the first episodes of each scenario and writes them to files.

    Pass it as the argument `keep` of `evaluate.evaluate`.
    """

    def __init__(
        self, world: World, folder: Path, num: int, seed: int, repeats: int = 1
    ):
        """
        Args:
          world: the world of the episodes.
          folder: the folder of the report; files are written to its `trajectories`.
          num: the largest number of episodes to keep of each scenario.
          seed: the seed of the tasks.
          repeats: the number of episodes of each task.
        """
        self._world, self._folder, self._num = world, folder, num
        self._repeats = repeats
        self._root = jax.random.key(seed)
        self._lines: dict[str, list[trajectories.Line]] = {}
        self._spelled = _token_bytes(world.tables.lexicon)
        environment = world.environment
        # Jitted separately: plans are for people to read and do not affect scores.
        self._plan = brief.jit(
            jax.vmap(
                lambda tables, task: _plan(environment, tables, task), in_axes=(None, 0)
            )
        )

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

    def write(self, num_episodes: int) -> None:
        """Write the files, replacing those of an earlier evaluation.

        Args:
          num_episodes: of each scenario; the last batch may have more.
        """
        clear(self._folder / trajectories.FOLDER, self._lines)
        for name, lines in self._lines.items():
            write(self._folder / trajectories.FOLDER, name, lines[:num_episodes])

    def _line(self, played: Played, plan: Any) -> trajectories.Line:
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
        }
        return line | {"cause": causes.why(line).cause}

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


def outcome(found: Outcome) -> trajectories.Line:
    """Return the fields of an outcome as plain Python values."""
    return {name: np.asarray(x).item() for name, x in found._asdict().items()}


def failure(
    found: Outcome, terminated: bool, cut: bool, answered: bool = True
) -> Failure:
    """Return why an episode failed: one of `FAILURES`.

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


def write(folder: Path, name: str, lines: Iterable[Mapping[str, Any]]) -> Path:
    """Write the episodes of a scenario as JSON Lines, atomically.

    A file of more than `MAX_BYTES` is compressed, and its name ends with `.gz`.

    Returns:
      The path of the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    plain, packed = folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"
    with files.replacing(plain) as part:
        with part.open("w", encoding="utf-8") as file:
            for line in lines:
                # A reply may contain lone surrogates, which UTF-8 cannot encode.
                text = json.dumps(line, ensure_ascii=False, allow_nan=False)
                file.write(text.encode(errors="replace").decode() + "\n")
        if is_large := part.stat().st_size > MAX_BYTES:
            with (
                files.replacing(packed) as made,
                part.open("rb") as source,
                gzip.open(made, "wb") as target,
            ):
                shutil.copyfileobj(source, target)
    (plain if is_large else packed).unlink(missing_ok=True)
    return packed if is_large else plain


def clear(folder: Path, but: Collection[str] = ()) -> None:
    """Remove the episodes of an earlier evaluation, and partial files.

    Args:
      folder: the `trajectories` folder of an evaluation.
      but: the scenarios whose episodes stay.
    """
    for file in folder.glob("*.jsonl*"):
        if file.suffix == ".part" or file.name.split(".jsonl")[0] not in but:
            file.unlink()


def _plan(environment, tables, task):
    episode = expert.demonstrate(environment, tables, task)
    return episode.action, episode.valid, environment.certificate(tables, task).reason


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
