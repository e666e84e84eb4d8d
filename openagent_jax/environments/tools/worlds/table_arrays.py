"""What the tools of a domain do to records, as arrays (see `cells.Access`)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from openagent_jax.domains.domain_spec import DomainSpec, TypeSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import cells
from openagent_jax.environments.tools.cells import Access
from openagent_jax.text import scalars


class TableArrays(NamedTuple):
    """What tools do to records, as arrays."""

    access: Access  # the initial values are those of the first split
    initial: Int[np.ndarray, "3 N V 2"]  # what initial values are drawn from, by split


def compile(
    spec: DomainSpec, splits: Mapping[str, Sequence[tuple[int, int]]], limits: Limits
) -> TableArrays | None:
    """Return what the tools of a domain do to records; None if no tables are in use.

    Args:
      spec: the domain, which fits the limits.
      splits: by type, what values are drawn from, by split.
      limits: sizes of the arrays.
    """
    N, V = limits.num_tools, limits.num_columns
    if not V:
        return None
    access = cells.untouched(N, limits.num_fields, V)
    initial = np.zeros((3, N, V, 2), np.int32)
    number = {table.name: 1 + t for t, table in enumerate(spec.tables)}
    tables = {table.name: table for table in spec.tables}
    types = {kind.name: kind for kind in spec.types}
    amounts: dict[tuple[str, str], TypeSpec] = {}  # what is added to each column
    for tool in spec.tools:
        if does := tool.access:
            for column, argument in {**does.adds, **does.subtracts}.items():
                kind, key = types[dict(tool.arguments)[argument]], (does.table, column)
                # Tools may differ in it; values leave room for the largest amount.
                amounts[key] = max(
                    amounts.get(key, kind), kind, key=lambda kind: kind.maximum
                )
    for n, tool in enumerate(spec.tools):
        if (does := tool.access) is None:
            continue
        table = tables[does.table]
        columns = [name for name, _ in table.columns]
        arguments = [name for name, _ in tool.arguments]
        fields = [name for name, _ in tool.returns]
        access.table[n], access.present[n] = number[does.table], table.present
        access.creates[n], access.deletes[n] = does.creates, does.deletes
        drawn = limits.num_args + fields.index(does.key) if does.is_drawn else 0
        access.key[n] = drawn if does.is_drawn else arguments.index(does.key)
        for name, column in does.reads.items():
            access.reads[n, fields.index(name)] = 1 + columns.index(column)
        for sign, written in ((0, does.sets), (1, does.adds), (-1, does.subtracts)):
            for column, argument in written.items():
                v = columns.index(column)
                access.source[n, v] = 1 + arguments.index(argument)
                access.sign[n, v] = sign
        for v, (column, name) in enumerate(table.columns):
            kind, initial[:, n, v] = types[name], splits[name]
            if amount := amounts.get((table.name, column)):
                room, ends = amount.maximum, (kind.minimum, kind.maximum)
                within = scalars.number_range(*ends, kind.decimals)
                access.low[n, v], access.high[n, v] = within
                ends = ends[0] + room, ends[1] - room
                initial[:, n, v] = scalars.number_range(*ends, kind.decimals)
    low, high = initial[0, ..., 0], initial[0, ..., 1]
    return TableArrays(replace(access, initial_low=low, initial_high=high), initial)
