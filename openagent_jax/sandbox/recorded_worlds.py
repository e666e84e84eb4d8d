"""Recorded worlds as arrays, and tasks drawn from them.

A task is a conversation of a log: its tools, its calls and their results (see
`log_mapping`). World number w is that of task w // 2, odd for the test. Documents are
shared by all tasks that show them; all else is a row of the task.
"""

# Arrays are built in NumPy, and become JAX arrays at the end.
# pyright: reportArgumentType=false

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw, types
from openagent_jax.sandbox import domain, logs, wording
from openagent_jax.sandbox.domain_spec import DONE
from openagent_jax.sandbox.log_mapping import REFUSED, Recorded
from openagent_jax.sandbox.recorded_documents import Documents, Table
from openagent_jax.sandbox.symbols import Symbols
from openagent_jax.types import Facts, Faults, Goal, Limits, Task, Tools

BLOCK = 256  # tasks that are measured at once
AROUND = 2  # pieces before and behind a request that is rewritten


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Recordings:
    """All tasks of a log."""

    documents: Documents
    document: Int[Array, "_ N"]  # of each tool row of a task; 0: none
    num_visible: Int[Array, "_"]
    result_name: Int[Array, "_ N F"]
    code: Int[Array, "_ N"]
    code_from: Int[Array, "_ N"]
    call_after: Int[Array, "_ N"]
    failures: Int[Array, "_ N"]
    goal: Goal
    facts: Facts
    phrase: Int[Array, "_ P"]
    constants: Int[Array, "_ Q"]
    shown: Bool[Array, "_ Q"]
    of_split: Int[Array, "2 _"]  # tasks of each
    around: Int[Array, "2 Y 2"]  # by split: pieces around a rewritten request
    codes: Int[Array, "2"]  # range
    num: tuple[int, ...] = field(metadata=dict(static=True))  # of each split


def sample_task(source: Recordings, key: jax.Array, split: int) -> Task:
    """One of the tasks, each as likely.

    Raises:
      ValueError: there is none in this split.
    """
    if not source.num[split]:
        raise ValueError(
            f"the log has no conversation for the split {[*domain.SPLITS][split]}; two "
            "different ones are needed for both"
        )
    lots = jax.random.uniform(key, (3,))
    r = source.of_split[split, draw.below(lots[0], jnp.int32(source.num[split]))]
    return _task(source, r, lots[1:], split)


def _task(source: Recordings, r: Array, lots: Float[Array, "2"], split: int) -> Task:
    documents, which = source.documents, source.document[r]
    num_tools = which.shape[0]
    row = jnp.arange(num_tools, dtype=jnp.int32)
    none = jnp.zeros(num_tools, jnp.int32)
    recorded = jnp.full(source.result_name.shape[1:], types.RECORDED, jnp.int32)
    code_range = (jnp.full(num_tools, end) for end in source.codes)
    drawn = draw.spread(lots, *code_range)
    return Task(
        world=(2 * r + (split != domain.TRAIN)).astype(jnp.uint32),
        tools=Tools(
            relation=row,
            arg_low=documents.arg_low[which],
            arg_high=documents.arg_high[which],
            result_low=recorded,
            result_high=recorded,
            code=jnp.where(source.code[r] >= 0, source.code[r], drawn),
            code_from=source.code_from[r],
            call_after=source.call_after[r],
            effect=none.astype(bool),
            name=documents.name[which],
            description=documents.description[which],
            arg_name=documents.arg_name[which],
            result_name=source.result_name[r],
            place=row,
            visible=row < source.num_visible[r],
        ),
        goal=jax.tree.map(lambda x: x[r], source.goal),
        faults=Faults(source.failures[r], none - 1, none.astype(bool), none),
        phrase=source.phrase[r],
        constants=source.constants[r],
        shown=source.shown[r],
        facts=jax.tree.map(lambda x: x[r], source.facts),
    )


