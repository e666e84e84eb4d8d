"""Small random worlds with records, and an independent model of them in plain Python.

A world has one table of two columns, a few tools, keys and numbers, so that all
sequences of calls can be searched.
"""

import itertools
import random
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.cells import Access
from openagent_jax.text import scalars

N, A, F, C, Q, V = 13, 3, 2, 4, 4, 2
KEYS, VALUES, AMOUNTS = (500, 502), (0, 3), (1, 3)  # ranges; the last two are numbers
FOREVER = 99
SET, ADD = 0, 1  # columns: one that is set, one to which is added
BOUNDS, INITIAL = ((0, 3), (0, 6)), ((0, 3), (2, 4))


@dataclass
class Tool:
    args: tuple[str, ...] = ()  # key, value or amount
    returns: tuple[str, ...] = ("number",)  # key, number, or a column: "0" or "1"
    table: bool = True
    creates: bool = False
    deletes: bool = False
    sets: dict[int, int] = field(default_factory=dict)  # column -> argument
    sign: int = 0  # of what is added to column `ADD`
    effect: bool = False
    after: int = -1  # a tool that must have succeeded before
    by_code: bool = False  # whether it is its code that is needed

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
    return found


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
            if self.names and self._draw_goal():
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

    def _constant(self, kind: str) -> tuple[str, int]:
        low, high = {"key": KEYS, "value": VALUES, "amount": AMOUNTS}[kind]
        taken = [value for other, value in self.constants if other == kind == "key"]
        free = [value for value in range(low, high) if value not in taken]
        self.constants.append((kind, self.rng.choice(free)))
        return "constant", len(self.constants) - 1

    def _draw_goal(self) -> bool:
        """Draw steps as the files of domains allow them; return whether there are."""
        rng, num = self.rng, self.rng.randint(1, 4)
        state: dict[tuple, dict] = {}  # by source of the key
        if "find" in self.tools and rng.random() < 0.5:
            self.steps.append(("find", [self._constant("value")]))
        found = ("step", 0, 0) if self.steps else None
        created = False
        for _ in range(20):
            if len(self.steps) >= num or len(self.constants) > Q - 2:
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
                self.steps.append((name, [self._constant("value")]))
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
            args = [key if x == "key" else self._constant(x) for x in tool.args]
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

    def number(self, source) -> int:
        """The number of a source, as in `types.Goal.source`."""
        if source is None:
            return -1
        return source[1] if source[0] == "constant" else Q + source[1] * F + source[2]

    def task(self, seed: int) -> types.Task:
        """The world as arrays, in NumPy."""
        ranges = {"key": KEYS, "number": VALUES, "0": VALUES, "1": BOUNDS[ADD]}
        ranges |= {"value": VALUES, "amount": AMOUNTS}

        def coded(kind):
            low, high = ranges[kind]
            return (low, high) if kind == "key" else (_code(low), _code(high))

        def table(*shape, value=0):
            return np.full((N, *shape), value, np.int32)

        arrays = {name: table(A) for name in ("arg_low", "arg_high")}
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
        constants = np.zeros(Q, np.int32)
        for q, (kind, value) in enumerate(self.constants):
            constants[q] = value if kind == "key" else _code(value)
        return types.Task(
            world=np.uint32(seed),
            tools=types.Tools(
                relation=relation,
                **arrays,
                arg_default=table(A, value=-1),
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
            ),
            faults=types.Faults(
                failures, table(value=-1), np.zeros(N, bool), table(), table()
            ),
            phrase=np.zeros(1, np.int32),
            constants=constants,
            shown=np.ones(Q, bool),
        )


def _code(value: int) -> int:
    return scalars.code(value)


OK, BAD, NO_RECORD, DEAD, EARLY, UNKNOWN = (
    "ok",
    "bad",
    "no record",
    "dead",
    "early",
    "?",
)


