"""A log as a source of tasks: what is mapped, what is skipped, and why."""

import collections
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.domains import development
from openagent_jax.domains.domain_spec import DomainError, require
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs import (
    log_answers,
    log_conversation,
    log_file,
    log_mapping,
)
from openagent_jax.environments.logs.log_conversation import CannotMap
from openagent_jax.environments.logs.logged_task import LoggedTask
from openagent_jax.text import scalars
from openagent_jax.text import token_bytes as spelling

TEST_SHARE = 4  # one in this many conversations is in the test split
MAX_LISTED = 8  # places of one reason that a report lists
MAX_LETTERS = 200  # of such a place
_INEXACT = (
    f"they have more than {scalars.MAX_DECIMALS} decimals, or exceed "
    f"{scalars.MAX_DIGITS} without the decimal point"
)


@dataclass(frozen=True)
class Skipped:
    """A conversation that became no task.

    Attributes:
      line: its line in the file.
      reason: why it was skipped, as a noun phrase.
      needs: the limits that it would need, by the keys of a config; empty if limits are
        not the reason.
      where: the part of the conversation that is the reason; "" for the whole.
    """

    line: int
    reason: str
    needs: Mapping[str, int] = field(default_factory=dict)
    where: str = ""


class NothingMapped(DomainError):
    """No conversation of a log becomes a task."""

    def __init__(self, log: "Log"):
        self.log = log
        remedy = f"python -m launch.logs check {log.file} lists the lines"
        super().__init__(f"{log.file}: {log.summary()}; {remedy}")


