"""Logged worlds as arrays, and tasks drawn from them.

A task is a conversation of a log: its tools, its calls and their results (see
`log_mapping`). The world with number w is that of task w // 2; w is odd in the test
split. Documents are shared by all tasks that show them; each other array has one row
per task. In shapes, `_` is the number of tasks.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw
from openagent_jax.domains.domain_spec import DONE
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs import logs
from openagent_jax.environments.logs.logged_documents import (
    Documents,
    DocumentTable,
)
from openagent_jax.environments.logs.logged_task import (
    UNSOLVABLE,
    LoggedTask,
    Source,
    escaped,
)
from openagent_jax.environments.tools import cells, choices, types
from openagent_jax.environments.tools.cells import Access
from openagent_jax.environments.tools.types import (
    Facts,
    Goal,
    Split,
    Task,
    TaskPools,
    Tools,
    Wording,
)
from openagent_jax.environments.tools.worlds import documents as tool_documents
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import nesting, wording

BLOCK_SIZE = 256  # tasks that are measured at once
NUM_AROUND = 2  # pieces around a rewritten request: one before it, one after it


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LoggedWorlds:
    """All tasks of a log; arrays with the name of a field of `Task` are as there.

    Attributes:
      documents: the documents that the tasks share.
      document: the document of each tool row of a task; 0 for none.
      num_visible: number of rows of the task's own tools; later rows hold distractors.
      code: the code that each tool reveals; -1 where the log has none.
      failures: number of calls that fail before each tool works.
      of_split: the tasks of each split, repeated to fill the row. Different tasks come
        first; tasks that are equal to one of them follow.
      around: pieces before and after a rewritten request, by split; Y rewrites each.
      codes: first symbol of a code, and the end of the range.
      access: no record is touched; None where no task of the batch has tables.
      num: number of tasks of each split.
      num_distinct: number of different tasks of each split.
    """

    documents: Documents
    document: Int[Array, "_ N"]
    num_visible: Int[Array, "_"]
    result_name: Int[Array, "_ N F"]
    result_path: Int[Array, "_ N F L"]
    code: Int[Array, "_ N"]
    code_from: Int[Array, "_ N"]
    call_after: Int[Array, "_ N"]
    failures: Int[Array, "_ N"]
    goal: Goal
    facts: Facts
    phrase: Int[Array, "_ P"]
    constants: Int[Array, "_ Q"]
    shown: Bool[Array, "_ Q"]
    of_split: Int[Array, "2 _"]
    around: Int[Array, "2 Y 2"]
    codes: Int[Array, "2"]
    access: Access | None
    num: tuple[int, ...] = field(metadata=dict(static=True))
    num_distinct: tuple[int, ...] = field(metadata=dict(static=True))

    def sample(self, key: jax.Array, split: Split, num_visible: int) -> Task:
        """Draw one of the tasks of a split, uniformly.

        Args:
          key: a PRNG key.
          split: 0 for training, 1 for the test.
          num_visible: ignored: a task documents the tools of its conversation.

        Raises:
          ValueError: the split has no task; unnoticed if `split` is traced.
        """
        del num_visible
        self._check(split)
        uniforms = jax.random.uniform(key, (3,))
        r = self.of_split[split, draw.below(uniforms[0], jnp.array(self.num)[split])]
        return self.task(r, uniforms[1:], split)

    def nth(self, key: jax.Array, index: Array, split: Split) -> Task:
        """Return one of the different tasks of a split.

        Args:
          key: a PRNG key, which draws the codes that are not in the log.
          index: a number from 0 to `num_distinct[split] - 1`.
          split: 0 for training, 1 for the test.

        Raises:
          ValueError: the split has no task; unnoticed if `split` is traced.
        """
        self._check(split)
        uniforms = jax.random.uniform(key, (3,))
        return self.task(self.of_split[split, index], uniforms[1:], split)

    def _check(self, split: Split) -> None:
        if isinstance(split, int) and not self.num[split]:
            raise ValueError(
                f"the log has no conversation in the split {[*domain.SPLITS][split]}; "
                "log at least two different conversations"
            )

    def task(self, r: Array, uniforms: Float[Array, "2"], split: Split) -> Task:
        """Return task number r.

        Args:
          r: an integer scalar.
          uniforms: uniform numbers in [0, 1), which choose a code for each tool whose
            code is not in the log.
          split: 0 for training, 1 for the test.
        """
        documents, which = self.documents, self.document[r]
        num_tools = which.shape[0]
        row = jnp.arange(num_tools, dtype=jnp.int32)
        recorded = jnp.full(self.result_name.shape[1:], types.RECORDED, jnp.int32)
        code_range = (jnp.full(num_tools, end) for end in self.codes)
        drawn = draw.distinct_symbols(uniforms, *code_range)
        goal = jax.tree.map(lambda x: x[r], self.goal)
        faults = types.no_faults(num_tools, goal.tool.shape[0])
        return Task(
            world=(2 * r + (split != domain.TRAIN)).astype(jnp.uint32),
            tools=Tools(
                relation=row,
                arg_low=documents.arg_low[which],
                arg_high=documents.arg_high[which],
                arg_also=documents.arg_also[which],
                arg_default=documents.arg_default[which],
                result_low=recorded,
                result_high=recorded,
                result_path=self.result_path[r],
                code=jnp.where(self.code[r] >= 0, self.code[r], drawn),
                code_from=self.code_from[r],
                call_after=self.call_after[r],
                effect=jnp.zeros(num_tools, bool),
                name=documents.name[which],
                description=documents.description[which],
                arg_name=documents.arg_name[which],
                arg_path=documents.arg_path[which],
                result_name=self.result_name[r],
                place=row,
                visible=row < self.num_visible[r],
                document=documents.document[which],
                access=self.access,
            ),
            goal=goal,
            faults=replace(faults, failures=self.failures[r]),
            phrase=self.phrase[r],
            constants=self.constants[r],
            said=self.constants[r],
            shown=self.shown[r],
            facts=jax.tree.map(lambda x: x[r], self.facts),
        )

    def pools(self, task: Task, split: Split, gates: Int[Array, "R 2"]) -> TaskPools:
        """Return what perturbations draw from for a task of the log.

        Constants and results stay those of the task: no others are known.

        Args:
          task: the task.
          split: the split whose synonyms are used; 0 for training, 1 for the test.
          gates: name and description of each gate that a perturbation can add.
        """
        which = self.document[task.world >> 1]
        variants, tools, constants = self.documents.variants, task.tools, task.constants
        begin, end = jnp.moveaxis(self.around[split], -1, 0)
        room = (len(begin), len(task.phrase) - NUM_AROUND)
        same = jnp.broadcast_to(task.phrase[:-NUM_AROUND], room)
        phrases = jnp.concatenate([begin[:, None], same, end[:, None]], axis=1)
        constant_range = jnp.stack([constants, constants + (constants > 0)], axis=-1)
        # A log of a perturbed task may have these tools already.
        taken = jnp.any(gates[:, :1] == tools.name[None], axis=1)
        free = jnp.maximum(jnp.sum(~taken), 1)
        order = jnp.argsort(taken, stable=True)[jnp.arange(len(gates)) % free]
        none = jnp.zeros((1, len(tools.name)), bool)
        return TaskPools(
            names=variants.name[split, which],
            descriptions=variants.description[split, which],
            arg_names=variants.arg_name[split, which],
            arg_paths=variants.arg_path[split, which],
            gates=gates[order],
            phrases=phrases,
            num_phrases=jnp.int32(len(begin)),
            choices=choices.empty(),
            shifted=jnp.stack([tools.result_low, tools.result_high], axis=-1),
            constant_range=constant_range,
            own_range=constant_range,
            other_rate=jnp.zeros(1),  # no other request of these tools is known
            other_needs=none,
            other_sure=none,
            shifted_columns=None,
        )

    def wording(self, split: int) -> Wording:
        """Return the texts of a split that noise is added to; this runs on the host."""
        documents, variants = self.documents, self.documents.variants
        own = np.unique(self.of_split[split]) if self.num[split] else ()
        pieces = np.concatenate(
            [self.phrase[own, :].ravel(), self.around[split].ravel()], dtype=np.int32
        )
        which, count = np.unique(pieces[pieces > 0], return_counts=True)
        return Wording(
            np.union1d(documents.name, variants.name[split]),
            np.union1d(documents.description[:, 0], variants.description[split]),
            which,
            count.astype(float),
        )


# What follows runs on the host, once.


def fitted(limits: Limits, tasks: Iterable[LoggedTask]) -> Limits:
    """Return limits with room for what no config key limits, such as facts."""
    tasks = list(tasks)
    documents = [document for task in tasks for document in task.documents]
    least = types.NUM_TEXT_PIECES + types.NUM_REMARKS
    phrases = [NUM_AROUND + len(task.phrase) for task in tasks]
    kinds = [len(y.kinds) for x in documents for y in x.arguments]
    depths = [task.needs()["sandbox.depth"][0] for task in tasks]
    return replace(
        limits,
        num_pieces=max(limits.num_pieces, least),
        num_phrase_pieces=max([limits.num_phrase_pieces, *phrases]),
        num_unions=max([limits.num_unions + 1, *kinds]) - 1,
        num_facts=limits.num_steps,
        depth=max([limits.depth, *depths]),
    )


def compile(
    tasks: Sequence[LoggedTask],
    symbols: ToolSymbols,
    limits: Limits,
    made: tool_documents.Documents,
) -> LoggedWorlds:
    """Return tasks as arrays.

    Args:
      tasks: all tasks of a log.
      symbols: the table that their surface forms are added to.
      limits: the sizes of the arrays, `fitted` to the tasks.
      made: the documents of their tools are added to these.
    """
    N, A, F = limits.num_tools, limits.num_args, limits.num_fields
    C, Q, P = limits.num_steps, limits.num_constants, limits.num_phrase_pieces
    R, test = len(tasks), logs.in_test_split(tasks)
    table, levels = DocumentTable(symbols, limits, tasks, made), limits.depth - 1
    arrays = {
        "document": np.zeros((R, N), np.int32),
        "num_visible": np.zeros(R, np.int32),
        "result_name": np.zeros((R, N, F), np.int32),
        "result_path": np.zeros((R, N, F, levels), np.int32),
        "code": np.full((R, N), -1, np.int32),
        "code_from": np.full((R, N), -1, np.int32),
        "call_after": np.full((R, N), -1, np.int32),
        "failures": np.zeros((R, N), np.int32),
        "phrase": np.zeros((R, P), np.int32),
        "constants": np.zeros((R, Q), np.int32),
        "shown": np.ones((R, Q), bool),
    }
    goal = Goal(
        tool=np.full((R, C), -1, np.int32),
        source=np.full((R, C, A), -1, np.int32),
        answer=np.full(R, -1, np.int32),
        kind=np.zeros(R, np.int32),
    )
    facts = Facts(
        relation=np.full((R, C), -1, np.int32),
        args=np.zeros((R, C, A), np.int32),
        values=np.full((R, C, F), -1, np.int32),
        bare=np.zeros((R, C, F), bool),
    )
    for r, task in enumerate(tasks):
        tool_row = {document.name: n for n, document in enumerate(task.documents)}
        arguments = list(map(table.arguments, task.documents))
        fields = task.fields()

        def source_index(source: Source, task=task, fields=fields) -> int:
            if isinstance(source, int):
                return source
            step, name = source
            return Q + step * F + fields[task.steps[step].tool].index(name)

        arrays["num_visible"][r] = len(task.documents)
        for n, document in enumerate(task.documents):
            arrays["document"][r, n] = table.row(document)
            for key, name in (
                ("code_from", document.code_from),
                ("call_after", document.call_after),
            ):
                arrays[key][r, n] = tool_row[name] if name else -1
            for f, path in enumerate(fields.get(document.name, ())):
                keys = nesting.encoded(path, levels, symbols.one)
                arrays["result_path"][r, n, f], arrays["result_name"][r, n, f] = keys
        for name, code in task.codes.items():
            arrays["code"][r, tool_row[name]] = table.value(code)
        for name, num in task.failures.items():
            arrays["failures"][r, tool_row[name]] = num
        for p, piece in enumerate(task.phrase):
            is_constant = isinstance(piece, int)
            arrays["phrase"][r, p] = -1 - piece if is_constant else symbols.one(piece)
        for q, value in enumerate(task.constants):
            arrays["constants"][r, q] = table.value(value)
            arrays["shown"][r, q] = task.shown[q]
        for c, step in enumerate(task.steps):
            n = tool_row[step.tool]
            goal.tool[r, c] = facts.relation[r, c] = n
            for a, (path, *_) in enumerate(arguments[n]):
                if path in step.values:  # else the call leaves it out
                    goal.source[r, c, a] = source_index(step.sources[path])
                    facts.args[r, c, a] = table.value(step.values[path])
            for f, path in enumerate(fields[step.tool]):
                if path in step.fields:
                    value, bare = step.fields[path]
                    if isinstance(value, str) and not bare:
                        value = escaped(value)
                    facts.values[r, c, f] = table.value(value)
                    facts.bare[r, c, f] = bare
        if task.answer == UNSOLVABLE:
            # A step that needs its own result can never be executed.
            goal.tool[r, 0], goal.source[r, 0, 0] = 0, Q
        elif task.answer != DONE:
            goal.answer[r] = source_index(task.answer)
    _add_distractors(arrays["document"], arrays["num_visible"], tasks, test, table)
    of_split, num, num_distinct = _splits(tasks, range(R))
    columns = limits.num_columns
    access = cells.untouched(N, F, columns) if columns else None
    worlds = LoggedWorlds(
        documents=table.arrays(),
        goal=goal,
        facts=facts,
        of_split=of_split,
        num=num,
        num_distinct=num_distinct,
        around=_around(symbols),
        access=access,
        codes=np.array([symbols.codes.low, symbols.codes.high], np.int32),
        **arrays,
    )
    return jax.tree.map(jnp.asarray, worlds)


def measured(
    measure: Callable[[Int[np.ndarray, "R"]], dict[str, Array]], num: int
) -> dict[str, np.ndarray]:
    """Return the measurements of a function on each task.

    Args:
      measure: returns measurements by name, given the numbers of R tasks.
      num: number of tasks.

    Returns:
      An array of `num` values by name.
    """
    size = min(num, BLOCK_SIZE)
    starts = range(0, num, size)
    rows = (np.minimum(start + np.arange(size), num - 1) for start in starts)
    blocks = [jax.device_get(measure(block)) for block in rows]
    return jax.tree.map(lambda *x: np.concatenate(x)[:num], *blocks)


def only(
    source: LoggedWorlds, tasks: Sequence[LoggedTask], kept: Sequence[int]
) -> LoggedWorlds:
    """Return the worlds with only some of the tasks left in the splits.

    Args:
      source: the worlds.
      tasks: all tasks of the worlds.
      kept: the indices of the tasks to keep.
    """
    of_split, num, num_distinct = _splits(tasks, kept)
    return replace(
        source, of_split=jnp.asarray(of_split), num=num, num_distinct=num_distinct
    )


def _splits(
    tasks: Sequence[LoggedTask], kept: Sequence[int]
) -> tuple[np.ndarray, tuple[int, ...], tuple[int, ...]]:
    """Return the tasks of each split, repeated to fill a row, and their numbers.

    Tasks that are equal to an earlier one come last in a row, and the last numbers do
    not count them.
    """
    is_test, seen = logs.in_test_split(tasks), set[str]()
    splits: list[tuple[list[int], list[int]]] = [([], []), ([], [])]
    for r in kept:
        text = tasks[r].content()
        first, again = splits[is_test[r]]
        (again if text in seen else first).append(r)
        seen.add(text)
    filled = [np.resize(np.array(x + y, np.int32), len(tasks)) for x, y in splits]
    num = tuple(len(x) + len(y) for x, y in splits)
    return np.stack(filled), num, tuple(len(x) for x, _ in splits)


def _add_distractors(
    document: np.ndarray,
    num_visible: np.ndarray,
    tasks: Sequence[LoggedTask],
    is_test: Sequence[bool],
    table: DocumentTable,
) -> None:
    """Fill the remaining rows with invisible tools of other tasks of the same split.

    Perturbations that add distractors make them visible.
    """
    num_rows = document.shape[1]
    for split in (False, True):
        rows = [r for r, test in enumerate(is_test) if test == split]
        documents = {x.name: x for r in rows for x in tasks[r].documents}
        names = sorted(documents)
        for r in rows:
            own = {x.name for x in tasks[r].documents}
            start = 7919 * r  # a large prime, so that tasks start at different names
            order = (names[(start + i) % len(names)] for i in range(len(names)))
            others = itertools.islice((x for x in order if x not in own), num_rows)
            free = range(num_visible[r], num_rows)
            for n, name in zip(free, others, strict=False):
                document[r, n] = table.row(documents[name])


def _around(symbols: ToolSymbols) -> np.ndarray:
    """Return the symbols before and after a rewritten request, by split."""
    templates = [wording.REQUEST_TEMPLATES[pool] for pool in wording.REWRITES]
    parts = [[text.partition("{}")[::2] for text in pool] for pool in templates]
    return np.array(
        [[list(map(symbols.one, pair)) for pair in pool] for pool in parts], np.int32
    )
