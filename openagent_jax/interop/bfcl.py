"""Tasks of the Berkeley Function Calling Leaderboard, clean and perturbed.

One turn: a request, documents of functions, and a call that is right or wrong, or no
call where none of the functions serves (Patil et al., ICML 2025). Its data files are
those of the package `bfcl-eval`; nothing else of it is used. How the functions look is
arrays of a `Task`, so that the perturbations of the catalogue serve as they are; the
call is read back through them, and checked against what BFCL accepts.
"""

# Tasks are built in NumPy.
# pyright: reportArgumentType=false

import copy
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import evaluate, perturb
from openagent_jax.interop import call_check, packages
from openagent_jax.interop.play import Episode
from openagent_jax.sandbox import conversation, symbols, wording
from openagent_jax.types import Faults, Goal, Task, Tools

PREFIX = "bfcl:"
PACKAGE, MODULE = "bfcl-eval", "bfcl_eval"
CATEGORIES = ("simple_python", "multiple", "irrelevance")
# Of the catalogue, what has a meaning where there is one turn and no world.
SCENARIOS = (
    "identity_erasure",
    "semantic_renaming",
    "semantic_trap",
    "argument_renaming",
    "description_rewrite",
    "distractor_tools",
    "tool_order",
    "tool_withheld",
)
# An OpenAI type for each of BFCL's.
_OPENAI = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_SPARE = 3  # functions of other tasks, hidden until a perturbation shows them
_VARIANTS = 4


@dataclass(frozen=True)
class Item:
    """A task as it is written."""

    id: str
    messages: list[conversation.Message]
    functions: list[dict[str, Any]]
    wanted: int  # index of the function to be called; -1: none
    accepted: dict[str, list]  # values of its arguments


def load(category: str) -> list[Item]:
    """
    Raises:
      ValueError: the package is not there, or its files are not as they were.
    """
    if category not in CATEGORIES:
        raise ValueError(f'no category "{category}"; known: {", ".join(CATEGORIES)}')
    name = re.compile(rf"BFCL_v\d+_{category}\.json")
    folder = packages.data(MODULE, PACKAGE)
    file = next((x for x in folder.iterdir() if name.fullmatch(x.name)), None)
    if file is None:
        raise ValueError(f"{folder}: no file of {category}")
    answers = {}
    if category != "irrelevance":
        found = _lines(file.parent / "possible_answer" / file.name)
        answers = {row["id"]: row["ground_truth"][0] for row in found}
    try:
        return [_item(row, answers.get(row["id"], {})) for row in _lines(file)]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{file} is not as it was: {error!r}") from None


