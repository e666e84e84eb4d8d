"""The lists of the results of tools, and their pages, as arrays."""

import numpy as np

from openagent_jax.domains import result_reading
from openagent_jax.domains.domain_spec import DomainSpec, ToolSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import pages as paging
from openagent_jax.environments.tools import result_lists
from openagent_jax.environments.tools.pages import Pages
from openagent_jax.environments.tools.types import Lists
from openagent_jax.text import nesting

# Arrays are built with NumPy and become JAX arrays at the end.
# pyright: reportArgumentType=false


def lists(spec: DomainSpec, limits: Limits) -> Lists:
    """Return the lists of the tools, and what is derived from them."""
    N, F, Y = limits.num_tools, limits.num_fields, limits.num_derived
    kinds = ("first", "record", "least", "most", "level")
    arrays = {name: np.zeros((N, F), np.int32) for name in kinds}
    column = np.tile(np.arange(F, dtype=np.int32), (N, 1))
    derived = np.zeros((N, Y, 3), np.int32)
    for n, tool in enumerate(spec.tools):
        index = {name: f for f, (name, _) in enumerate(tool.returns)}
        for made in tool.lists:
            values = {
                "first": min(index[made.leaf(0, x)] for x, _ in made.columns),
                "least": made.at_least,
                "most": made.at_most,
                "level": len(nesting.parse(made.path)),
            }
            for record in range(made.at_most):
                for x, _ in made.columns:
                    f = index[made.leaf(record, x)]
                    column[n, f] = index[made.leaf(0, x)]
                    for name, value in (values | {"record": record}).items():
                        arrays[name][n, f] = value
        for y, (name, _) in enumerate(tool.derived):
            derived[n, y] = _derived(tool, name, index)
    return Lists(column=column, derived=derived, **arrays)


def pages(spec: DomainSpec, limits: Limits) -> Pages:
    """Return how the tools divide their results."""
    N, F = limits.num_tools, limits.num_fields
    size, stride, cursor, following = np.zeros((4, N), np.int32)
    record = np.zeros((N, F), np.int32)
    last = np.zeros((N, limits.num_values), np.int32)
    for n, tool in enumerate(spec.tools):
        if (made := tool.pages) is None:
            continue
        index = {name: f for f, (name, _) in enumerate(tool.returns)}
        (divided,) = (x for x in tool.lists if x.path == made.path)
        size[n], stride[n] = made.size, len(divided.columns)
        cursor[n] = 1 + [name for name, _ in tool.inputs].index(made.cursor)
        following[n] = 1 + index[made.next]
        for r in range(divided.at_most):
            for column, _ in divided.columns:
                f = index[divided.leaf(r, column)]
                record[n, f], last[n, f] = 1 + r, r // made.size
        for y, (name, _) in enumerate(tool.derived):
            is_of_list = result_reading.list_of(name, tool.lists) is divided
            last[n, F + y] = paging.ALL if is_of_list else 0
    return Pages(size, record, stride, cursor, following, last)


def _derived(tool: ToolSpec, name: str, index: dict[str, int]) -> tuple[int, int, int]:
    """Return an operation, the column that it compares, and the one that it takes."""
    operation, _, rest = name.partition("(")
    inner, _, taken = rest.partition(")")
    made = result_reading.list_of(name, tool.lists)
    if operation == "count":
        first = index[made.leaf(0, made.columns[0][0])]
        return result_lists.COUNT, first, first
    compared = index[made.leaf(0, inner.removeprefix(f"{made.path}."))]
    code = result_lists.OPERATIONS[operation]
    return code, compared, index[made.leaf(0, taken.removeprefix("."))]
