"""Count the floating-point operations of a traced program.

XLA counts the body of a loop once, however often it runs. Here loops whose length is
known count in full. Only matrix products are counted: a multiplication and an addition
are two operations.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple


class Flops(NamedTuple):
    """Operations of a program on all devices together."""

    known: float
    open: float  # of one iteration of each loop whose length only its data decide

    def times(self, number: float) -> "Flops":
        return Flops(self.known * number, self.open * number)


def count(jaxpr: Any, num_shards: int = 1) -> Flops:
    """Count the operations of a jaxpr.

    Args:
      jaxpr: a `jax.core.ClosedJaxpr` or `Jaxpr`.
      num_shards: the number of devices over which `shard_map` divides its operands,
        each of which executes the jaxpr within.

    >>> import jax
    >>> jaxpr = jax.make_jaxpr(lambda x: x @ x)(jax.numpy.ones((3, 3)))
    >>> count(jaxpr)
    Flops(known=54.0, open=0.0)
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    known = opened = 0.0
    for eqn in jaxpr.eqns:
        name, params = eqn.primitive.name, eqn.params
        if name == "dot_general":
            known += _product(eqn)
            continue
        parts = [count(part, num_shards) for part in _jaxprs(params)]
        if not parts:
            continue
        if name == "cond":  # the most expensive branch
            made = max(parts, key=sum)
        else:
            made = Flops(*map(math.fsum, zip(*parts, strict=True)))
        if name == "scan":
            made = made.times(params["length"])
        elif name == "while":
            made = Flops(0.0, made.known + made.open)
        elif name == "shard_map":
            made = made.times(num_shards)
        known, opened = known + made.known, opened + made.open
    return Flops(known, opened)


def _product(eqn: Any) -> float:
    """Return the operations of a `dot_general`."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    shape = eqn.invars[0].aval.shape
    size = math.prod(shape[axis] for axis in contracted)
    return 2.0 * size * math.prod(eqn.outvars[0].aval.shape)


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Yield the jaxprs among the parameters of an equation."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if hasattr(getattr(item, "jaxpr", item), "eqns"):
                yield item
