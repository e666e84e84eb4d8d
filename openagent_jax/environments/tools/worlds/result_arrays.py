"""The lists of the results of tools, as arrays."""

import numpy as np

from openagent_jax.domains.domain_spec import DomainSpec, ToolSpec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import result_lists
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


def _derived(tool: ToolSpec, name: str, index: dict[str, int]) -> tuple[int, int, int]:
    """Return an operation, the column that it compares, and the one that it takes."""
    operation, _, rest = name.partition("(")
    inner, _, taken = rest.partition(")")
    if operation == "count":
        (made,) = (x for x in tool.lists if x.path == inner)
        first = index[made.leaf(0, made.columns[0][0])]
        return result_lists.COUNT, first, first
    fits = [x for x in tool.lists if inner.startswith(f"{x.path}.")]
    made = max(fits, key=lambda x: len(x.path))
    compared = index[made.leaf(0, inner.removeprefix(f"{made.path}."))]
    code = result_lists.OPERATIONS[operation]
    return code, compared, index[made.leaf(0, taken.removeprefix("."))]