@dataclass(frozen=True)
class Suite:
    """The tasks of a category, clean and perturbed."""

    category: str
    items: Sequence[Item]
    scenarios: tuple[str, ...]
    seed: int
    strength: float
    split: str = "test"

    @property
    def names(self) -> tuple[str, ...]:
        return (evaluate.CLEAN, *self.scenarios)

    @property
    def num_tasks(self) -> int:
        return len(self.items)

    def episodes(self, done: Collection[tuple[str, int]] = ()) -> Iterator[Episode]:
        """All that are not done, in order."""
        for name in self.names:
            left = [i for i in range(len(self.items)) if (name, i) not in done]
            if not left:
                continue
            tasks = self._edited(name)
            for i in left:
                clean, task = (_row(x, i) for x in (self._arrays[0], tasks))
                if not task.tools.visible.any():  # nothing would be asked any more
                    task = clean
                begin, first = partial(Question, self, i, task), name == evaluate.CLEAN
                question = begin()
                changed = question.tools != Question(self, i, clean).tools
                facts = {
                    "changed": changed or first,
                    "solvable": question.solvable,
                    "fewest_calls": int(question.solvable),
                }
                yield Episode(name, i, task, begin, facts)

    def digest(self) -> str:
        """Of all items, and how they look."""
        found = hashlib.sha256(json.dumps([vars(x) for x in self.items]).encode())
        for leaf in jax.tree.leaves(self._arrays[0]):
            found.update(leaf.tobytes())
        return found.hexdigest()[:16]

    def rows(self, i: int) -> list[dict[str, Any]]:
        """The functions of a task, its own first, then those that are hidden."""
        return [*self.items[i].functions, *self._spare[i]]

    @cached_property
    def texts(self) -> list[str]:
        """Of each symbol."""
        return self._table.texts

    @cached_property
    def _table(self) -> symbols.Symbols:
        return symbols.Symbols()

    @cached_property
    def _spare(self) -> list[list[dict[str, Any]]]:
        """Functions of other tasks, with names that this one has not."""
        every, found = [f for item in self.items for f in item.functions], []
        for i, item in enumerate(self.items):
            rng = np.random.default_rng([self.seed, i])
            taken = {_spelled(f["name"]) for f in item.functions}
            chosen: list[dict[str, Any]] = []
            for at in rng.permutation(len(every)):
                if len(chosen) == _SPARE:
                    break
                if (name := _spelled(every[at]["name"])) not in taken:
                    taken.add(name)
                    chosen.append(every[at])
            found.append(chosen)
        return found

    @cached_property
    def _arrays(self) -> tuple[Task, dict[str, np.ndarray]]:
        """Tasks, and what perturbations draw from: a leading axis of items."""
        functions = [self.rows(i) for i in range(len(self.items))]
        num = max(map(len, functions))
        num_args = max(len(_properties(f)) for row in functions for f in row)
        made = [
            self._one(item, row, num, num_args)
            for item, row in zip(self.items, functions, strict=True)
        ]
        return jax.tree.map(lambda *x: np.stack(x), *made)

    def _one(
        self, item: Item, functions: list[dict], num: int, num_args: int
    ) -> tuple[Task, dict[str, np.ndarray]]:
        one = self._table.one
        name, description = np.zeros(num, np.int32), np.zeros((num, 1), np.int32)
        arg_name = np.zeros((num, num_args), np.int32)
        pools = {
            "names": np.zeros((num, _VARIANTS), np.int32),
            "descriptions": np.zeros((num, _VARIANTS), np.int32),
            "arg_names": np.zeros((num, num_args, _VARIANTS), np.int32),
        }
        taken = {_spelled(f["name"]) for f in functions}
        for n, function in enumerate(functions):
            text, spelled = function["description"], _spelled(function["name"])
            does = wording.doing(function["name"], text)
            name[n], description[n, 0] = one(spelled), one(text)
            said = wording.names(spelled, does)[self.split]
            pools["names"][n] = _fill(one, said, taken)
            others = wording.descriptions(does)[self.split]
            pools["descriptions"][n] = _fill(one, others, {text})
            known = {*_properties(function)}
            for a, argument in enumerate(_properties(function)):
                arg_name[n, a] = one(argument)
                said = wording.arguments(argument)[self.split]
                pools["arg_names"][n, a] = _fill(one, said, known)
        none, rows = np.zeros(num, np.int32), np.arange(num, dtype=np.int32)
        has = (arg_name > 0).astype(np.int32)
        own = len(item.functions)
        tools = Tools(
            relation=rows,
            arg_low=np.zeros_like(has),
            arg_high=has,
            result_low=np.zeros((num, 1), np.int32),
            result_high=np.zeros((num, 1), np.int32),
            code=none,
            code_from=none - 1,
            call_after=none - 1,
            effect=none.astype(bool),
            name=name,
            description=description,
            arg_name=arg_name,
            result_name=np.zeros((num, 1), np.int32),
            place=rows,
            visible=rows < own,
        )
        goal = Goal(
            tool=np.array([item.wanted], np.int32),
            source=np.full((1, num_args), -1, np.int32),
            answer=np.int32(-1),
            family=np.int32(0),
        )
        zero = np.zeros(1, np.int32)
        task = Task(
            world=np.uint32(0),
            tools=tools,
            goal=goal,
            faults=Faults(none, none - 1, none.astype(bool), none),
            phrase=zero,
            constants=zero,
            shown=zero == 0,
        )
        return task, pools

    def _edited(self, name: str) -> Task:
        """All tasks under a scenario."""
        tasks, pools = self._arrays
        if name == evaluate.CLEAN:
            return tasks
        opaque, zero = self._table.opaque[self.split], jnp.zeros((1, 1), jnp.int32)

        def edit(key, task, pools):
            made = perturb.Pools(
                **pools,
                opaque=jnp.array([opaque.low, opaque.high]),
                gates=zero,
                phrases=zero[None],
                num_phrases=zero[0],
                styles=zero[0],
                shifted=zero[None],
                constant_range=zero[None],
                transfer=lambda key: task,
            )
            return perturb.make(name, made)(key, task, jnp.float32(self.strength))

        # The keys that tasks of other suites have, when they are edited.
        keys = evaluate.task_keys(jax.random.key(self.seed), 0, len(self.items))
        keys = jax.vmap(jax.random.fold_in, (0, None))(keys, 1)
        return jax.device_get(jax.jit(jax.vmap(edit))(keys, tasks, pools))


