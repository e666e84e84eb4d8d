"""Guess the types of the arguments and results of listed tools.

Values of the same name have the same type, so that the result of one tool can be an
argument of another. A name without meaning by itself (`id`) is completed by the thing
that its tool is about (`order_id`).
"""

import json
from typing import Any

from openagent_jax.domains import tool_names, value_schema
from openagent_jax.domains.domain_schema import HOLE
from openagent_jax.domains.domain_spec import COUNT
from openagent_jax.drafting import list_results, shared_enums, value_pools
from openagent_jax.drafting.tool_lists import ListedTool, Schema
from openagent_jax.text import nesting, style, wording
from openagent_jax.text.wording import Purpose

NUM_FIELDS = 2  # of a result: `Limits` has room for this many by default
# Names without meaning unless one knows the thing that they belong to.
_BARE_NAMES = set(
    "id name key number no ref reference code title value status state type result "
    "details text date info data count".split()
)
# Words that follow the thing itself in the name of a tool: `get_order_status`.
_ASPECTS = set(
    "status state price details detail info information history count quantity stock "
    "total list balance rating address location time date summary data availability "
    "by for in of".split()
)
_NUMERIC_NOUNS = set(
    "count quantity number amount total stock price cost fee balance score distance "
    "duration minute hour second day temperature weight height size percent rate point "
    "rating salary budget sum length limit age level unit availability".split()
)
_CREATING_VERBS = set(
    "create open add register submit place start book reserve order".split()
)
# What is around the parts of any result, and says nothing of them.
_CONTAINERS = set(
    "data item result record entry list value row object hit match response "
    "content payload".split()
)
_OF_LISTS = set("count total more cursor token page pages next offset".split())
_FAILURES = set("failure failed error warning".split())
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_HOLE_KEY = (
    "hole"  # of a schema that nobody can guess; its value is the text of the hole
)


