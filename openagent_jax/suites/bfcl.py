"""Tasks of the Berkeley Function Calling Leaderboard, clean and perturbed.

A task has one turn. It gives a request and documents of functions; the right reply is a
call that BFCL accepts, or no call if none of the functions fits (Patil et al., ICML
2025). The data files are those of the package `bfcl-eval`; nothing else of the package
is used. Documents are arrays with the field names of tool worlds, so that their
perturbations apply. A call is mapped back to the original names before it is checked.
"""

# Tasks are built in NumPy.
# pyright: reportArgumentType=false

import copy
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from openagent_jax import perturb
from openagent_jax.agents.cost import Expected, expected
from openagent_jax.agents.play import Episode
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.make import DOMAINS, functions
from openagent_jax.environments.tools.perturb.edits import Pools
from openagent_jax.environments.tools.types import Reworded
from openagent_jax.environments.tools.worlds.asides import Asides
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.environments.world import EnvironmentSpec
from openagent_jax.interop import packages
from openagent_jax.suites import call_check
from openagent_jax.text import messages, wording
from openagent_jax.text.key_forms import KeyForms
from openagent_jax.types import Environment, Outcome, Sizes, Tables

PREFIX = "bfcl:"
PACKAGE, MODULE = "bfcl-eval", "bfcl_eval"
CATEGORIES = ("simple_python", "multiple", "irrelevance")
# The perturbations that make sense for a single turn without a world.
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
# What a config may name: the catalogue of tool worlds. Only `SCENARIOS` are played.
SPEC = EnvironmentSpec(DOMAINS.make, DOMAINS.perturbations, suite=DOMAINS.suite)
# The OpenAI type for each BFCL type whose name differs.
_OPENAI = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
_SPARE = 3  # functions of other tasks, hidden until a perturbation reveals them
_VARIANTS = 4  # synonyms of each name and description