@dataclass(frozen=True)
class Log:
    """The conversations of a file.

    Attributes:
      file: its name.
      tasks: `(line, task)` of each conversation that is mapped.
      skipped: the conversations that are not mapped.
      num_headers: number of header lines of evaluations, which are not conversations.
      refusals: the lines of the mapped conversations that end with a refusal in the
        agent's own words.
      inexact: `(line, number and its place)` of the mapped conversations with a number
        that is kept as a text.
      renamed: `(line, names)` of the mapped conversations with tools whose names no API
        of a model allows.
      unstated: `(line, value and its place)` of the mapped conversations with a call
        that has a value from nowhere.
    """

    file: str
    tasks: tuple[tuple[int, LoggedTask], ...]
    skipped: tuple[Skipped, ...]
    num_headers: int
    refusals: tuple[int, ...] = ()
    inexact: tuple[tuple[int, str], ...] = ()
    renamed: tuple[tuple[int, str], ...] = ()
    unstated: tuple[tuple[int, str], ...] = ()

    def reasons(self) -> list[tuple[str, int]]:
        """Return the reasons for skipping and their counts, most frequent first."""
        return collections.Counter(x.reason for x in self.skipped).most_common()

    def summary(self) -> str:
        """Return one line with the counts of mapped and skipped conversations.

        >>> skipped = (Skipped(1, "no user message"), Skipped(2, "no user message"))
        >>> Log("x.jsonl", (), skipped, num_headers=0).summary()
        'mapped 0 of 2 conversations; skipped 2: no user message (2)'
        """
        total = len(self.tasks) + len(self.skipped)
        text = f"mapped {len(self.tasks):,} of {total:,} conversations"
        if self.skipped:
            counts = (f"{reason} ({num:,})" for reason, num in self.reasons())
            text += f"; skipped {len(self.skipped):,}: {', '.join(counts)}"
        if self.refusals:
            text += f"; read {len(self.refusals):,} as refusals in words"
        return text

    def report(self) -> Iterator[str]:
        """Yield lines of text: each reason with its lines, and limits that would do."""
        for reason, num in self.reasons():
            skipped = [x for x in self.skipped if x.reason == reason]
            word = "line" if num == 1 else "lines"
            yield f"{reason} ({num:,}): {word} {_ranges([x.line for x in skipped])}"
            yield from _listed((x.line, x.where) for x in skipped if x.where)
            if flags := _enough(skipped):
                yield f"  enough for all of them: {flags}"
        if len({x.reason for x in self.skipped if x.needs}) > 1:
            yield f"enough for all that need more: {_enough(self.skipped)}"
        if self.refusals:
            word = "line" if len(self.refusals) == 1 else "lines"
            listed = _ranges(self.refusals)
            yield f"read as refusals in words, as if by Refuse: {word} {listed}"
        if self.inexact:
            yield f"numbers that are compared as texts, since {_INEXACT}:"
            yield from _listed(self.inexact)
        if self.unstated:
            yield "calls with a value that no request and no result before them has:"
            yield from _listed(self.unstated)
        if self.renamed:
            yield "tools that are renamed, since model APIs do not allow their names:"
            yield from _listed(self.renamed)
        if self.num_headers:
            word = "line" if self.num_headers == 1 else "lines"
            yield f"ignored {self.num_headers:,} header {word} of an evaluation"

    def fitting(
        self,
        needs: Sequence[Mapping[str, tuple[int, str]]],
        max_sizes: Mapping[str, int],
    ) -> tuple["Log", list[int]]:
        """Skip the tasks that need more than the limits allow.

        Args:
          needs: what each task needs, by the keys of a config, and which part of it.
          max_sizes: the limits, by the keys of a config.

        Returns:
          The log without these tasks, and the indices of the tasks that are left.
        """
        lacking = [
            {key: x for key, x in need.items() if x[0] > max_sizes.get(key, x[0])}
            for need in needs
        ]
        skipped = [
            _lacking(line, lack, max_sizes)
            for (line, _), lack in zip(self.tasks, lacking, strict=True)
            if lack
        ]
        kept = [i for i, lack in enumerate(lacking) if not lack]
        return self._restricted(kept, skipped), kept

    def spelled_by(self, tokenizer: Tokenizer) -> "Log":
        """Skip the tasks with a text that a tokenizer does not decode to itself."""
        texts = {text for _, task in self.tasks for text in task.texts()}
        misread = spelling.lossy_texts(sorted(texts), tokenizer)
        skipped = [
            Skipped(line, "a text that the tokenizer does not reproduce")
            for line, task in self.tasks
            if not misread.isdisjoint(task.texts())
        ]
        lines = {x.line for x in skipped}
        kept = (i for i, (line, _) in enumerate(self.tasks) if line not in lines)
        return self._restricted(kept, skipped)

    def checked(self) -> "Log":
        """Return the log itself if it has a task.

        Raises:
          NothingMapped: it has none.
        """
        if not self.tasks:
            raise NothingMapped(self)
        return self

    def _restricted(self, kept: Iterable[int], skipped: Iterable[Skipped]) -> "Log":
        all_skipped = sorted((*self.skipped, *skipped), key=lambda x: x.line)
        tasks = tuple(self.tasks[i] for i in kept)
        lines = {line for line, _ in tasks}
        return replace(
            self,
            tasks=tasks,
            skipped=tuple(all_skipped),
            refusals=tuple(line for line in self.refusals if line in lines),
            inexact=tuple(x for x in self.inexact if x[0] in lines),
            renamed=tuple(x for x in self.renamed if x[0] in lines),
            unstated=tuple(x for x in self.unstated if x[0] in lines),
        )


def max_sizes(limits: Limits) -> dict[str, int]:
    """Return limits by the keys of a config.

    >>> max_sizes(Limits(num_args=4))["sandbox.num_args"]
    4
    """
    return {f"sandbox.{key}": size for key, size in vars(limits).items()}


def is_log(domain: str | Path) -> bool:
    """Tell whether a domain is a log.

    >>> is_log("my_logs.jsonl"), is_log("poi")
    (True, False)
    """
    return str(domain).removesuffix(development.SUFFIX).endswith(log_file.SUFFIX)