class Types:
    """Collects the types of a draft as its arguments and results are added.

    Add the arguments of all tools before the first results: the names of results depend
    on what other tools can use.

    >>> from openagent_jax.drafting import tool_lists
    >>> schema = {"properties": {"id": {"type": "integer"}}}
    >>> (tool,) = tool_lists.read([{"name": "get_order", "parameters": schema}])
    >>> does = wording.purpose(tool.name, tool.description)
    >>> types = Types([(tool, does)])
    >>> types.arguments(tool, does)
    {'id': 'order_id'}
    >>> types.definitions()[0]
    {'order_id': {'kind': 'number', 'minimum': 0, 'maximum': 999}}

    Args:
      tools: all tools, with what each of them does.
    """

    def __init__(self, tools: list[tuple[ListedTool, Purpose]]):
        self._schemas: dict[str, Schema] = {}
        self._users: dict[str, list[str]] = {}  # names of tools, by type
        self._argument_types: set[str] = set()  # of required arguments
        self._left_out: dict[str, list[str]] = {}  # values of enums, by type
        self._narrowed: set[str] = set()  # enums that share values with others
        enums = []
        for tool, does in tools:
            named = [(_full_name(x, does), y) for x, y in tool.arguments.items()]
            named += [(_name_of_field(x, does), y) for x, y in tool.returns.items()]
            for name, schema in named:
                values = value_pools.choices(schema)
                if values and value_pools.are_texts(values):
                    enums.append((name, values))
        self._enums = shared_enums.divided(enums)

    def arguments(self, tool: ListedTool, does: Purpose) -> dict[str, str]:
        """Add the arguments of a tool; return their types by name.

        An argument called `code` is renamed, since the environment reserves that name,
        and so is one whose name has letters that are not allowed.
        """
        types = {}
        parameters = tool.function.get("parameters") or {}
        valid = tool_names.arguments(parameters, tool.arguments)
        for name, schema in tool.arguments.items():
            type_name = self._add(_full_name(name, does), schema, tool.name)
            if name not in tool.optional:
                self._argument_types.add(type_name)
            name = valid[name]
            while name == style.CODE or name in types:
                name = f"{_thing(does) or 'the'}_{name}"
            types[name] = type_name
        return types

    def returns(self, tool: ListedTool, does: Purpose, effect: bool) -> dict[str, str]:
        """Add the result of a tool; return the types of its fields by path.

        The fields of a list are those of its first record.

        Args:
          tool: the tool, whose output schema is used if there is one.
          does: its purpose, from which the result is guessed otherwise.
          effect: whether the tool changes something.
        """
        if tool.returns:
            types = self._from_schema(tool, does, effect)
        else:
            types = self._from_name(tool, does, effect)
        thing = _thing(does)
        prefix = thing if thing not in ("", style.CODE) else "result"
        paths = {nesting.parse(path): kind for path, kind in types.items()}
        renamed = {style.CODE: f"{prefix}_{style.CODE}"}
        return {
            nesting.written((renamed.get(str(first), first), *rest)): kind
            for (first, *rest), kind in paths.items()
        }

    def definitions(self) -> tuple[dict[str, Any], list[str]]:
        """Return the types of a domain file, and notes on the values made up."""
        made, notes = {}, {}
        taken = set(map(str, range(value_pools.MAX_NUMBER + 1)))
        # Enums come first: their values are given, and others have to avoid them.
        enums_first = sorted(
            self._schemas, key=lambda x: not value_pools.choices(self._schemas[x])
        )
        for name in enums_first:
            users = ", ".join(dict.fromkeys(self._users[name]))
            schema, owner = self._schemas[name], f"{name} (of {users})"
            if _HOLE_KEY in schema:
                made[name] = {"kind": "entity", "values": [schema[_HOLE_KEY]]}
                continue
            made[name], note = value_pools.of_schema(name, schema, taken, owner)
            if name in self._left_out:
                left_out = ", ".join(self._left_out[name])
                note = f"{owner}: without {left_out}, since the other values are texts"
            if name in self._narrowed and not note:
                kept = ", ".join(map(str, made[name]["values"]))
                note = f"{owner}: only {kept}, as other values are in other enums too"
            if note:
                notes[name] = f"types.{name}: {note}"
        order = [name for name in self._schemas if name in made]
        definitions = {name: made[name] for name in order}
        return definitions, [notes[name] for name in order if name in notes]

    def _from_schema(
        self, tool: ListedTool, does: Purpose, effect: bool
    ) -> dict[str, str]:
        """Choose fields of a result: those that other tools take as arguments first.

        If the result has a list of records, it is among them, unless the tool changes
        something: then it has one record.
        """
        names = {path: _name_of_field(path, does) for path in tool.returns}
        own = {_full_name(name, does) for name in tool.required}
        useful = [x for x in names if names[x] in self._argument_types - own]
        new = [x for x in names if x not in useful and names[x] not in own]
        ranked = list(dict.fromkeys([*useful, *new, *names]))
        ranked.sort(key=_is_of_failure)  # a call that succeeds has none
        if tool.pages:
            ranked = _records(tool, useful, ranked)
        elif not effect:
            ranked = _with_one_list(ranked, _records(tool, useful, ranked), useful)
        chosen = ranked[:NUM_FIELDS]
        return {x: self._add(names[x], tool.returns[x], tool.name) for x in chosen}

    def _add(self, name: str, schema: Schema, user: str) -> str:
        """Return the type of that name, or a numbered one if its values differ."""
        values, left_out = value_pools.choices(schema), value_pools.left_out(schema)
        is_narrowed = False
        if values and value_pools.are_texts(values):
            # A type that was added before may have been narrowed, and is kept so.
            name, kept = self._enums.get(frozenset(values), (name, values))
            is_narrowed = {*kept} != {*values}
            schema = {**schema, "enum": kept}
        elif [*map(str, values)] in (["True", "False"], ["False", "True"]):
            name, schema = "boolean", {**schema, "enum": [True, False]}
        if name == COUNT:  # reserved for the number of records of a list
            name = f"{COUNT}_value"
        number = 2
        base = name
        while name in self._schemas and not _compatible(self._schemas[name], schema):
            name, number = f"{base}_{number}", number + 1
        self._schemas[name] = {**schema, **self._schemas.get(name, {})}
        self._users.setdefault(name, []).append(user)
        if left_out:
            self._left_out[name] = left_out
        if is_narrowed:
            self._narrowed.add(name)
        return name

    def _from_name(
        self, tool: ListedTool, does: Purpose, effect: bool
    ) -> dict[str, str]:
        """Guess what a tool returns from its name."""
        thing, own = _thing(does), {_full_name(x, does) for x in tool.required}
        creates = does.verb_word in _CREATING_VERBS
        names = (f"{thing}_id", f"{thing}_number", thing, f"{thing}_name")
        for name in names:
            if name in self._argument_types - own and (creates or not effect):
                return {name: self._add(name, self._schemas[name], tool.name)}
        if effect:
            return {"receipt": self._add("receipt_number", {}, tool.name)}
        nouns = [x for x in does.nouns if x not in ("by", "for", "of", "in")]
        if not nouns:
            hole = f"{HOLE} three or more values that {tool.name} may return"
            name = "_".join([*wording.words(tool.name), "result"])
            return {"result": self._add(name, {_HOLE_KEY: hole}, tool.name)}
        last = wording.singular(nouns[-1])
        if last == thing and not own.isdisjoint(names):
            return {"details": self._add(f"{thing}_details", {}, tool.name)}
        schema = {"type": "integer"} if last in _NUMERIC_NOUNS else {}
        name = _starting_with_letter("_".join(nouns)[:50])
        field = _starting_with_letter(nouns[-1])
        return {field: self._add(name, schema, tool.name)}