class Pools(NamedTuple):
    """What perturbations draw from, as in `perturb.Pools`, that is of one task."""

    names: Int[Array, "N Y"]
    descriptions: Int[Array, "N Y"]
    arg_names: Int[Array, "N A Y"]
    gates: Int[Array, "G 2"]
    phrases: Int[Array, "1 Y P"]
    num_phrases: Int[Array, "1"]
    constant_range: Int[Array, "1 Q 2"]  # its own: nothing else was recorded
    shifted: Int[Array, "N F 2"]


def pools(
    source: Recordings, task: Task, split: int, gates: Int[Array, "G 2"]
) -> Pools:
    which = source.document[task.world >> 1]
    variants, tools, constants = source.documents.variants, task.tools, task.constants
    begin, end = jnp.moveaxis(source.around[split], -1, 0)
    room = (len(begin), len(task.phrase) - AROUND)
    same = jnp.broadcast_to(task.phrase[:-AROUND], room)
    phrases = jnp.concatenate([begin[:, None], same, end[:, None]], axis=1)
    # A log that we have written may have such tools already.
    taken = jnp.any(gates[:, :1] == tools.name[None], axis=1)
    free = jnp.maximum(jnp.sum(~taken), 1)
    order = jnp.argsort(taken, stable=True)[jnp.arange(len(gates)) % free]
    return Pools(
        names=variants.name[split, which],
        descriptions=variants.description[split, which],
        arg_names=variants.arg_name[split, which],
        gates=gates[order],
        phrases=phrases[None],
        num_phrases=jnp.array([len(begin)]),
        constant_range=jnp.stack([constants, constants + (constants > 0)], -1)[None],
        shifted=jnp.stack([tools.result_low, tools.result_high], axis=-1),
    )


# Host side.


def fitted(limits: Limits, tasks: Iterable[Recorded]) -> Limits:
    """Limits with room for what no key of a config bounds."""
    tasks = list(tasks)
    pieces = [len(x.description) for task in tasks for x in task.documents]
    phrases = [AROUND + len(task.phrase) for task in tasks]
    return replace(
        limits,
        num_pieces=max([limits.num_pieces, *pieces]),
        num_phrase_pieces=max([limits.num_phrase_pieces, *phrases]),
        num_facts=limits.num_steps,
    )


def compile(tasks: Sequence[Recorded], symbols: Symbols, limits: Limits) -> Recordings:
    """Arrays of tasks that have room in the limits, which were `fitted`; their surface
    forms are added to `symbols`."""
    N, A, F = limits.num_tools, limits.num_args, limits.num_fields
    C, Q, P = limits.num_steps, limits.num_constants, limits.num_phrase_pieces
    R, test = len(tasks), logs.is_test(tasks)
    table = Table(symbols, limits)
    arrays = {
        "document": np.zeros((R, N), np.int32),
        "num_visible": np.zeros(R, np.int32),
        "result_name": np.zeros((R, N, F), np.int32),
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
        family=np.zeros(R, np.int32),
    )
    facts = Facts(
        relation=np.full((R, C), -1, np.int32),
        args=np.zeros((R, C, A), np.int32),
        values=np.full((R, C, F), -1, np.int32),
    )
    for r, task in enumerate(tasks):
        at = {document.name: n for n, document in enumerate(task.documents)}
        arguments = [dict(document.arguments) for document in task.documents]
        fields = task.fields()

        def source(found: int | tuple[int, str], task=task, fields=fields) -> int:
            if isinstance(found, int):
                return found
            step, name = found
            return Q + step * F + fields[task.steps[step].tool].index(name)

        arrays["num_visible"][r] = len(task.documents)
        for n, document in enumerate(task.documents):
            arrays["document"][r, n] = table.row(document)
            for key, name in (
                ("code_from", document.code_from),
                ("call_after", document.call_after),
            ):
                arrays[key][r, n] = at[name] if name else -1
            for f, name in enumerate(fields.get(document.name, ())):
                arrays["result_name"][r, n, f] = symbols.one(name)
        for name, code in task.codes.items():
            arrays["code"][r, at[name]] = table.value(code)
        for name, num in task.failures.items():
            arrays["failures"][r, at[name]] = num
        for p, piece in enumerate(task.phrase):
            known = isinstance(piece, int)
            arrays["phrase"][r, p] = -1 - piece if known else symbols.one(piece)
        for q, text in enumerate(task.constants):
            arrays["constants"][r, q] = table.value(text)
            arrays["shown"][r, q] = task.shown[q]
        for c, step in enumerate(task.steps):
            n = at[step.tool]
            goal.tool[r, c] = facts.relation[r, c] = n
            for a, name in enumerate(arguments[n]):
                goal.source[r, c, a] = source(step.sources[name])
                facts.args[r, c, a] = table.value(step.values[name])
            for f, name in enumerate(fields[step.tool]):
                if name in step.fields:
                    facts.values[r, c, f] = table.value(step.fields[name])
        if task.answer == REFUSED:
            # A step that waits for its own result can never be done.
            goal.tool[r, 0], goal.source[r, 0, 0] = 0, Q
        elif task.answer != DONE:
            goal.answer[r] = source(task.answer)
    _hide_others(arrays["document"], arrays["num_visible"], tasks, test, table)
    of_split, num = _halves(test, range(R))
    made = Recordings(
        documents=table.arrays(),
        goal=goal,
        facts=facts,
        of_split=of_split,
        num=num,
        around=_around(symbols),
        codes=np.array([symbols.codes.low, symbols.codes.high], np.int32),
        **arrays,
    )
    return jax.tree.map(jnp.asarray, made)


