"""A log as a source of tasks: what is mapped, what is not, and why."""

import collections
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.sandbox import development, log_file, log_mapping, spelling
from openagent_jax.sandbox.domain_spec import DomainError, must
from openagent_jax.sandbox.log_file import Unmapped
from openagent_jax.sandbox.log_mapping import Recorded
from openagent_jax.types import Limits

SHARE = 4  # one in so many conversations is for the test


@dataclass(frozen=True)
class Missed:
    """A conversation that is no task."""

    line: int
    reason: str
    needs: Mapping[str, int] = field(default_factory=dict)  # of what it has not


class NothingMapped(DomainError):
    """No conversation of a log becomes a task."""

    def __init__(self, log: "Log"):
        self.log = log
        how = f"python -m launch.logs check {log.file} tells which and why"
        super().__init__(f"{log.file}: {log.summary()}; {how}")


@dataclass(frozen=True)
class Log:
    """The conversations of a file."""

    file: str
    tasks: tuple[tuple[int, Recorded], ...]  # with the number of the line
    missed: tuple[Missed, ...]
    num_headers: int  # lines of an evaluation that are no conversations

    def reasons(self) -> list[tuple[str, int]]:
        """How often each, the most frequent first."""
        return collections.Counter(x.reason for x in self.missed).most_common()

    def summary(self) -> str:
        total = len(self.tasks) + len(self.missed)
        text = f"mapped {len(self.tasks):,} of {total:,} conversations"
        if self.missed:
            told = ", ".join(f"{num:,} {reason}" for reason, num in self.reasons())
            text += f"; {len(self.missed):,} not: {told}"
        return text

    def with_room(
        self, needs: Sequence[Mapping[str, int]], room: Mapping[str, int]
    ) -> tuple["Log", list[int]]:
        """Without those that need more, and which tasks are left."""
        more = [
            {key: num for key, num in need.items() if num > room.get(key, num)}
            for need in needs
        ]
        missed = [
            Missed(line, _small(need, room), need)
            for (line, _), need in zip(self.tasks, more, strict=True)
            if need
        ]
        kept = [i for i, need in enumerate(more) if not need]
        return self._of(kept, missed), kept

    def spelled_by(self, tokenizer: Tokenizer) -> "Log":
        """Without those that it does not spell as they are."""
        texts = {text for _, task in self.tasks for text in task.texts()}
        odd = spelling.misread(sorted(texts), tokenizer)
        missed = [
            Missed(line, "a text that the tokenizer reads as another")
            for line, task in self.tasks
            if not odd.isdisjoint(task.texts())
        ]
        lines = {x.line for x in missed}
        kept = (i for i, (line, _) in enumerate(self.tasks) if line not in lines)
        return self._of(kept, missed)

    def checked(self) -> "Log":
        """
        Raises:
          NothingMapped: no conversation is left.
        """
        if not self.tasks:
            raise NothingMapped(self)
        return self

    def told(self) -> Iterator[str]:
        """Each reason with its lines, and what would help."""
        for reason, num in self.reasons():
            lines = [x.line for x in self.missed if x.reason == reason]
            yield f"{num:,} {reason}: {'line' if num == 1 else 'lines'} {_runs(lines)}"
            needs = [x.needs for x in self.missed if x.reason == reason]
            most = {key: max(need[key] for need in needs) for key in needs[0]}
            if most:
                flags = " ".join(f"--config.{key}={num}" for key, num in most.items())
                yield f"  room for all of them: {flags}"
        if self.num_headers:
            yield f"{self.num_headers:,} first lines of an evaluation, skipped"

    def _of(self, kept: Iterable[int], missed: Iterable[Missed]) -> "Log":
        every = sorted((*self.missed, *missed), key=lambda x: x.line)
        tasks = tuple(self.tasks[i] for i in kept)
        return Log(self.file, tasks, tuple(every), self.num_headers)


def room(limits: Limits) -> dict[str, int]:
    """What a task may need, by the keys of a config."""
    return {f"sandbox.{key}": size for key, size in vars(limits).items()}


def is_log(domain: str | Path) -> bool:
    """Whether a domain is a log, and no world that is generated."""
    return str(domain).removesuffix(development.SUFFIX).endswith(log_file.SUFFIX)


def load(domain: str | Path, room: Mapping[str, int]) -> Log:
    """
    Args:
      domain: a file.
      room: what a task may need, by the keys of a config.

    Raises:
      DomainError: it cannot be read.
    """
    name = str(domain)
    suffix = development.SUFFIX
    must(not name.endswith(suffix), name, f"a log has no {suffix}; leave it out")
    try:
        found = Path(name).stat()
    except OSError as error:
        raise DomainError(f"{name}: {error.strerror}; check the path") from None
    log = _load(name, (found.st_mtime_ns, found.st_size))
    return log.with_room([task.needs() for _, task in log.tasks], room)[0]


@functools.lru_cache(maxsize=2)
def _load(file: str, stamp: tuple[int, int]) -> Log:
    del stamp  # of the file as it was
    tasks, missed, num_headers = [], [], 0
    for line, row in log_file.lines(Path(file)):
        if isinstance(row, dict) and log_file.HEADER in row and "messages" not in row:
            num_headers += 1
            continue
        try:
            task = log_mapping.recorded(log_file.conversation_of(row))
        except Unmapped as reason:
            missed.append(Missed(line, str(reason)))
        else:
            tasks.append((line, task))
    return Log(file, tuple(tasks), tuple(missed), num_headers)


def _runs(numbers: Sequence[int]) -> str:
    """`3, 5-7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _small(needs: Mapping[str, int], room: Mapping[str, int]) -> str:
    return "more than " + " and ".join(f"{key}={room[key]}" for key in needs)


def is_test(tasks: Sequence[Recorded]) -> list[bool]:
    """Which are for the test: one in `SHARE`, by what they say, so that equal tasks
    are on one side; if by that all were, the nearest is on the other."""
    digests = [hashlib.sha256(repr(task).encode()).digest() for task in tasks]
    ordered = sorted(set(digests))
    num = sum(digest[0] < 256 // SHARE for digest in ordered)
    num = min(max(num, 1), len(ordered) - 1) if len(ordered) > 1 else 0
    test = set(ordered[:num])
    return [x in test for x in digests]
