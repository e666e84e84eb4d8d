"""What calls do in the worlds of `small_worlds`, in plain Python, and a search."""

import functools
from typing import NamedTuple

from tests.environments.tools.small_worlds import (
    ADD,
    BOUNDS,
    FOREVER,
    HOLDS,
    KEYS,
    NO_NOTE,
    V,
    World,
    calls,
)

OK, BAD, NO_RECORD, DEAD, EARLY, UNKNOWN = (
    "ok",
    "bad",
    "no record",
    "dead",
    "early",
    "?",
)
EXPIRED, STALE, LIMITED = "expired", "stale", "limited"


class Seen(NamedTuple):
    """What calls have changed besides records."""

    read: bool = False  # the result that changes has been read once
    codes: frozenset = frozenset()  # tools whose valid code is known
    renewed: frozenset = frozenset()  # tools whose first code has expired
    phase: int = 0  # calls since the quota was full


class Model:
    """What calls do in a world, in plain Python.

    A state is a tuple: records (None, or values of the columns) by key, steps that have
    had the call that they need, attempts by row, tools that have succeeded and that
    others need, what else has changed, and wrong effects for good.
    """

    def __init__(self, world: World, initial: dict, results: dict):
        """`initial[key]` are the columns, `results[tool, args]` the plain results."""
        self.world, self.initial, self.results = world, initial, results
        self.keys = sorted(initial)
        self.first = {key: initial[key] if world.present else None for key in self.keys}
        self.args: list[tuple] = []
        self.first_args: list[tuple] = []  # before the result of step 0 changes
        self.values: list[tuple] = []
        records, self.needed = dict(self.first), set()
        for c, (name, sources) in enumerate(world.steps):
            args = tuple(self._value(source) for source in sources)
            changing = [world.stale and x == ("step", 0, 0) for x in sources]
            pairs = zip(args, changing, strict=True)
            self.first_args.append(
                tuple(sum(KEYS) - 1 - x if y else x for x, y in pairs)
            )
            status, values, after = self._apply(name, args, records)
            if self._holds(c):
                assert status == OK, (name, args)
                self.needed.add(c)
                records = after
            self.args.append(args)
            self.values.append(values)
        self.final = records
        used = [s for _, sources in world.steps for s in sources] + [world.answer]
        used += [source for source, *_ in world.when.values()]
        used = {source[1] for source in used if source and source[0] == "step"}
        reads = {c for c, (x, _) in enumerate(world.steps) if not world.tools[x].writes}
        self.to_show = used | reads
        self.traces = {
            c
            for c, (name, _) in enumerate(world.steps)
            if self.leaves_trace(name, self.args[c])
        }
        self.latched = (self.to_show | self.traces) & self.needed
        self.asked_for = {tool.after for tool in world.tools.values()}
        self._applied: dict[tuple, tuple] = {}
        self._steps_of: dict[tuple, list[int]] = {}
        for c in self.needed:
            call = world.steps[c][0], self.args[c]
            self._steps_of.setdefault(call, []).append(c)
        self.start = (self._tuple(self.first), frozenset(), (0,) * len(world.rows),
                      frozenset(), Seen(), 0)  # fmt: skip

    def _value(self, source):
        if source is None:
            return NO_NOTE
        kind, *place = source
        if kind == "constant":
            return self.world.constants[place[0]][1]
        return self.values[place[0]][place[1]]

    def _holds(self, c) -> bool:
        """Whether the condition of a step holds, if it has one."""
        if c not in self.world.when:
            return True
        value, comparison, limit = self.world.when[c]
        return HOLDS[comparison](self._value(value), self._value(limit))

    def leaves_trace(self, name, args) -> bool:
        """Whether a call changes a record, and is given what no record keeps."""
        tool = self.world.tools[name]
        if not tool.writes or "note" not in tool.args:
            return False
        return not tool.optional or args[tool.args.index("note")] != NO_NOTE

    def _in_place(self, c, records) -> bool:
        """Whether what a step writes is there."""
        tool, key = self.world.tools[self.world.steps[c][0]], self._key(c)
        now, wanted = records[key], self.final[key]
        own = [*tool.sets, *([ADD] if tool.sign else [])]
        if now is None or wanted is None:
            return now == wanted
        return all(now[v] == wanted[v] for v in own)

    def _key(self, c) -> int:
        name, _ = self.world.steps[c]
        kinds = self.world.tools[name].args
        return self.args[c][kinds.index("key")] if "key" in kinds else self.values[c][0]

    def _is_asked(self, c, state) -> bool:
        """Whether the goal still asks for a call of a step that has an effect."""
        tool = self.world.tools[self.world.steps[c][0]]
        records, done = dict(zip(self.keys, state[0], strict=True)), state[1]
        if c in self.latched - done:
            return True
        return bool(tool.writes and not self._in_place(c, records) and not tool.sign)

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
        seen = state[4]
        if self.world.pause:
            cycle = self.world.quota + self.world.pause
            seen = seen._replace(phase=(seen.phase + 1) % cycle)
            limited = state[4].phase >= self.world.quota
            state = (*state[:4], seen, state[5])
            if limited:
                return LIMITED, None, state
        records, done, attempts, called, seen, lost = state
        world, number = self.world, self.world.rows[row]
        name = world.names[number]
        tool = world.tools[name]
        if not world.visible[row]:
            return UNKNOWN, None, state
        if tool.after >= 0 and not tool.by_code and tool.after not in called:
            return EARLY, None, state
        if tool.by_code and tool.after not in seen.codes:
            return EARLY, None, state
        if tool.by_code and tool.after in world.expires - seen.renewed:
            seen = seen._replace(
                codes=seen.codes - {tool.after}, renewed=seen.renewed | {tool.after}
            )
            return EXPIRED, None, (*state[:4], seen, lost)
        fails = attempts[row] < world.failures[row]
        most = world.failures[row] + world.blanks[row]
        blank = world.failures[row] <= attempts[row] < most
        tried = min(attempts[row] + 1, max(most, 1))
        attempts = (*attempts[:row], tried, *attempts[row + 1 :])
        if world.failures[row] == FOREVER:
            attempts = state[2]
        if fails:
            return DEAD, None, (records, done, attempts, called, seen, lost)
        if seen.read and self._is_old(name, args):
            return STALE, None, state
        made = name, args, records
        if made not in self._applied:
            before = dict(zip(self.keys, records, strict=True))
            status, values, after = self._apply(name, args, before)
            self._applied[made] = status, values, self._tuple(after)
        status, values, after = self._applied[made]
        if status != OK:
            return status, None, state
        matches = self._matches(name, args, values)
        if blank and not tool.writes and not tool.effect:
            matches, values = set(), (None,) * len(values)
        if world.stale and 0 in self._matches(name, args, self.values[0]):
            if not seen.read and self._is_pending(state):
                matches.discard(0)
                if values[0] is not None:
                    values = (sum(KEYS) - 1 - values[0],)
                seen = seen._replace(read=values[0] is not None)
        lost += self._is_unasked(state, name, args, matches) and (
            not tool.creates or self._was_created(values, args, name, done)
        )
        seen = seen._replace(codes=seen.codes | ({number} & self.asked_for))
        after = (after, done | (matches & self.latched), attempts,
                 called | ({number} & self.asked_for), seen, lost)  # fmt: skip
        return OK, values, after

    def _is_guess(self, state, row, args) -> bool:
        """Whether a call uses what a result will be when it has changed."""
        if not self.world.stale or state[4].read or 0 in state[1]:
            return False
        name = self.world.names[self.world.rows[row]]
        return any(
            self.world.steps[c][0] == name and self.args[c] == args
            for c in self.needed
            if self.args[c] != self.first_args[c]
        )

    def _is_pending(self, state) -> bool:
        """Whether a step has still to use the result that changes."""
        records, done = dict(zip(self.keys, state[0], strict=True)), state[1]
        return any(
            ("step", 0, 0) in self.world.steps[c][1]
            and (
                c in self.latched - done
                or self.world.tools[self.world.steps[c][0]].writes
                and not self._in_place(c, records)
            )
            for c in self.needed
        )

    def _is_old(self, name, args) -> bool:
        """Whether a call uses what has been read before it changed."""
        for c in self.needed:
            pairs = zip(self.args[c], self.first_args[c], args, strict=False)
            if self.world.steps[c][0] == name and args != self.args[c]:
                if all(x in (new, old) for new, old, x in pairs):
                    return True
        return False

    def _matches(self, name, args, values) -> set:
        """The steps of which a successful call is the call."""
        return {
            c
            for c in self._steps_of.get((name, args), ())
            if c not in self.to_show or self.values[c] == values
        }

    def _is_unasked(self, state, name, args, matches) -> bool:
        """Whether a call does what cannot be undone, and what the goal does not ask."""
        lasts = self.world.tools[name].effect or self.leaves_trace(name, args)
        return lasts and not any(self._is_asked(c, state) for c in matches)

    def _was_created(self, values, args, name, done) -> bool:
        """Whether a call creates a record that a step with a note has created once."""
        kinds = self.world.tools[name].args
        key = args[kinds.index("key")] if "key" in kinds else values[0]
        return any(
            self.world.tools[self.world.steps[c][0]].creates and self._key(c) == key
            for c in done & self.traces
        )

    def succeeds(self, state):
        records, done, *_, lost = state
        return records == self._tuple(self.final) and self.latched <= done and not lost

    def wrong_effects(self, name, args, values, old, new) -> int:
        """1 if a call has changed something to what is neither as it was nor right, or
        has left a trace that the goal does not ask for."""
        matches = self._matches(name, args, values)
        if self._is_unasked(old, name, args, matches):
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
        """The calls that an agent can make if it knows the request and these values.

        What it has overwritten unseen it cannot put back on purpose: while a value has
        still to be read as it was, setting it to what the goal wants in the end would
        help by luck only.
        """
        goal, readers = {}, {}
        for c in sorted(self.needed):
            name = self.world.steps[c][0]
            for v, a in self.world.tools[name].sets.items():
                goal[self._key(c), v] = self.args[c][a]
            if c in self.to_show and self.world.tools[name].table:
                for kind in set(self.world.tools[name].returns) & {"0", "1"}:
                    place = self._key(c), int(kind)
                    if place not in goal and place not in shown:
                        readers.setdefault(place, set()).add(c)
        steps = [(self.world.steps[c][0], self.args[c]) for c in self.needed]

        @functools.cache
        def allowed(done, row, args):
            name = self.world.names[self.world.rows[row]]
            tool = self.world.tools[name]
            if tool.creates:
                return (name, args) in steps
            for v, a in tool.sets.items():
                key = args[tool.args.index("key")]
                right = goal.get((key, v)) == args[a]
                right &= readers.get((key, v), set()) <= done
                old = (key, v) in shown and args[a] == self.initial[key][v]
                if not right and not old:
                    return False
            return True

        return allowed

    def fewest(self, start=None, allowed=None) -> int | None:
        """The calls of the shortest way to success; None if there is none.

        Args:
          start: a state; None is the first.
          allowed: which calls may be made after some steps; None is all.
        """
        possible = list(calls(self.world))
        frontier, seen, depth = [start or self.start], {start or self.start}, 0
        while frontier:
            if any(map(self.succeeds, frontier)):
                return depth
            after = []
            for state in frontier:
                for call in possible:
                    if allowed is not None and not allowed(state[1], *call):
                        continue
                    if self._is_guess(state, *call):
                        continue
                    _, _, new = self.call(state, *call)
                    if new not in seen and not new[-1]:
                        seen.add(new)
                        after.append(new)
            frontier, depth = after, depth + 1
        return None