# The fields of a task of tool worlds that perturbations of documents use.


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Documents:
    """The documents of N functions; see `environments.tools.types.Tools`.

    Texts are symbols, and A is the largest number of arguments.
    """

    name: Int[Array, "N"]
    description: Int[Array, "N 1"]
    arg_name: Int[Array, "N A"]
    arg_path: Int[Array, "N A 0"]  # arguments are renamed at the top only
    place: Int[Array, "N"]
    visible: Bool[Array, "N"]
    relation: Int[Array, "N"]
    code_from: Int[Array, "N"]  # -1: no function of BFCL has a prerequisite
    call_after: Int[Array, "N"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wanted:
    tool: Int[Array, "1"]  # row of the function to be called, or -1
    kind: Int[Array, ""]  # never negative: no other domain replaces the functions
    when: None = None  # a call is never wanted only under a condition


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Failing:
    failures: Int[Array, "N"]  # how many calls of each function fail
    moved_to: Int[Array, "N"]  # -1: no function of BFCL is replaced
    lister: Int[Array, ""]  # -1: none lists the others
    wording: Int[Array, "N"]  # of errors; all have the normal one


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Task:
    tools: Documents
    goal: Wanted
    faults: Failing


@dataclass(frozen=True)
class Item:
    """A task of the data files."""

    id: str
    messages: list[messages.Message]
    functions: list[dict[str, Any]]
    wanted: int  # index of the function to be called; -1: none
    accepted: dict[str, list]  # accepted values of its arguments


def load(category: str) -> list[Item]:
    """Return the tasks of a category.

    Args:
      category: one of `CATEGORIES`.

    Raises:
      ValueError: the category is unknown, the package is not installed, or a file has
        another format.
    """
    if category not in CATEGORIES:
        raise ValueError(f'no category "{category}"; known: {", ".join(CATEGORIES)}')
    name = re.compile(rf"BFCL_v\d+_{category}\.json")
    folder = packages.data(MODULE, PACKAGE)
    file = next((x for x in folder.iterdir() if name.fullmatch(x.name)), None)
    if file is None:
        raise ValueError(
            f"{folder}: no file of the category {category}; install another version "
            f"of {PACKAGE}"
        )
    answers = {}
    try:
        if category != "irrelevance":
            found = _lines(file.parent / "possible_answer" / file.name)
            answers = {row["id"]: row["ground_truth"][0] for row in found}
        return [_item(row, answers.get(row["id"], {})) for row in _lines(file)]
    except OSError as error:
        raise ValueError(f"{file}: its answers cannot be read: {error}") from None
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{file} has an unexpected format: {error!r}") from None


def applies(scenario: str) -> bool:
    """Return whether a perturbation, or every part of a composition, can be played.

    >>> applies("semantic_trap+tool_order"), applies("semantic_trap+runtime_error")
    (True, False)
    """
    return {*perturb.part_names(scenario)} <= {*SCENARIOS}


@dataclass(frozen=True)
class Suite:
    """The tasks of a category, clean and perturbed."""

    category: str
    items: Sequence[Item]
    scenarios: tuple[str, ...]
    seed: int
    strength: float
    split: str = "test"
    scenario_set: Mapping[str, Any] = field(default_factory=dict)  # of a suite, if any

    @property
    def names(self) -> tuple[str, ...]:
        return (draw.CLEAN, *self.scenarios)

    @property
    def num_tasks(self) -> int:
        return len(self.items)

    @property
    def repeats(self) -> int:
        return 1

    def bounds(self) -> dict[str, dict[str, np.ndarray]]:
        """Return nothing: scripted agents play environments, not data files."""
        return {}

    def domains(self) -> None:
        """Return nothing: the functions of a category are of no domain."""

    def episodes(self, done: Collection[tuple[str, int]] = ()) -> Iterator[Episode]:
        """Yield the episodes that are not done, in order.

        Args:
          done: `(scenario, index)` of the episodes to leave out.
        """
        keys = draw.task_keys(jax.random.key(self.seed), 0, len(self.items))
        for name in self.names:
            left = [i for i in range(len(self.items)) if (name, i) not in done]
            if not left:
                continue
            tasks = self._edited(name)
            for i in left:
                clean, task = (_row(x, i) for x in (self._arrays[0], tasks))
                if not task.tools.visible.any():  # no document would be left
                    task = clean
                begin, first = partial(Question, self, i, task), name == draw.CLEAN
                question = begin()
                changed = question.tools != Question(self, i, clean).tools
                facts = {
                    "task_key": np.asarray(jax.random.key_data(keys[i])).tolist(),
                    "task": i,  # no two items are equal
                    "phrasing": i,
                    "changed": changed or first,
                    "unsolvable": "" if question.solvable else "no_function_serves",
                    "plan": question.plan(),
                }
                yield Episode(name, i, begin, facts)

    def survey(self) -> dict[tuple[str, int], Expected]:
        """Return what each episode needs, by `(scenario, index)`."""
        found = {}
        for episode in self.episodes():
            question, facts = episode.begin(), episode.facts
            found[episode.scenario, episode.index] = expected(
                facts["changed"], question.tools, question.messages, facts["plan"]
            )
        return found

    def digest(self) -> str:
        """Return a digest of all items and of their documents."""
        found = hashlib.sha256(json.dumps([vars(x) for x in self.items]).encode())
        for leaf in jax.tree.leaves(self._arrays[0]):
            found.update(leaf.tobytes())
        return found.hexdigest()[:16]

    def rows(self, i: int) -> list[dict[str, Any]]:
        """Return the functions of a task: its own, then the hidden ones."""
        return [*self.items[i].functions, *self._spare[i]]

    @cached_property
    def texts(self) -> list[str]:
        """The text of each symbol."""
        return self._table.texts

    @cached_property
    def _table(self) -> ToolSymbols:
        return ToolSymbols()

    @cached_property
    def _spare(self) -> list[list[dict[str, Any]]]:
        """For each task, functions of other tasks whose names it does not have."""
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
        """Tasks, and the synonyms for perturbations; the leading axis is the item."""
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
            "arg_paths": np.zeros((num, num_args, 0, _VARIANTS), np.int32),
        }
        taken = {_spelled(f["name"]) for f in functions}
        for n, function in enumerate(functions):
            text, spelled = function["description"], _spelled(function["name"])
            does = wording.purpose(function["name"], text)
            name[n], description[n, 0] = one(spelled), one(text)
            synonyms = wording.tool_names(spelled, does)[self.split]
            pools["names"][n] = _fill(one, synonyms, taken)
            others = wording.descriptions(does)[self.split]
            pools["descriptions"][n] = _fill(one, others, {text})
            known = {*_properties(function)}
            for a, argument in enumerate(_properties(function)):
                arg_name[n, a] = one(argument)
                synonyms = wording.argument_names(argument)[self.split]
                pools["arg_names"][n, a] = _fill(one, synonyms, known)
        rows = np.arange(num, dtype=np.int32)
        own = len(item.functions)
        task = Task(
            Documents(
                name=name,
                description=description,
                arg_name=arg_name,
                arg_path=np.zeros((num, num_args, 0), np.int32),
                place=rows,
                visible=rows < own,
                relation=rows,
                code_from=np.full(num, -1, np.int32),
                call_after=np.full(num, -1, np.int32),
            ),
            Wanted(np.array([item.wanted], np.int32), np.int32(0)),
            Failing(
                np.zeros(num, np.int32),
                np.full(num, -1, np.int32),
                np.int32(-1),
                np.zeros(num, np.int32),
            ),
        )
        return task, pools

    def about(self) -> dict[str, Any]:
        """Return what the scenarios are: a suite, all that apply to BFCL, or fewer."""
        if self.scenario_set:
            return dict(self.scenario_set)
        every = {*self.scenarios} == {*SCENARIOS}
        return {"scenario_set": "all of BFCL" if every else "chosen"}

    @property
    def entries(self) -> dict[str, perturb.Entry]:
        """The perturbations of the scenarios, by name."""
        return perturb.entries(self._environment, self.scenarios)

    @cached_property
    def _environment(self) -> Environment:
        """The environment of tool worlds, of which only the perturbations are used.

        Each task has tables of its own, which contain its synonyms.
        """
        opaque, zero = self._table.opaque[self.split], np.zeros((1, 1), np.int32)

        def pools(tables, task, split):
            del split
            return Pools(
                **tables.source,
                opaque=jnp.array([opaque.low, opaque.high]),
                gates=zero,
                phrases=zero,
                num_phrases=zero[0, 0],
                choices=choices.empty(),
                notes=zero,
                joints=zero[0],
                listers=zero,
                changes=zero,
                vague=zero[0],
                forms=zero[0],
                wordings=jnp.array([0, 1]),
                key_range=zero[0],
                keys=KeyForms(zero[0], zero),
                special=zero[0],
                tabled=jnp.bool_(False),
                shifted=zero[None],
                constant_range=zero,
                own_range=zero,
                misspelt=Reworded(zero[0], zero),
                noisy_names=Reworded(zero[0], zero),
                worse_descriptions=Reworded(zero[0], zero),
                asides=Asides(*(zero for _ in Asides._fields)),
                other_rate=jnp.zeros(1),  # one request of each list of functions
                other_needs=jnp.zeros((1, len(task.tools.name)), bool),
                other_sure=jnp.zeros((1, len(task.tools.name)), bool),
                shifted_columns=None,
                transfer=lambda key: task,
            )

        return functions(Sizes(1, 1, 1, 1, 1), 0)._replace(name="bfcl", pools=pools)

    def _edited(self, name: str) -> Task:
        """Return all tasks, perturbed as in a scenario."""
        tasks, pools = self._arrays
        if name == draw.CLEAN:
            return tasks
        edit = draw.make_edit(self._environment, [name], self.split)

        def one(key, task, pools):
            strength, scenario = jnp.float32(self.strength), jnp.int32(1)
            return edit(Tables(None, pools), key, task, strength, scenario).task

        # These are the same keys as in other suites.
        keys = draw.task_keys(jax.random.key(self.seed), 0, len(self.items))
        keys = draw.edit_keys(keys)
        return jax.device_get(jax.jit(jax.vmap(one))(keys, tasks, pools))