def load(domain: str | Path, max_sizes: Mapping[str, int]) -> Log:
    """Read a log and map its conversations.

    Args:
      domain: the file.
      max_sizes: the limits of a task, by the keys of a config; conversations that need
        more are skipped.

    Raises:
      DomainError: the file cannot be read, or the domain ends in `:dev`.
    """
    name = str(domain)
    suffix = development.SUFFIX
    require(not name.endswith(suffix), name, f"a log has no {suffix}; leave it out")
    try:
        status = Path(name).stat()
    except OSError as error:
        raise DomainError(f"{name}: {error.strerror}; check the path") from None
    log = _load(name, (status.st_mtime_ns, status.st_size))
    return log.fitting([task.needs() for _, task in log.tasks], max_sizes)[0]


@functools.lru_cache(maxsize=2)
def _load(file: str, stamp: tuple[int, int]) -> Log:
    del stamp  # part of the cache's key: a changed file is read again
    tasks, skipped, num_headers = [], [], 0
    refusals, inexact, renamed, unstated = [], [], [], []
    for line, row in log_file.lines(Path(file)):
        if isinstance(row, dict) and log_file.HEADER in row and "messages" not in row:
            num_headers += 1
            continue
        try:
            parsed = log_conversation.parse(row)
            task = log_mapping.map_conversation(parsed)
        except CannotMap as error:
            skipped.append(Skipped(line, error.reason, where=error.where))
        except RecursionError:
            skipped.append(Skipped(line, "a value that is nested too deeply"))
        else:
            tasks.append((line, task))
            if log_answers.refuses_in_words(parsed):
                refusals.append(line)
            if where := task.inexact():
                inexact.append((line, where))
            if where := task.unstated():
                unstated.append((line, where))
            if names := log_mapping.renamed(parsed):
                renamed.append((line, names))
    return Log(
        file,
        tuple(tasks),
        tuple(skipped),
        num_headers,
        tuple(refusals),
        tuple(inexact),
        tuple(renamed),
        tuple(unstated),
    )


def _enough(skipped: Iterable[Skipped]) -> str:
    """Return flags that are enough for some conversations, or ""."""
    needs: dict[str, int] = {}
    for one in skipped:
        needs |= {key: max(num, needs.get(key, 0)) for key, num in one.needs.items()}
    return " ".join(f"--config.{key}={num}" for key, num in needs.items())


def _listed(places: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield lines of text that name places in a log.

    Names in a log may have any characters; those that cannot be printed become blanks.
    """
    places = list(places)
    for line, where in places[:MAX_LISTED]:
        printed = "".join(x if x.isprintable() else " " for x in where)
        yield f"  line {line}: {printed[:MAX_LETTERS]}"
    if more := len(places[MAX_LISTED:]):
        yield f"  and {more:,} more"


def _ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as `3, 5-7`."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1] = [ranges[-1][0], number]
        else:
            ranges.append([number])
    return ", ".join("-".join(map(str, ends)) for ends in ranges)


def _lacking(
    line: int, lack: Mapping[str, tuple[int, str]], max_sizes: Mapping[str, int]
) -> Skipped:
    """Return a conversation that is skipped for what it needs beyond some limits."""
    limits = " and ".join(f"{key}={max_sizes[key]}" for key in lack)
    needs = {key: num for key, (num, _) in lack.items()}
    where = [part for _, part in lack.values() if part]
    return Skipped(line, f"needs more than {limits}", needs, ", ".join(where))


def in_test_split(tasks: Sequence[LoggedTask]) -> list[bool]:
    """Tell which tasks are in the test split: about one in `TEST_SHARE`.

    A hash of the task decides, so equal tasks are in the same split, and a task stays
    in its split when the log grows. If there are two different tasks or more, each
    split gets at least one.
    """
    digests = list(map(_digest, tasks))
    ordered = sorted(set(digests))
    num = sum(digest[0] < 256 // TEST_SHARE for digest in ordered)
    num = min(max(num, 1), len(ordered) - 1) if len(ordered) > 1 else 0
    test = set(ordered[:num])
    return [digest in test for digest in digests]


def _digest(task: LoggedTask) -> bytes:
    return hashlib.sha256(task.content().encode()).digest()