def measured(
    source: Recordings, measure: Callable[[Task], dict[str, Array]], num: int
) -> dict[str, np.ndarray]:
    """What is measured of each of the tasks."""

    @jax.jit
    def block(start):
        rows = jnp.minimum(start + jnp.arange(BLOCK), num - 1)
        lots = jnp.zeros(2)
        return jax.vmap(lambda r: measure(_task(source, r, lots, domain.TRAIN)))(rows)

    blocks = [jax.device_get(block(start)) for start in range(0, num, BLOCK)]
    return jax.tree.map(lambda *x: np.concatenate(x)[:num], *blocks)


def only(
    source: Recordings, tasks: Sequence[Recorded], kept: Sequence[int]
) -> Recordings:
    """The same without some of its tasks."""
    of_split, num = _halves(logs.is_test(tasks), kept)
    return replace(source, of_split=jnp.asarray(of_split), num=num)


def _halves(
    is_test: Sequence[bool], kept: Sequence[int]
) -> tuple[np.ndarray, tuple[int, ...]]:
    """The tasks of each split, repeated to fill a row, and how many there are."""
    rows = np.array(kept)
    test = np.array(is_test)[rows]
    halves = rows[~test], rows[test]
    filled = [np.resize(half, len(is_test)) for half in halves]
    return np.stack(filled).astype(np.int32), tuple(map(len, halves))


def _hide_others(
    document: np.ndarray,
    num_visible: np.ndarray,
    tasks: Sequence[Recorded],
    is_test: Sequence[bool],
    table: Table,
) -> None:
    """Fill rows that are left with tools of other conversations of the split, not
    documented: what distracts is taken from there."""
    num_rows = document.shape[1]
    for half in (False, True):
        there = [r for r, test in enumerate(is_test) if test == half]
        others = {x.name: x for r in there for x in tasks[r].documents}
        names = sorted(others)
        for r in there:
            own = {x.name for x in tasks[r].documents}
            first = 7919 * r  # another start for each
            order = (names[(first + i) % len(names)] for i in range(len(names)))
            more = itertools.islice((x for x in order if x not in own), num_rows)
            free = range(num_visible[r], num_rows)
            for n, name in zip(free, more, strict=False):
                document[r, n] = table.row(others[name])


def _around(symbols: Symbols) -> np.ndarray:
    """What is said before and behind a request when it is rewritten, by split."""
    forms = [wording.OPENINGS[f"rewrite_{split}"] for split in domain.SPLITS]
    parts = [[form.partition("{}")[::2] for form in pool] for pool in forms]
    return np.array(
        [[list(map(symbols.one, pair)) for pair in pool] for pool in parts], np.int32
    )
