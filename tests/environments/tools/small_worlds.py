"""Small random worlds with records; `small_model` says what calls do in them.

A world has one table of two columns, a few tools, keys and numbers, so that all
sequences of calls can be searched.
"""

import itertools
import operator
import random
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.cells import Access
from openagent_jax.text import scalars

N, A, F, C, Q, V = 13, 3, 2, 4, 7, 2
# Ranges; all but the first are numbers. Notes are arguments that no record keeps.
KEYS, VALUES, AMOUNTS, NOTES = (500, 502), (0, 3), (1, 3), (0, 2)
NO_NOTE = 0  # what a note is if it is left out, where it may be
RANGES = {"key": KEYS, "value": VALUES, "amount": AMOUNTS, "note": NOTES}
FOREVER = 99
SET, ADD = 0, 1  # columns: one that is set, one to which is added
BOUNDS, INITIAL = ((0, 3), (0, 6)), ((0, 3), (2, 4))


@dataclass
class Tool:
    args: tuple[str, ...] = ()  # key, value, amount or note
    returns: tuple[str, ...] = ("number",)  # key, number, or a column: "0" or "1"
    table: bool = True
    creates: bool = False
    deletes: bool = False
    sets: dict[int, int] = field(default_factory=dict)  # column -> argument
    sign: int = 0  # of what is added to column `ADD`
    effect: bool = False
    after: int = -1  # a tool that must have succeeded before
    by_code: bool = False  # whether it is its code that is needed
    optional: bool = False  # whether the note may be left out

    @property
    def writes(self):
        return bool(self.creates or self.deletes or self.sets or self.sign)


def tools_of(present: bool, rng: random.Random) -> dict[str, Tool]:
    """The tools that a world may have, by name."""
    found = {
        "find": Tool(("value",), ("key",), table=False),
        "gate": Tool((), table=False),
        "send": Tool(("key",), table=False, effect=True),
        "get_set": Tool(("key",), ("0",)),
        "get_both": Tool(("key",), ("0", "1")),
        "get_added": Tool(("key", "value"), ("1", "number")),
        "set": Tool(("key", "value"), sets={SET: 1}),
        "add": Tool(("key", "amount"), rng.choice([("number",), ("1",)]), sign=1),
        "subtract": Tool(("key", "amount"), sign=-1),
        "delete": Tool(("key",), rng.choice([("number",), ("0",)]), deletes=True),
    }
    if not present:
        made = Tool(("value",), ("key", "1"), creates=True, sets={SET: 0})
        keyed = Tool(("key", "value"), ("number",), creates=True, sets={SET: 1})
        found["create"] = rng.choice([made, keyed])
    for tool in found.values():
        if tool.writes and rng.random() < 0.4:
            tool.args, tool.optional = (*tool.args, "note"), rng.random() < 0.5
    return found


HOLDS = operator.le, operator.ge, operator.eq  # as in `conditions`


