"""Which types the arguments and the results of listed tools have, and who shares them.

What has the same name has the same type: so the result of one tool may feed another.
A bare name (`id`) is one of the thing that its tool is about.
"""

from typing import Any

from openagent_jax.sandbox import style, value_pools, wording
from openagent_jax.sandbox.domain_schema import HOLE
from openagent_jax.sandbox.tool_lists import Listed, Schema
from openagent_jax.sandbox.wording import Doing

NUM_FIELDS = 2  # of a result; so many have room by default
# Names that say nothing without the thing that they are of.
_BARE = set(
    "id name key number no ref reference code title value status state type result "
    "details text date info data".split()
)
# What comes behind that thing in the name of a tool.
_ASPECTS = set(
    "status state price details detail info information history count quantity stock "
    "total list balance rating address location time date summary data availability "
    "by for in of".split()
)
_NUMBERS = set(
    "count quantity number amount total stock price cost fee balance score distance "
    "duration minute hour second day temperature weight height size percent rate point "
    "rating salary budget sum length limit age level unit availability".split()
)
_MAKE = set("create open add register submit place start book reserve order".split())


class Types:
    """The types of a draft, as they are met."""

    def __init__(self, tools: list[tuple[Listed, Doing]]):
        self._schemas: dict[str, Schema] = {}
        self._users: dict[str, list[str]] = {}  # tools, by type
        self._of_arguments: set[str] = set()
        self._enums: list[dict[str, Any]] = []
        for tool, does in tools:
            for name, schema in [*tool.arguments.items(), *tool.returns.items()]:
                if values := value_pools.choices(schema):
                    truth = schema.get("type") == "boolean"
                    full_name = "boolean" if truth else _full_name(name, does)
                    self._share(full_name, values)

    def arguments(self, tool: Listed, does: Doing) -> dict[str, str]:
        """Their types, by name; the sandbox keeps the name `code` for itself."""
        found = {}
        for name, schema in tool.arguments.items():
            kind = self._add(_full_name(name, does), schema, tool.name)
            self._of_arguments.add(kind)
            shown = name
            while shown == style.CODE or shown in found:
                shown = f"{_thing(does) or 'the'}_{shown}"
            found[shown] = kind
        return found

    def returns(self, tool: Listed, does: Doing, effect: bool) -> dict[str, str]:
        """The same of a result, from its schema or else from the name of the tool."""
        if tool.returns:
            found = self._listed(tool, does)
        else:
            found = self._guess(tool, does, effect)
        thing = _thing(does)
        other = f"{thing if thing not in ('', style.CODE) else 'result'}_{style.CODE}"
        return {other if x == style.CODE else x: kind for x, kind in found.items()}

    def made(self) -> tuple[dict[str, Any], list[str]]:
        """All types with their values, and notes on what was made up."""
        found, notes, taken = {}, {}, set(map(str, range(1000)))
        by_need = sorted(
            self._schemas, key=lambda x: not value_pools.choices(self._schemas[x])
        )
        for name in by_need:
            users = ", ".join(dict.fromkeys(self._users[name]))
            schema, what = self._schemas[name], f"{name} (of {users})"
            if "hole" in schema:
                found[name] = {"kind": "entity", "values": [schema["hole"]]}
                continue
            found[name], note = value_pools.of_schema(name, schema, taken, what)
            if note:
                notes[name] = f"types.{name}: {note}"
        order = [name for name in self._schemas if name in found]
        return {name: found[name] for name in order}, [
            notes[name] for name in order if name in notes
        ]

    def _share(self, name: str, values: list[str]) -> None:
        """Enums with a value in common are one type."""
        for other in [x for x in self._enums if set(x["values"]) & set(values)]:
            self._enums.remove(other)
            name, values = other["name"], [*other["values"], *values]
        self._enums.append({"name": name, "values": list(dict.fromkeys(values))})

    def _listed(self, tool: Listed, does: Doing) -> dict[str, str]:
        """Fields that other tools take come first, as far as there is room."""
        names = {name: _full_name(name, does) for name in tool.returns}
        own = {_full_name(name, does) for name in tool.arguments}
        useful = [x for x in names if names[x] in self._of_arguments - own]
        fresh = [x for x in names if x not in useful and names[x] not in own]
        chosen = dict.fromkeys([*useful, *fresh, *names][:NUM_FIELDS])
        return {x: self._add(names[x], tool.returns[x], tool.name) for x in chosen}

    def _add(self, name: str, schema: Schema, user: str) -> str:
        """The type of that name, or one beside it if that is of another kind."""
        if values := set(value_pools.choices(schema)):
            enum = next(x for x in self._enums if values <= set(x["values"]))
            name, schema = enum["name"], {**schema, "enum": enum["values"]}
        number = 2
        base = name
        while name in self._schemas and not _alike(self._schemas[name], schema):
            name, number = f"{base}_{number}", number + 1
        self._schemas[name] = {**schema, **self._schemas.get(name, {})}
        self._users.setdefault(name, []).append(user)
        return name

    def _guess(self, tool: Listed, does: Doing, effect: bool) -> dict[str, str]:
        """What a tool returns, where nobody says: by its name."""
        thing, own = _thing(does), {_full_name(x, does) for x in tool.arguments}
        makes = does.said in _MAKE
        names = (f"{thing}_id", f"{thing}_number", thing, f"{thing}_name")
        for name in names:
            if name in self._of_arguments - own and (makes or not effect):
                return {name: self._add(name, self._schemas[name], tool.name)}
        if effect:
            return {"receipt": self._add("receipt_number", {}, tool.name)}
        rest = [part for part in does.rest if part not in ("by", "for", "of", "in")]
        if not rest:
            problem = f"{HOLE} three or more values that {tool.name} may return"
            name = "_".join([*wording.words(tool.name), "result"])
            return {"result": self._add(name, {"hole": problem}, tool.name)}
        last = wording.singular(rest[-1])
        if last == thing and not own.isdisjoint(names):
            return {"details": self._add(f"{thing}_details", {}, tool.name)}
        schema = {"type": "integer"} if last in _NUMBERS else {}
        name = _lettered("_".join(rest)[:50])
        return {_lettered(rest[-1]): self._add(name, schema, tool.name)}


def _thing(does: Doing) -> str:
    """What a tool is about: `order`, of `get order status`."""
    rest = list(does.rest)
    while len(rest) > 1 and (rest[-1] in _ASPECTS or rest[-2] in ("by", "for", "of")):
        rest.pop()
    return _lettered(wording.singular(rest[-1])) if rest else ""


def _full_name(name: str, does: Doing) -> str:
    parts = wording.words(name) or ["value"]
    thing = _thing(does)
    if len(parts) == 1 and parts[0] in _BARE and thing and thing != parts[0]:
        parts = [thing, *parts]
    return _lettered("_".join(parts)[:50])


def _lettered(name: str) -> str:
    """No name begins with a digit."""
    return name if name[0].isalpha() else f"a_{name}"


def _alike(one: Schema, other: Schema) -> bool:
    """Whether two schemas may be of one type."""
    if "hole" in one or "hole" in other:
        return False
    if value_pools.choices(one) or value_pools.choices(other):
        return one.get("enum") == other.get("enum")
    if value_pools.is_whole(one) != value_pools.is_whole(other):
        return False
    keys = ("minimum", "maximum", "enum", "format")
    return all(one.get(x, other.get(x)) == other.get(x, one.get(x)) for x in keys)