class Question:
    """One task as an episode (see `play.Turns`), which ends with the first reply."""

    def __init__(self, suite: Suite, index: int, task: Task):
        self._suite, self._item, self._task = suite, suite.items[index], task
        self._rows = suite.rows(index)
        shown = np.argsort(task.tools.place, kind="stable")
        self.tools = [self._document(int(n)) for n in shown if task.tools.visible[n]]
        self.messages = copy.deepcopy(self._item.messages)
        self.finished = self.terminated = False
        self.outcome = self._outcome()
        self.actions: list[dict[str, Any]] = []
        self.results: list[str | None] = []
        self.rewards: dict[str, list[float]] = {}

    @property
    def solvable(self) -> bool:
        wanted = self._item.wanted
        return wanted >= 0 and bool(self._task.tools.visible[wanted])

    def receive(self, reply: messages.Message, cut: bool = False) -> None:
        """Grade a reply. A reply that was cut off is graded like any other.

        Args:
          reply: a message in OpenAI's format.
          cut: ignored.
        """
        del cut
        calls = messages.calls(reply)
        if any(not call.arguments for call in calls):
            calls = []  # as in BFCL, an unreadable call does not count as a call
        self.finished = self.terminated = True
        success = not calls
        if self.solvable:
            success = len(calls) == 1 and self._accepts(calls[0])
        self.outcome = self._outcome(success, not calls, len(calls))
        self.messages.append(messages.as_history(reply))
        self.actions = [
            {"name": call.name, "arguments": _given(call)} for call in calls
        ] or [{"text": messages.content(reply)}]

    def close(self) -> None:
        """End the episode because the agent's context has no room for the request."""
        self.finished = True

    def plan(self) -> list[dict[str, Any]]:
        """Return an accepted call, with the first accepted value of each argument.

        The list is empty if no call is right.
        """
        if not self.solvable:
            return []
        n, texts, tools = self._item.wanted, self._suite.texts, self._task.tools
        names = zip(_properties(self._rows[n]), tools.arg_name[n], strict=False)
        values = self._item.accepted
        arguments = {
            texts[symbol]: call_check.example(values[name][0])
            for name, symbol in names
            if name in values and values[name][0] != call_check.OMITTED
        }
        return [{"name": texts[tools.name[n]], "arguments": arguments}]

    def _outcome(
        self, success: bool = False, refused: bool = False, num_calls: int = 0
    ) -> Outcome:
        return Outcome(
            success=np.bool_(success),
            solvable=np.bool_(self.solvable),
            refused=np.bool_(refused),
            num_calls=np.int32(num_calls),
            num_errors=np.int32(num_calls * (not success)),
            num_questions=np.int32(0),
            num_needless_questions=np.int32(0),
            fewest_calls=np.int32(self.solvable),
        )

    def _accepts(self, call: messages.Call) -> bool:
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
        given = _given(call)
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


def _given(call: messages.Call) -> dict[str, Any]:
    return json.loads(call.arguments, **messages.STRICT)


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
    """Return a name that endpoints accept, without dots."""
    return name.replace(".", "_")


def _typed(schema: Any) -> Any:
    """Return the schema with OpenAI's names of types."""
    if isinstance(schema, list):
        return [_typed(x) for x in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _typed(value) for key, value in schema.items()}
    if isinstance(kind := found.get("type"), str):
        found["type"] = _OPENAI.get(kind, kind)
    return found


def _fill(one: Any, texts: Sequence[str], taken: set[str]) -> list[int]:
    """Return symbols of the first `_VARIANTS` texts that are not taken.

    If there are fewer, they are repeated. The texts are added to `taken`.
    """
    fresh = [text for text in dict.fromkeys(texts) if text and text not in taken]
    fresh = fresh[:_VARIANTS]
    taken.update(fresh)
    found = [one(text) for text in fresh] or [0]
    return [found[i % len(found)] for i in range(_VARIANTS)]
