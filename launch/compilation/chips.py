"""Chips that programs are compiled for, and their peak rates."""

from typing import NamedTuple

from launch.common.errors import UsageError


class Chip(NamedTuple):
    """What one chip does at most, as its vendor states it."""

    flops: float  # per second, of matrix products in bfloat16
    memory: float  # bytes of HBM
    bandwidth: float  # bytes per second, of HBM
    links: float  # bytes per second that it sends to other chips, over all links


# Values of cloud.google.com/tpu/docs; links in one direction.
CHIPS = {
    "v4": Chip(275e12, 32e9, 1_228e9, 300e9),
    "v5e": Chip(197e12, 16e9, 819e9, 200e9),
    "v5p": Chip(459e12, 95e9, 2_765e9, 600e9),
    "v6e": Chip(918e12, 32e9, 1_640e9, 448e9),
}
# What devices are, by parts of their names in JAX. Values of GPUs are those of
# nvidia.com for SXM modules: dense products, and NVLink in one direction.
DEVICES = {
    "NVIDIA H200": Chip(989e12, 141e9, 4_800e9, 450e9),
    "H100 80GB HBM3": Chip(989e12, 80e9, 3_350e9, 450e9),
    "TPU v4": CHIPS["v4"],
    "TPU v5 lite": CHIPS["v5e"],
    "TPU v5": CHIPS["v5p"],
    "TPU v6 lite": CHIPS["v6e"],
}


def of_device(kind: str) -> Chip | None:
    """Return what a device does at most, by its `device_kind`; None if unknown.

    >>> of_device("TPU v5 lite") == CHIPS["v5e"], of_device("cpu")
    (True, None)
    """
    return next((chip for name, chip in DEVICES.items() if name in kind), None)


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
