"""Chips that programs are compiled for, and what they do at most."""

from typing import NamedTuple

from launch.common.errors import UsageError


class Chip(NamedTuple):
    """What one chip does at most, as its vendor states it."""

    flops: float  # per second, of matrix products in bfloat16
    memory: float  # bytes of HBM
    bandwidth: float  # bytes per second, of HBM
    links: float  # bytes per second that it sends to other chips, over all links


# Values of cloud.google.com/tpu/docs, where links are given in both directions.
CHIPS = {
    "v4": Chip(275e12, 32e9, 1_228e9, 300e9),
    "v5e": Chip(197e12, 16e9, 819e9, 200e9),
    "v5p": Chip(459e12, 95e9, 2_765e9, 600e9),
    "v6e": Chip(918e12, 32e9, 1_638e9, 448e9),
}


def parse(topology: str) -> tuple[Chip, int]:
    """Return the chip of a topology such as "v5e:4x4", and the number of chips.

    Raises:
      UsageError: there is no such topology.

    >>> parse("v5e:4x4")[1]
    16
    """
    name, _, shape = topology.partition(":")
    sides = shape.split("x")
    if name not in CHIPS or not all(x.isdecimal() and int(x) for x in sides):
        raise UsageError(
            f'--topology: there is no "{topology}"; "local", or a chip '
            f"({', '.join(CHIPS)}) and a shape, such as v5e:4x4 or v5p:2x2x4"
        )
    num = 1
    for side in sides:
        num *= int(side)
    return CHIPS[name], num
