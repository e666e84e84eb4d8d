"""Tables of a domain file: records that tools create, read, change and delete.

`tables` names the type of a table's keys, its columns with their types, and whether all
records exist `initially` ("present") or none ("absent"):

    {"card": {"key": "card", "fields": {"limit": "money"}, "initially": "present"}}

The `state` of a tool says what a call does to one record:

    table       the table
    key         the argument that is the key; `returns.field` for a call that creates a
                record and draws its key
    reads       returned field -> column
    sets        column -> argument
    adds        column -> argument that is added to it; `subtracts` likewise
    creates     the record must not exist yet; columns that are not set are drawn
    deletes     the record is gone afterwards

A call that needs a record which does not exist is an error. The rules that are checked
here keep it possible to say which calls a goal needs: a column is changed by one tool
only (or by one that adds and one that subtracts), and a goal changes it once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import (
    AccessSpec,
    DomainSpec,
    GoalSpec,
    TableSpec,
    ToolSpec,
    TypeSpec,
)

DRAWN = "returns."  # before the field with a key that a call draws


def read(document: Any, items: Sequence[Any], check: Checker) -> tuple[TableSpec, ...]:
    """Read the tables of a file, and what its tools do to records.

    Args:
      document: the file, as `json` returns it.
      items: the entries of `tools`.
      check: collects the faults. Its tools get their `access`.
    """
    part = document.get("tables") if isinstance(document, dict) else None
    tables = check.tables
    for name, item in part.items() if isinstance(part, dict) else ():
        tables[name] = _table(name, item, f"tables.{name}", check)
    writers: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for index, item in enumerate(items):
        function = item.get("function") if isinstance(item, dict) else None
        name = str(function.get("name")) if isinstance(function, dict) else ""
        meaning = item.get("x-openagent") if isinstance(item, dict) else None
        tool = check.tools.get(name)
        if tool is None or not isinstance(meaning, dict) or "state" not in meaning:
            continue
        place = f"tools[{index}].x-openagent.state"
        if (
            state := schema.parse(schema.State, meaning["state"], place, check)
        ) is None:
            continue
        if not check.known(state.table, tables, f"{place}.table", "unknown table"):
            continue
        if (table := tables[state.table]) is None:
            continue
        access = _access(tool, state, table, place, check)
        check.tools[name] = replace(
            tool, access=access, effect=tool.effect or access.writes
        )
        if not access.creates:
            for column in access.columns:
                ways = ("adds", "subtracts", "sets")
                how = next(way for way in ways if column in getattr(access, way))
                of_column = writers.setdefault((table.name, column), [])
                others = [x for x in of_column if x[1] == how or "sets" in (x[1], how)]
                for other, _ in others:
                    message = f"{other!r} changes it too; let one tool change it, or "
                    message += "one add to it and one subtract from it"
                    check.require(False, f"{place}.{how}.{column}", message)
                of_column.append((name, how))
    return tuple(table for table in tables.values() if table)


def _table(name: str, item: Any, place: str, check: Checker) -> TableSpec | None:
    if (table := schema.parse(schema.Table, item, place, check)) is None:
        return None
    types = {"key": table.key, **{f"fields.{x}": y for x, y in table.fields.items()}}
    known = [
        check.known(kind, check.types, f"{place}.{key}", "unknown type")
        for key, kind in types.items()
        if "types" not in check.unreadable
    ]
    kind = check.types.get(table.key)
    message = f"{table.key!r} is not a type of entities; name one"
    is_entity = kind is None or kind.kind == "entity"
    if not (all(known) and check.require(is_entity, f"{place}.key", message)):
        return None
    columns = tuple(table.fields.items())
    return TableSpec(name, table.key, columns, table.initially == "present")


def _access(
    tool: ToolSpec, state: schema.State, table: TableSpec, place: str, check: Checker
) -> AccessSpec:
    """Return what a tool does to a record, and note its faults."""
    arguments, returns = dict(tool.arguments), dict(tool.returns)
    columns = dict(table.columns)
    is_drawn = state.key.startswith(DRAWN)
    key = state.key.removeprefix(DRAWN)
    among = returns if is_drawn else arguments
    if check.known(key, among, f"{place}.key", "unknown key"):
        _same(among[key], table.key, f"{place}.key", check)
        _required(key, tool, f"{place}.key", check)
    for name, column in state.reads.items():
        at = f"{place}.reads.{name}"
        known = check.known(name, returns, at, "unknown result")
        if check.known(column, columns, at, "unknown column") and known:
            _same(returns[name], columns[column], at, check)
    changes = {"sets": state.sets, "adds": state.adds, "subtracts": state.subtracts}
    for how, written in changes.items():
        for column, argument in written.items():
            at = f"{place}.{how}.{column}"
            known = check.known(column, columns, at, "unknown column")
            if (
                not check.known(argument, arguments, at, "unknown argument")
                or not known
            ):
                continue
            _required(argument, tool, at, check)
            if how == "sets":
                _same(arguments[argument], columns[column], at, check)
            else:
                kinds = arguments[argument], columns[column]
                amount, sum_ = (check.types.get(kind) for kind in kinds)
                _check_sum(amount, sum_, at, check)
    access = AccessSpec(
        table.name, key, is_drawn, state.creates, state.deletes,
        state.reads, state.sets, state.adds, state.subtracts,
    )  # fmt: skip
    sums = {*access.adds, *access.subtracts}
    alone = (
        not sums or len(access.columns) == 1 and not (access.creates or access.deletes)
    )
    message = "more than one change; let a tool that adds or subtracts do nothing else"
    check.require(alone, place, message)
    message = 'records of this table exist from the start; write "initially": "absent"'
    check.require(not access.creates or not table.present, f"{place}.creates", message)
    message = "only a call that creates a record can draw its key; name an argument"
    check.require(access.creates or not is_drawn, f"{place}.key", message)
    message = "a call that deletes can do nothing else; remove the other changes"
    only = not (access.creates or access.columns)
    check.require(not access.deletes or only, f"{place}.deletes", message)
    return access


def _same(given: str, wanted: str, place: str, check: Checker) -> None:
    message = f"it is of type {given!r}; give one of type {wanted!r}"
    check.require(given == wanted, place, message)


def _required(name: str, tool: ToolSpec, place: str, check: Checker) -> None:
    message = f"{name!r} is optional; make it required"
    check.require(name not in tool.optional, place, message)


def _check_sum(
    amount: TypeSpec | None, column: TypeSpec | None, place: str, check: Checker
) -> None:
    """Check that one sum or difference always fits a column."""
    if amount is None or column is None:
        return
    numbers = amount.kind == column.kind == "number"
    numbers = numbers and amount.decimals == column.decimals and amount.minimum > 0
    message = "use numbers with equally many decimals, and amounts above 0"
    if check.require(numbers, place, f"cannot be added; {message}"):
        room, need = column.maximum - column.minimum, 2 * amount.maximum
        message = f"{column.name!r} has a range of {room}, but amounts of up to "
        message += f"{amount.maximum} need {need}; widen it or make amounts smaller"
        check.require(room >= need, place, message)


def check_goal(
    steps: Sequence[tuple[str, dict[str, str]]],
    place: str,
    check: Checker,
) -> None:
    """Check that the steps of a goal can be done, and in one way only."""
    tools = {name: tool for name, tool in check.tools.items() if tool}
    tables = [table for table in check.tables.values() if table]
    if all(name in tools for name, _ in steps):
        for index, fault in faults(steps, tools, tables):
            check.require(False, f"{place}.steps[{index}]", fault)


def fits(goal: GoalSpec, spec: DomainSpec) -> bool:
    """Tell whether the steps of a goal can be done, in one way only; see `faults`."""
    tools = {tool.name: tool for tool in spec.tools}
    return not any(faults(goal.steps, tools, spec.tables))


def faults(
    steps: Sequence[tuple[str, Mapping[str, str]]],
    tools: Mapping[str, ToolSpec],
    tables: Iterable[TableSpec],
) -> Iterator[tuple[int, str]]:
    """Yield what is wrong with how the steps of a goal change records.

    Args:
      steps: the tool and the arguments of each step.
      tools: all tools, by name.
      tables: all tables.

    Yields:
      The index of a step, and the fault.
    """
    exists = {table.name: table.present for table in tables}
    accesses = [tools[name].access for name, _ in steps]
    changed = {x.table for x in accesses if x and x.writes}
    sources: dict[str, set[str]] = {}
    alive: dict[tuple[str, str], bool] = {}
    written: dict[tuple[str, str], set[str]] = {}
    made: set[str] = set()
    for index, access in enumerate(accesses):
        if access is None:
            continue
        arguments = steps[index][1]
        source = f"#{index}.{access.key}" if access.is_drawn else arguments[access.key]
        record = access.table, source
        keys = sources.setdefault(access.table, set())
        keys.add(source)
        if access.table in changed and len(keys) > 1 and any(x[0] == "#" for x in keys):
            what = " and ".join(sorted(keys))
            fault = f"{what} may be one record of {access.table!r}, which the goal "
            yield index, fault + "changes; use one of them, or constants"
        there = alive.get(record, exists[access.table])
        if there == access.creates:
            is_there = "exists already" if there else "does not exist"
            remedy = "leave it out" if there else "create it in a step before"
            yield index, f"its record of {access.table!r} {is_there}; {remedy}"
        if access.creates and access.table in made:
            yield index, f"a second record of {access.table!r}; create only one"
        own = written.setdefault(record, set())
        if again := own & access.columns or (own and access.deletes):
            what = "deletes it" if again is True else "changes it again"
            yield (
                index,
                f"a step before writes its record, and it {what}; do one of them",
            )
        alive[record] = not access.deletes
        own |= access.columns
        if access.creates:
            made.add(access.table)
            own.add("")  # so that it is not deleted again


def conflicts(
    steps: Sequence[tuple[str, Mapping[str, str]]], tools: Mapping[str, ToolSpec]
) -> set[tuple[int, int]]:
    """Return pairs of steps, the first of which has to come before the second, because
    one of them changes a record of the table that both touch."""
    accesses = [tools[name].access for name, _ in steps]
    return {
        (i, j)
        for j, second in enumerate(accesses)
        for i, first in enumerate(accesses[:j])
        if first and second and first.table == second.table
        and (first.writes or second.writes)
    }  # fmt: skip
