"""The files of kept episodes: write them, read them, and read what is left of them.

    eval/<step>/trajectories/<scenario>.jsonl    one line per episode

The format is the same for checkpoints and for agents that are reached by messages:

    scenario, index, task_key      the task, and the PRNG key that it was drawn with
    task, phrasing                 numbers that equal tasks share, and tasks whose
                                   requests are worded alike
    success, solvable, refused, num_calls, num_errors, num_questions,
    num_needless_questions, fewest_calls, changed, answered              the outcome
    failure                        one of `FAILURES`; "" for a success
    cause                          one of `causes.CAUSES`; "" for a success. Files of
                                   earlier versions do not have it
    unsolvable                     one of the environment's reasons; "" if solvable
    tools, messages                as the agent sees them
    actions, results               per turn: what the agent did, what it was shown
    rewards                        for each component, one number per turn
    plan                           the actions of the expert on the same task
    prompt_tokens                  that the agent was shown. A checkpoint reads each
                                   once; an endpoint counts those of every request
    completion_tokens              that the agent wrote. Files of earlier versions of
                                   checkpoints have neither
    tokens                         only if the evaluation was told to keep them:
        text        of every token that the policy attends to, in order
        sampled     1 for those that the policy sampled, which the policy loss counts;
                    credit is assigned by turns, which are runs of these; 0 for others
        log_prob    of the sampled ones alone, when they were sampled
"""

import gzip
import json
import shutil
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from openagent_jax import files

FOLDER = "trajectories"
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
Line = dict[str, Any]


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


def clear(folder: Path, keep: Collection[str] = ()) -> None:
    """Remove the episodes of an earlier evaluation, and partial files.

    Args:
      folder: the `trajectories` folder of an evaluation.
      keep: the scenarios whose episodes stay.
    """
    for file in folder.glob("*.jsonl*"):
        if file.suffix == ".part" or file.name.split(".jsonl")[0] not in keep:
            file.unlink()


def newest(workdir: Path) -> Path:
    """Return the `trajectories` folder of a run's last evaluation that kept episodes.

    Raises:
      FileNotFoundError: there is none.
    """
    if not workdir.is_dir():
        raise FileNotFoundError(f"{workdir}: no such folder")
    folders = (step / FOLDER for step in (workdir / "eval").glob("*"))
    found = [x for x in folders if x.parent.name.isdecimal() and scenarios(x)]
    if not found:
        raise FileNotFoundError(
            f"{workdir} has no kept episodes; evaluate it with eval.keep above 0"
        )
    return max(found, key=lambda x: int(x.parent.name))


def read(folder: Path, name: str) -> Iterator[Line]:
    """Yield the episodes of a scenario.

    Args:
      folder: the `trajectories` folder of an evaluation.
      name: the name of the scenario.

    Raises:
      FileNotFoundError: no episodes of the scenario were kept.
      ValueError: the file is damaged.
    """
    file = _file(folder, name)
    for number, line in enumerate(_lines(file), 1):
        if isinstance(line, Exception):
            where = f"{file} is damaged at or after line {number}"
            raise ValueError(f"{where}: {line}")
        yield line


def salvage(folder: Path, name: str) -> tuple[list[Line], list[str]]:
    """Return the whole episodes of a scenario's file, and notes on what it lost.

    A file is damaged if a run was killed while it was copied, or if its disk is full.

    Args:
      folder: the `trajectories` folder of an evaluation.
      name: the name of the scenario.

    Raises:
      FileNotFoundError: no episodes of the scenario were kept.
    """
    file = _file(folder, name)
    found = list(_lines(file))
    whole = [line for line in found if not isinstance(line, Exception)]
    notes = [] if found else [f"{file}: it is empty"]
    if lost := len(found) - len(whole):
        cut = not isinstance(found[-1], (dict, ValueError, TypeError))
        ends = "; what follows them is lost" if cut else ""
        notes = [f"{file}: {lost} of {len(found)} lines cannot be read{ends}"]
    return whole, notes


def _file(folder: Path, name: str) -> Path:
    plain, packed = folder / f"{name}.jsonl", folder / f"{name}.jsonl.gz"
    if not (plain.exists() or packed.exists()):
        kept = ", ".join(scenarios(folder)) or "none"
        raise FileNotFoundError(f"{plain}: no such file; kept are: {kept}")
    return plain if plain.exists() else packed


def _lines(file: Path) -> Iterator[Line | Exception]:
    """Yield each line of a file, or the error that it gives.

    Nothing can be read after an error of decompression.
    """
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
        while True:
            try:
                line = opened.readline()
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                yield error
                return
            if not line:
                return
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                yield error


def scenarios(folder: Path) -> list[str]:
    """Return the sorted names of the scenarios whose episodes were kept."""
    files = (*folder.glob("*.jsonl"), *folder.glob("*.jsonl.gz"))
    return sorted({file.name.split(".jsonl")[0] for file in files})