def _thing(does: Purpose) -> str:
    """Return what a tool is about: `order` for `get_order_status`; "" if unknown."""
    nouns = list(does.nouns)
    while len(nouns) > 1 and (
        nouns[-1] in _ASPECTS or nouns[-2] in ("by", "for", "of")
    ):
        nouns.pop()
    return _starting_with_letter(wording.singular(nouns[-1])) if nouns else ""


def _full_name(name: str, does: Purpose) -> str:
    """Return the name of the type of an argument or a field.

    >>> does = wording.purpose("find_trip", "")
    >>> [_full_name(x, does) for x in ("id", "to.city", "guests.0.name", "tags.1")]
    ['trip_id', 'city', 'guest_name', 'tag']
    """
    *outer, own = spoken_keys(name)
    parts = wording.words(own) or ["value"]
    if outer and len(parts) == 1 and parts[0] in _BARE_NAMES:
        parts = [*wording.words(outer[-1]), *parts]
    thing = _thing(does)
    if len(parts) == 1 and parts[0] in _BARE_NAMES and thing and thing != parts[0]:
        parts = [thing, *parts]
    return _starting_with_letter("_".join(parts)[:50])


def _name_of_field(path: str, does: Purpose) -> str:
    """Return the name of the type of a field of a result.

    >>> does = wording.purpose("list_orders", "")
    >>> [_name_of_field(x, does) for x in ("data.items.0.id", "owner.name", "data")]
    ['order_id', 'owner_name', 'order_data']
    """
    *outer, own = spoken_keys(path)
    outer = [key for key in outer if wording.singular(key.lower()) not in _CONTAINERS]
    made = _full_name(nesting.written([*outer, own]), does)
    return _full_name(path, does) if made in _BARE_NAMES else made


def _is_of_failure(path: str) -> bool:
    keys = (wording.singular(key.lower()) for key in spoken_keys(path))
    return not _FAILURES.isdisjoint(keys)


def _goes_with_list(path: str) -> bool:
    """Tell whether a result may have a field and a list that are drawn independently: a
    number of records or a cursor may not, and neither may another list.
    """
    is_of_list = not _OF_LISTS.isdisjoint(wording.words(spoken_keys(path)[-1]))
    return not (is_of_list or list_results.lists([path]))


def _records(tool: ListedTool, useful: list[str], ranked: list[str]) -> list[str]:
    """Return the fields of the list of records that a draft returns, best first."""
    if tool.pages:
        return [x for x in ranked if list_results.lists([x]) == [tool.pages.path]]
    at_top = [path for path in tool.returns if _is_of_main_list(path)]
    for path in [*useful, *at_top]:
        if (found := list_results.lists([path])) and not _is_of_failure(path):
            return [x for x in ranked if list_results.lists([x]) == found]
    return []


def _with_one_list(
    ranked: list[str], records: list[str], useful: list[str]
) -> list[str]:
    """Return fields in order, those of a list of records first.

    A field of use to other tools may come before. Without `records`, lists are only
    there if there is nothing else.
    """
    if records:
        rest = [x for x in ranked if _goes_with_list(x)]
        first = [x for x in ranked if x in useful and x in (*records, *rest)]
        return list(dict.fromkeys([*first[: NUM_FIELDS - 1], *records, *rest]))
    in_list = [list_results.lists([x]) for x in ranked]
    kept = [] if [] in in_list else in_list[0]
    return [x for x, found in zip(ranked, in_list, strict=True) if found == kept]


def _is_of_main_list(path: str) -> bool:
    """Tell whether a field is in a list that is not a detail of something else."""
    found = list_results.lists([path])
    around = nesting.parse(found[0])[:-1] if found else ()
    return all(wording.singular(str(key).lower()) in _CONTAINERS for key in around)


def spoken_keys(path: str) -> list[str]:
    """Return the keys of an argument, that of an array in the singular.

    >>> spoken_keys("guests.1.name"), spoken_keys("days")
    (['guest', 'name'], ['days'])
    """
    keys = nesting.parse(path)
    return [
        wording.singular(key) if isinstance(after, int) else key
        for key, after in zip(keys, [*keys[1:], ""], strict=True)
        if isinstance(key, str)
    ]


def _starting_with_letter(name: str) -> str:
    return name if name[0].isalpha() else f"a_{name}"


def _compatible(one: Schema, other: Schema) -> bool:
    """Tell whether two schemas can share a type."""
    if _HOLE_KEY in one or _HOLE_KEY in other:
        return False
    choices = [value_pools.choices(x) for x in (one, other)]
    if any(choices):
        return json.dumps(choices[0]) == json.dumps(choices[1])  # true is not 1
    are_numbers = [value_pools.is_number(x) for x in (one, other)]
    if any(are_numbers):
        if not all(are_numbers) or one.get("type") != other.get("type"):
            return False
    keys = (*_BOUNDS, "enum", "format", *value_schema.STRICT)
    return all(one.get(x, other.get(x)) == other.get(x, one.get(x)) for x in keys)
