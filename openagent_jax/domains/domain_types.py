"""Read the types of a domain file: enums, ranges of numbers, and pools of entities."""

import itertools
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import DomainSpec, TypeSpec
from openagent_jax.text import scalars

POOL_LIMIT = 100_000  # values of one pool
FEW = 4  # with fewer values in a pool, its tasks are hardly different ones


def read(name: str, item: Any, check: Checker) -> TypeSpec | None:
    """Read an entry of `types`.

    Args:
      name: its key.
      item: the entry, as `json` returns it.
      check: collects the faults, and the values that are in use.

    Returns:
      The type, or None if it has faults.
    """
    place = f"types.{name}"
    value = schema.parse(schema.type_model(item), item, place, check)
    if isinstance(value, schema.Number):
        return _number(name, value, place, check)
    if isinstance(value, schema.Enum):
        return _enum(name, value, place, check)
    if isinstance(value, schema.ValueList):
        values = _values(value.values, f"{place}.values", {}, check)
        message = "fewer than 3 values; add some"
        check.require(len(values) >= 3, f"{place}.values", message)
        train, test, shift = (values[i::3] for i in range(3))
        return TypeSpec(name, value.kind, train, test, shift)
    if isinstance(value, schema.Entity):
        heads: dict[str, str] = {}  # first words, which must differ between splits
        pools = {"train": value.train, "test": value.test, "shift": value.shift}
        train, test, shift = (
            _values(pool, f"{place}.{split}", heads, check)
            for split, pool in pools.items()
        )
        return TypeSpec(name, value.kind, train, test, shift)
    return None


def warnings(spec: DomainSpec) -> Iterator[str]:
    """Yield a warning for each type with few values for a split.

    >>> inn = TypeSpec("inn", "entity", ("Ox", "Elm"), ("Bell",), ("Crown",))
    >>> list(warnings(DomainSpec("inns", "", (inn,), (), ())))  # doctest: +ELLIPSIS
    ['types.inn: train has 2 values, test 1 and shift 1, so tasks hardly differ; ...']
    """
    for kind in spec.types:
        pools = {"train": kind.train, "test": kind.test, "shift": kind.shift}
        sizes = [len(pool) for pool in pools.values()]
        if kind.kind == "entity" and min(sizes) < FEW:
            yield (
                f"types.{kind.name}: train has {sizes[0]} value{'s'[: sizes[0] > 1]}, "
                f"test {sizes[1]} and shift {sizes[2]}, so tasks hardly differ; write "
                f"at least {FEW} for each, which are {3 * FEW} in one list"
            )


def _number(
    name: str, value: schema.Number, place: str, check: Checker
) -> TypeSpec | None:
    low, high = (Decimal(str(x)) for x in (value.minimum, value.maximum))
    message = f"minimum {low}, maximum {high}; keep minimum <= maximum"
    if not check.require(low <= high, place, message):
        return None
    try:
        scalars.number_range(low, high, value.decimals)
    except ValueError as error:
        check.require(False, place, f"{error}; change the bounds or decimals")
    return TypeSpec(
        name,
        value.kind,
        minimum=low,
        maximum=high,
        decimals=value.decimals,
        unit=value.unit,
        identifier=value.identifier,
    )


def _enum(name: str, value: schema.Enum, place: str, check: Checker) -> TypeSpec:
    place = f"{place}.values"
    are_texts = [isinstance(x, str) for x in value.values]
    message = "strings beside other values; write strings only, or none"
    check.require(all(are_texts) or not any(are_texts), place, message)
    if any(are_texts):
        texts = [x for x in value.values if isinstance(x, str)]
        values = _values(texts, place, {}, check)
        return TypeSpec(name, value.kind, values, values, values)
    # Types may share numbers, booleans and null.
    values = check.unused(map(json.dumps, value.values), {}, place)
    return TypeSpec(name, value.kind, values, values, values, unquoted=True)


def _values(
    pool: list[str] | schema.Composed,
    place: str,
    heads: dict[str, str],
    check: Checker,
) -> tuple[str, ...]:
    """Return the values of a pool; composed values are joined."""
    lists = pool.compose if isinstance(pool, schema.Composed) else [pool]
    size = math.prod(map(len, lists))
    message = f"{size} values; have at most {POOL_LIMIT}"
    if not check.require(size <= POOL_LIMIT, place, message):
        return ()
    check.unused(lists[0], heads, place)
    values = map(" ".join, itertools.product(*lists))
    values = check.unused(values, check.used["value"], place)
    check.short(values, place)
    return values