class Question:
    """One task: the first reply is the last."""

    def __init__(self, suite: Suite, index: int, task: Task):
        self._suite, self._item, self._task = suite, suite.items[index], task
        self._rows = suite.rows(index)
        shown = np.argsort(task.tools.place, kind="stable")
        self.tools = [self._document(int(n)) for n in shown if task.tools.visible[n]]
        self.messages = copy.deepcopy(self._item.messages)
        self.finished = self.success = self.refused = False
        self.num_calls = self.num_errors = 0

    @property
    def solvable(self) -> bool:
        wanted = self._item.wanted
        return wanted >= 0 and bool(self._task.tools.visible[wanted])

    def hear(self, reply: conversation.Message, cut: bool = False) -> None:
        """A call counts if it can be read; what a limit has cut off, as it stands."""
        del cut
        calls = conversation.calls(reply)
        if any(not call.arguments for call in calls):
            calls = []  # as BFCL has it: what cannot be read is no call
        self.finished, self.refused = True, not calls
        self.num_calls = len(calls)
        self.success = not calls
        if self.solvable:
            self.success = len(calls) == 1 and self._accepts(calls[0])
        self.num_errors = self.num_calls * (not self.success)
        self.messages.append(conversation.repeated(reply))

    def close(self) -> None:
        """The agent could not read it."""
        self.finished = True

    def _accepts(self, call: conversation.Call) -> bool:
        n, texts, tools = self._item.wanted, self._suite.texts, self._task.tools
        if call.name != texts[tools.name[n]]:
            return False
        function = self._rows[n]
        spelled = {
            texts[symbol]: name
            for name, symbol in zip(
                _properties(function), tools.arg_name[n], strict=False
            )
        }
        given = json.loads(call.arguments)
        if any(name not in spelled for name in given):
            return False
        given = {spelled[name]: value for name, value in given.items()}
        return call_check.accepts(function["parameters"], self._item.accepted, given)

    def _document(self, n: int) -> dict[str, Any]:
        texts, tools = self._suite.texts, self._task.tools
        function = _typed(copy.deepcopy(self._rows[n]))
        parameters = function["parameters"]
        spelled = {
            name: texts[symbol]
            for name, symbol in zip(
                parameters["properties"], tools.arg_name[n], strict=False
            )
        }
        parameters["properties"] = {
            spelled[name]: value for name, value in parameters["properties"].items()
        }
        required = parameters.get("required", [])
        parameters["required"] = [spelled[name] for name in required]
        return {
            "type": "function",
            "function": {
                "name": texts[tools.name[n]],
                "description": "".join(texts[s] for s in tools.description[n]),
                "parameters": parameters,
            },
        }


def _row(tasks: Task, i: int) -> Task:
    return jax.tree.map(lambda x: x[i], tasks)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines() if line]


def _item(row: dict[str, Any], accepted: dict[str, dict[str, list]]) -> Item:
    names = [function["name"] for function in row["function"]]
    (name, values), *_ = accepted.items() or [("", {})]
    wanted = names.index(name) if accepted else -1
    return Item(row["id"], row["question"][0], row["function"], wanted, values)


def _properties(function: dict[str, Any]) -> dict[str, Any]:
    return function["parameters"]["properties"]


def _spelled(name: str) -> str:
    """As endpoints take it: they know no dots."""
    return name.replace(".", "_")


def _typed(schema: Any) -> Any:
    """With OpenAI's types."""
    if isinstance(schema, list):
        return [_typed(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _typed(value) for key, value in schema.items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = _OPENAI.get(kind, kind)
    return found


def _fill(one: Any, texts: Sequence[str], taken: set[str]) -> list[int]:
    """Symbols of the first few that nothing else is called, repeated."""
    fresh = [text for text in dict.fromkeys(texts) if text and text not in taken]
    fresh = fresh[:_VARIANTS]
    taken.update(fresh)
    found = [one(text) for text in fresh] or [0]
    return [found[i % len(found)] for i in range(_VARIANTS)]