class Model:
    """What calls do in a world, in plain Python.

    A state is a tuple: records (None, or values of the columns) by key, done reads and
    used calls (steps), attempts by row, succeeded tools, and wrong effects for good.
    """

    def __init__(self, world: World, initial: dict, results: dict):
        """`initial[key]` are the columns, `results[tool, args]` the plain results."""
        self.world, self.initial, self.results = world, initial, results
        self.keys = sorted(initial)
        self.first = {key: initial[key] if world.present else None for key in self.keys}
        self.args: list[tuple] = []
        self.values: list[tuple] = []
        records = dict(self.first)
        for name, sources in world.steps:
            args = tuple(self._value(source) for source in sources)
            status, values, records = self._apply(name, args, records)
            assert status == OK, (name, args)
            self.args.append(args)
            self.values.append(values)
        self.final = records
        used = [s for _, sources in world.steps for s in sources] + [world.answer]
        used = {source[1] for source in used if source and source[0] == "step"}
        self.latched = {
            c
            for c, (name, _) in enumerate(world.steps)
            if c in used or not world.tools[name].writes
        }
        self.start = (self._tuple(self.first), frozenset(), (0,) * len(world.rows),
                      frozenset(), 0)  # fmt: skip

    def _value(self, source):
        kind, *place = source
        if kind == "constant":
            return self.world.constants[place[0]][1]
        return self.values[place[0]][place[1]]

    def _tuple(self, records):
        return tuple(records[key] for key in self.keys)

    def _apply(self, name, args, records):
        """Return status, results and the records after a call that comes through."""
        tool, plain = self.world.tools[name], self.results[name, args]
        if not tool.table:
            return OK, plain, records
        key = args[tool.args.index("key")] if "key" in tool.args else plain[0]
        old = records[key]
        if (old is None) != tool.creates:
            return (NO_RECORD if old is None else BAD), None, records
        new = list(self.initial[key] if old is None else old)
        for column, a in tool.sets.items():
            new[column] = args[a]
        if tool.sign:
            new[ADD] += tool.sign * args[1]
            if not BOUNDS[ADD][0] <= new[ADD] < BOUNDS[ADD][1]:
                return BAD, None, records
        shown = old if tool.deletes else new
        values = tuple(
            shown[int(kind)] if kind in "01" else value
            for kind, value in zip(tool.returns, plain, strict=True)
        )
        return OK, values, {**records, key: None if tool.deletes else tuple(new)}

    def call(self, state, row, args):
        """Return status, results and the state after a call."""
        records, done, attempts, called, lost = state
        world, number = self.world, self.world.rows[row]
        name = world.names[number]
        tool = world.tools[name]
        if not world.visible[row]:
            return UNKNOWN, None, state
        if tool.after >= 0 and tool.after not in called:
            return EARLY, None, state
        fails = attempts[row] < world.failures[row]
        tried = min(attempts[row] + 1, max(world.failures[row], 1))
        attempts = (*attempts[:row], tried, *attempts[row + 1 :])
        if world.failures[row] == FOREVER:
            attempts = state[2]
        if fails:
            return DEAD, None, (records, done, attempts, called, lost)
        before = dict(zip(self.keys, records, strict=True))
        status, values, after = self._apply(name, args, before)
        if status != OK:
            return status, None, state
        matches = {
            c
            for c, (step, _) in enumerate(world.steps)
            if (step, self.args[c], self.values[c]) == (name, args, values)
        }
        wasted = int(tool.effect and not matches - done)
        after = (self._tuple(after), done | (matches & self.latched), attempts,
                 called | {number}, lost + wasted)  # fmt: skip
        return OK, values, after

    def succeeds(self, state):
        records, done, *_, lost = state
        return records == self._tuple(self.final) and self.latched <= done and not lost

    def wrong_effects(self, old, new) -> int:
        """1 if a call has changed something to what is neither as it was nor right."""
        if new[-1] > old[-1]:
            return 1
        for key, before, after in zip(self.keys, old[0], new[0], strict=True):
            good = [self.first[key], self.final[key]]
            if (before is None) != (after is None):
                if (after is None) not in [x is None for x in good]:
                    return 1
                before = self.initial[key]
            for v in range(V) if after is not None else ():
                rights = [self.initial[key][v]]
                rights += [self.final[key][v]] if self.final[key] else []
                if after[v] != before[v] and after[v] not in rights:
                    return 1
        return 0

    def shown(self, name, args, values, old, new) -> set:
        """The (key, column) whose initial values a successful call has shown."""
        tool, found = self.world.tools[name], set()
        if not tool.table:
            return found
        key = args[tool.args.index("key")] if "key" in tool.args else values[0]
        place = self.keys.index(key)
        for kind in tool.returns:
            if kind in "01":
                now = [x[0][place] or self.initial[key] for x in (old, new)]
                if {x[int(kind)] for x in now} == {self.initial[key][int(kind)]}:
                    found.add((key, int(kind)))
        return found

    def allows(self, shown: set):
        """The calls that an agent can make that knows the request and these values."""
        goal = {}
        for (name, _), args, values in zip(
            self.world.steps, self.args, self.values, strict=True
        ):
            tool = self.world.tools[name]
            key = args[tool.args.index("key")] if "key" in tool.args else values[0]
            goal |= {(key, v): args[a] for v, a in tool.sets.items()}
        steps = list(
            zip((name for name, _ in self.world.steps), self.args, strict=True)
        )

        def allowed(row, args):
            name = self.world.names[self.world.rows[row]]
            tool = self.world.tools[name]
            if tool.creates:
                return (name, args) in steps
            for v, a in tool.sets.items():
                key = args[tool.args.index("key")]
                right = goal.get((key, v)) == args[a]
                old = (key, v) in shown and args[a] == self.initial[key][v]
                if not right and not old:
                    return False
            return True

        return allowed

    def fewest(self, start=None, allowed=None) -> int | None:
        """The calls of the shortest way to success; None if there is none.

        Args:
          start: a state; None is the first.
          allowed: which calls may be made; None is all.
        """
        possible = [
            call for call in calls(self.world) if allowed is None or allowed(*call)
        ]
        frontier, seen, depth = [start or self.start], {start or self.start}, 0
        while frontier:
            if any(map(self.succeeds, frontier)):
                return depth
            after = []
            for state in frontier:
                for call in possible:
                    _, _, new = self.call(state, *call)
                    if new not in seen and not new[-1]:
                        seen.add(new)
                        after.append(new)
            frontier, depth = after, depth + 1
        return None


def calls(world: World):
    """All calls of a world: (row, arguments)."""
    ranges = {"key": KEYS, "value": VALUES, "amount": AMOUNTS}
    for row, number in enumerate(world.rows):
        kinds = world.tools[world.names[number]].args
        for args in itertools.product(*(range(*ranges[kind]) for kind in kinds)):
            yield row, args


def batch(worlds: list[World], seed: int = 0) -> types.Task:
    """The tasks of some worlds, as a batch."""
    tasks = [world.task(seed + i) for i, world in enumerate(worlds)]
    return jax.tree.map(lambda *x: jnp.asarray(np.stack(x)), *tasks)