class World:
    """A random world: its tools, goal and faults."""

    def __init__(self, seed: int):
        self.rng = rng = random.Random(seed)
        self.present = rng.random() < 0.6
        every = tools_of(self.present, rng)
        while True:
            some = [name for name in every if rng.random() < 0.7]
            self.names = [*some, "gate"] if "gate" not in some else some
            self.tools = {name: every[name] for name in self.names}
            self.constants: list[tuple[str, int]] = []
            self.steps: list[tuple[str, list]] = []  # (tool, sources)
            # By step: a source, an index of `HOLDS`, and a constant.
            self.when: dict[int, tuple] = {}
            if self.names and self._draw_goal():
                self._draw_conditions()
                break
        for name, tool in self.tools.items():
            if name not in ("gate", "find") and rng.random() < 0.25:
                found = self.steps[0][0] == "find" and name != "find"
                need = "find" if found and rng.random() < 0.5 else "gate"
                tool.after, tool.by_code = self.names.index(need), rng.random() < 0.5
        self.rows = list(range(len(self.names)))  # the tool of each row
        if rng.random() < 0.3 and len(self.names) < N:
            self.rows.append(rng.randrange(len(self.names)))
        self.failures = [rng.choice([0] * 8 + [1, FOREVER]) for _ in self.rows]
        self.visible = [rng.random() < 0.95 for _ in self.rows]
        self._draw_changes(rng)

    def _draw_changes(self, rng):
        """Draw what makes results, codes and calls unreliable."""
        rare = [rng.random() < 0.15 for _ in range(4)]
        self.blanks = [rng.choice([0, 1, 2]) if rare[0] else 0 for _ in self.rows]
        # Tools whose first code expires, and rows whose documents do not say enough.
        self.expires = {
            n for n, _ in enumerate(self.names) if rare[1] and self._only_reads(n)
        }
        # A call for the values that were missing would also get the new code.
        self.expires -= {
            n for n, num in zip(self.rows, self.blanks, strict=True) if num
        }
        self.untold = [rare[2] and rng.random() < 0.5 for _ in self.rows]
        sources = [x for _, given in self.steps[1:] for x in given]
        used = ("step", 0, 0) in sources and self.steps[0][0] == "find"
        self.stale = used and rng.random() < 0.2
        if self.stale:  # one call would read its result again and get the new code
            self.expires -= {self.names.index("find")}
        self.quota, self.pause = rng.randint(1, 3), rng.choice([1, 2]) * rare[3]

    def _only_reads(self, n) -> bool:
        return self.names[n] in ("gate", "find")

    def _constant(self, kind: str) -> tuple[str, int]:
        low, high = RANGES[kind]
        taken = [value for other, value in self.constants if other == kind == "key"]
        free = [value for value in range(low, high) if value not in taken]
        self.constants.append((kind, self.rng.choice(free)))
        return "constant", len(self.constants) - 1

    def _given(self, tool: Tool, kind: str) -> tuple[str, int] | None:
        """The source of an argument; None if it is left out."""
        left_out = kind == "note" and tool.optional and self.rng.random() < 0.4
        return None if left_out else self._constant(kind)

    def _draw_goal(self) -> bool:
        """Draw steps as the files of domains allow them; return whether there are."""
        rng, num = self.rng, self.rng.randint(1, 4)
        state: dict[tuple, dict] = {}  # by source of the key
        if "find" in self.tools and rng.random() < 0.5:
            self.steps.append(("find", [self._constant("value")]))
        found = ("step", 0, 0) if self.steps else None
        created = False
        for _ in range(20):
            if len(self.steps) >= num or len(self.constants) > Q - 4:
                break
            name = rng.choice(self.names)
            tool = self.tools[name]
            if name in ("gate", "find"):
                continue
            if tool.creates and "key" in tool.returns:
                if created or state:
                    continue
                created = True
                key = ("step", len(self.steps), 0)
                self.steps.append((name, [self._given(tool, x) for x in tool.args]))
                state[key] = {"alive": True, "own": {SET}, "last": {}}
                continue
            if created:
                key = next(iter(state))
            elif found:
                key = found
            else:
                key = rng.choice([*state, None])
                if key is None:
                    if len([x for x in self.constants if x[0] == "key"]) == 2:
                        continue
                    key = ("constant", len(self.constants))
            it = state.get(key, {"alive": self.present, "own": set(), "last": {}})
            if tool.table and it["alive"] == tool.creates:
                continue
            own = set(tool.sets) | ({ADD} if tool.sign else set())
            if (
                own & it["own"]
                or tool.deletes
                and it["own"]
                or tool.creates
                and it["own"]
            ):
                continue
            # Equal reads only with a change between them that makes a difference.
            last = it["last"].get(name)
            if last is not None and not (
                not tool.writes and "1" in tool.returns and last < it.get("added", -1)
            ):
                continue
            if key == ("constant", len(self.constants)):
                self._constant("key")
            args = [key if x == "key" else self._given(tool, x) for x in tool.args]
            if last is not None:  # the same call again
                args = dict(self.steps)[name]
            if len(self.constants) > Q:
                return False
            it["own"] |= own
            it["last"][name] = len(self.steps)
            if tool.sign:
                it["added"] = len(self.steps)
            if tool.creates or tool.deletes:
                it["alive"], it["own"] = tool.creates, it["own"] | own
            state[key] = it
            self.steps.append((name, args))
        if not self.steps or self.steps == [("find", self.steps[0][1])]:
            return False
        answers = [
            ("step", c, f)
            for c, (name, _) in enumerate(self.steps)
            for f in range(len(self.tools[name].returns))
        ]
        self.answer = rng.choice([None, rng.choice(answers)])
        return True

    def _draw_conditions(self):
        """Give steps with an effect a condition, as the files of domains allow it."""
        rng = self.rng
        sources = [x for _, given in self.steps for x in given] + [self.answer]
        used = {x[1] for x in sources if x and x[0] == "step"}
        for c, (name, _) in enumerate(self.steps):
            tool = self.tools[name]
            # Nothing uses its results, nor the record that it may not create.
            if c in used or tool.creates or not (tool.effect or tool.writes):
                continue
            numbers = [
                ("step", before, f)
                for before, (other, _) in enumerate(self.steps[:c])
                for f, kind in enumerate(self.tools[other].returns)
                if kind != "key" and before not in self.when
            ]
            if numbers and len(self.constants) < Q and rng.random() < 0.4:
                limit = self._constant("value")
                self.when[c] = rng.choice(numbers), rng.randrange(3), limit

    def _faults(self, failures) -> types.Faults:
        rows, (new_code, blanks) = len(self.rows), np.zeros((2, N), np.int32)
        for row, n in enumerate(self.rows):
            new_code[row] = (200 + row) * (n in self.expires)
        blanks[:rows] = self.blanks
        untold, stale = np.zeros(N, bool), np.zeros(C, bool)
        untold[:rows], stale[0] = self.untold, self.stale
        return replace(
            types.no_faults(N, C),
            failures=failures,
            blanks=blanks,
            new_code=new_code,
            untold=untold,
            stale=stale,
            quota=np.int32(self.quota),
            pause=np.int32(self.pause),
        )

    def number(self, source) -> int:
        """The number of a source, as in `types.Goal.source`."""
        if source is None:
            return -1
        return source[1] if source[0] == "constant" else Q + source[1] * F + source[2]

    def task(self, seed: int) -> types.Task:
        """The world as arrays, in NumPy."""
        ranges = {"key": KEYS, "number": VALUES, "0": VALUES, "1": BOUNDS[ADD]}
        ranges |= RANGES

        def coded(kind):
            low, high = ranges[kind]
            return (low, high) if kind == "key" else (_code(low), _code(high))

        def table(*shape, value=0):
            return np.full((N, *shape), value, np.int32)

        arrays = {name: table(A) for name in ("arg_low", "arg_high")}
        arrays["arg_default"] = table(A, value=-1)
        arrays |= {name: table(F) for name in ("result_low", "result_high")}
        code_from, call_after = table(value=-1), table(value=-1)
        relation, effect = np.arange(N, dtype=np.int32) + N, np.zeros(N, bool)
        access = {name: np.zeros(N, bool) for name in ("present", "creates", "deletes")}
        access |= {name: table(V) for name in ("source", "sign", "low", "high")}
        access |= {"table": table(), "key": table(), "reads": table(F)}
        access |= {"initial_low": table(V), "initial_high": table(V)}
        for row, number in enumerate(self.rows):
            tool = self.tools[self.names[number]]
            relation[row], effect[row] = number, tool.writes or tool.effect
            for a, kind in enumerate(tool.args):
                arrays["arg_low"][row, a], arrays["arg_high"][row, a] = coded(kind)
                if kind == "note" and tool.optional:
                    arrays["arg_default"][row, a] = _code(NO_NOTE)
            for f, kind in enumerate(tool.returns):
                ends = coded(kind)
                arrays["result_low"][row, f], arrays["result_high"][row, f] = ends
                access["reads"][row, f] = 1 + int(kind) if kind in "01" else 0
            pointer = code_from if tool.by_code else call_after
            pointer[row] = tool.after
            if not tool.table:
                access["reads"][row] = 0
                continue
            access["table"][row], access["present"][row] = 1, self.present
            access["creates"][row] = tool.creates
            access["deletes"][row] = tool.deletes
            in_args = "key" in tool.args
            access["key"][row] = tool.args.index("key") if in_args else A
            for column, a in tool.sets.items():
                access["source"][row, column] = 1 + a
            if tool.sign:
                access["source"][row, ADD], access["sign"][row, ADD] = 2, tool.sign
            for v in range(V):
                for name, ends in (("", BOUNDS), ("initial_", INITIAL)):
                    access[f"{name}low"][row, v] = _code(ends[v][0])
                    access[f"{name}high"][row, v] = _code(ends[v][1])
        visible = np.zeros(N, bool)
        visible[: len(self.rows)] = self.visible
        failures = table(value=0)
        failures[: len(self.rows)] = [
            types.FOREVER if x == FOREVER else x for x in self.failures
        ]
        goal_tool, source = np.full(C, -1, np.int32), np.full((C, A), -1, np.int32)
        for c, (name, sources) in enumerate(self.steps):
            goal_tool[c] = self.names.index(name)
            source[c, : len(sources)] = [self.number(x) for x in sources]
        when = np.full((C, 3), -1, np.int32)
        for c, (value, comparison, limit) in self.when.items():
            when[c] = self.number(value), comparison, self.number(limit)
        constants = np.zeros(Q, np.int32)
        for q, (kind, value) in enumerate(self.constants):
            constants[q] = value if kind == "key" else _code(value)
        return types.Task(
            world=np.uint32(seed),
            tools=types.Tools(
                relation=relation,
                **arrays,
                code=np.arange(N, dtype=np.int32) + 100,
                code_from=code_from,
                call_after=call_after,
                effect=effect,
                name=table(),
                description=table(1),
                arg_name=table(A),
                arg_path=np.zeros((N, A, 0), np.int32),
                arg_also=np.zeros((N, A, 0, 2), np.int32),
                result_path=np.zeros((N, F, 0), np.int32),
                result_name=table(F),
                place=np.arange(N, dtype=np.int32),
                visible=visible,
                document=table(value=-1),
                access=Access(**access),
            ),
            goal=types.Goal(
                goal_tool,
                source,
                np.int32(self.number(self.answer)),
                np.int32(0),
                when,
            ),
            faults=self._faults(failures),
            phrase=np.zeros(1, np.int32),
            constants=constants,
            said=constants,
            shown=np.ones(Q, bool),
        )


def _code(value: int) -> int:
    return scalars.code(value)


def calls(world: World):
    """All calls of a world: (row, arguments)."""
    for row, number in enumerate(world.rows):
        kinds = world.tools[world.names[number]].args
        for args in itertools.product(*(range(*RANGES[kind]) for kind in kinds)):
            yield row, args


def batch(worlds: list[World], seed: int = 0) -> types.Task:
    """The tasks of some worlds, as a batch."""
    tasks = [world.task(seed + i) for i, world in enumerate(worlds)]
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *tasks)
