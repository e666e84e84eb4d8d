"""Read from a compiled program how its devices communicate."""

import collections
import functools
import math
import re
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

KINDS = "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute"
_BITS = {"pred": 8, "bf16": 16}  # of types whose names do not end in their bits
_Key = tuple[str, tuple[str, ...], bool, int]  # kind, axes, in_loop and repeats
# The prefix of the names of TPU fusions that are a reduce-scatter.
_SCATTER = "all-reduce-scatter"
_WORD = r"%?([\w.\-]+)"
_MADE = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(")


class Collective(NamedTuple):
    """Collectives of one kind, over the same axes of the mesh."""

    kind: str
    axes: tuple[str, ...]
    in_loop: bool
    # How often loops repeat it; 1 outside of loops, and 0 if only their data decide.
    repeats: int
    number: int  # of places in the program
    sent: float  # bytes that a device sends, one after the other around a ring


def read(text: str, shape: Mapping[str, int]) -> list[Collective]:
    """Return the collectives of a compiled program, by kind, axes and loop.

    Args:
      text: the program, as `compiled.as_text()`.
      shape: the sizes of the mesh by axis, in the order of the devices.
    """
    bodies = _computations(text)
    collectives = {
        name: [
            (made, *_sent(made, line, shape, is_scatter=name.startswith(_SCATTER)))
            for line in body.splitlines()
            if (made := _MADE.search(line))
        ]
        for name, body in bodies.items()
    }
    bytes_sent = {
        name: sum(sent for *_, sent in found) for name, found in collectives.items()
    }
    loops, reached = _reached(bodies, bytes_sent)
    # A compiler may do one collective in pieces: before, in and after a loop beside it.
    places = collections.defaultdict(lambda: collections.defaultdict(list))
    for name in reached:
        for made, kind, axes, sent in collectives[name]:
            channel = re.search(r"channel_id=(\d+)", made.string)
            places[kind, channel and channel[1]][name].append((axes, sent))
    found = collections.defaultdict[_Key, list[float]](list)
    for (kind, _), rows in places.items():
        apart = max(
            (x for name, x in rows.items() if name not in loops), key=len, default=[]
        )
        name = max(
            (x for x in rows if x in loops), key=lambda x: len(rows[x]), default=""
        )
        for axes, sent in apart:
            found[kind, axes, False, 1].append(sent)
        for axes, sent in rows[name][len(apart) :] if name else ():
            found[kind, axes, True, loops[name]].append(sent)
    return [
        Collective(*key, number=len(sent), sent=sum(sent))
        for key, sent in sorted(found.items())
    ]


def _computations(text: str) -> dict[str, str]:
    """Return the lines of each computation, by its name."""
    bodies, name = collections.defaultdict[str, str](str), ""
    for line in re.sub(r"/\*.*?\*/", "", text).splitlines():
        if head := re.match(r"(?:ENTRY )?%?([\w.\-]+) .*->.*\{$", line):
            name = head[1]
        else:
            bodies[name] += line + "\n"
    return bodies


def _reached(
    bodies: Mapping[str, str], bytes_sent: Mapping[str, float]
) -> tuple[dict[str, int], list[str]]:
    """Return which computations run, and how often loops repeat them.

    Of the branches of a conditional, the one that sends the most counts.

    Args:
      bodies: the lines of each computation.
      bytes_sent: what the collectives of each computation send.

    Returns:
      The repeats of those that a loop calls, 0 if unknown; and all that are reached.
    """
    called = {name: _called(body, bodies) for name, body in bodies.items()}
    loops, reached = dict[str, int](), dict[str, None]()

    @functools.cache
    def total(name: str) -> float:
        """Return what a computation and all that it calls send."""
        inner = (
            max(map(total, names)) * max(repeats or 1, 1)
            for names, repeats in called.get(name, ())
        )
        return bytes_sent.get(name, 0) + sum(inner)

    def visit(name: str, repeats: int | None) -> None:
        if name in reached or name not in bodies:
            return
        reached[name] = None
        if repeats is not None:
            loops[name] = repeats
        for names, own in called[name]:
            inner = (
                repeats if own is None else own * (1 if repeats is None else repeats)
            )
            visit(max(names, key=total), inner)

    inner = {x for calls in called.values() for names, _ in calls for x in names}
    for name in bodies:
        if name not in inner:
            visit(name, None)
    return loops, [*reached]


def _called(body: str, bodies: Mapping[str, str]) -> list[tuple[list[str], int | None]]:
    """Return what the lines of a computation call.

    Each call has its alternatives, of which one runs, and the repeats of a loop, which
    are 0 if unknown; None for other calls.
    """
    calls: list[tuple[list[str], int | None]] = []
    for line in body.splitlines():
        if loop := re.search(rf"condition={_WORD}, body={_WORD}", line):
            repeats = _length(bodies.get(loop[1], ""))
            calls += [([loop[1]], repeats), ([loop[2]], repeats)]
        branches = re.findall(rf"(?:true|false)_computation={_WORD}", line)
        for names in re.findall(r"branch_computations=\{(.*?)\}", line):
            branches = re.findall(_WORD, names)
        if branches:
            calls.append((branches, None))
        for name in re.findall(rf"(?:to_apply|calls)={_WORD}", line):
            calls.append(([name], None))
        for names in re.findall(r"called_computations=\{(.*?)\}", line):
            calls += [([name], None) for name in re.findall(_WORD, names)]
    return calls


def _length(condition: str) -> int:
    """Return the number of passes of a loop that counts to a constant; 0 for others."""
    limits = re.findall(r"= s32\[\]\S* constant\((\d+)\)", condition)
    is_counter = re.search(r"compare\(.*direction=LT", condition)
    return int(limits[0]) if is_counter and len(limits) == 1 else 0


def _sent(
    made: re.Match[str], line: str, shape: Mapping[str, int], is_scatter: bool
) -> tuple[str, tuple[str, ...], float]:
    """Return the kind of a collective, its axes, and the bytes that a device sends.

    Args:
      made: where the line says it.
      line: the instruction.
      shape: the sizes of the mesh by axis.
      is_scatter: whether an all-reduce is done as a reduce-scatter.
    """
    kind, is_start = made[2], bool(made[3])
    group = _group(line, math.prod(shape.values()))
    num = len(group)
    size = sum(_bytes(*x) for x in re.findall(r"(\w+)\[([\d,]*)\]", made[1]))
    if is_start and kind == "all-gather":  # the result has the operand beside it
        size *= num / (num + 1)
    elif is_start and kind in ("all-to-all", "collective-permute"):
        size /= 2
    part = (num - 1) / num
    if is_scatter and kind == "all-reduce":  # the line has the size of the operand
        kind, size = "reduce-scatter", size / num
    factor = {
        "all-gather": part,
        "all-reduce": 2 * part,
        "reduce-scatter": num - 1,
        "all-to-all": part,
    }.get(kind, 1.0)
    where = np.array(np.unravel_index(group, tuple(shape.values())))
    varies = (where != where[:, :1]).any(axis=1)
    axes = tuple(axis for axis, does in zip(shape, varies, strict=True) if does)
    return kind, axes, size * factor


def _bytes(name: str, sizes: str) -> float:
    """Return the bytes of an array, from how a program writes its type."""
    bits = _BITS.get(name) or int((re.findall(r"\d+", name) or [0])[0])
    return bits / 8 * math.prod(int(x) for x in sizes.split(",") if x)


def _group(line: str, num_devices: int) -> list[int]:
    """Return the devices of the first group that takes part in a collective."""
    if pairs := re.search(r"source_target_pairs=\{\{(\d+),(\d+)\}", line):
        return [int(pairs[1]), int(pairs[2])]
    if listed := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return [int(x) for x in listed[1].split(",")]
    order = r"\[([\d,]+)\](?:T\(([\d,]+)\))?"
    if counted := re.search(rf"replica_groups=\[([\d,]+)\]<={order}", line):
        devices = _ordered(num_devices, counted[2], counted[3])
        return devices.reshape(_numbers(counted[1]))[0].tolist()
    named = re.search(
        rf"replica_groups=mesh\[(.*?)\](?:, device_ids=\({order}\))?\s*\{{(.*?)\}}",
        line,
    )
    if named:
        sizes = {x: int(n) for x, n in re.findall(r"'(\w+)'=(\d+)", named[1])}
        devices = _ordered(num_devices, named[2] or str(num_devices), named[3])
        used = re.findall(r"'(\w+)'", named[4])
        first = tuple(slice(None) if axis in used else 0 for axis in sizes)
        return devices.reshape([*sizes.values()])[first].ravel().tolist()
    return list(range(num_devices))


def _ordered(num_devices: int, shape: str, axes: str | None) -> np.ndarray:
    """Return all devices, counted along the axes of a shape in another order."""
    devices = np.arange(num_devices).reshape(_numbers(shape))
    return devices.transpose(_numbers(axes)) if axes else devices


def _numbers(text: str) -> list[int]:
    return [int(x) for x in text.split(",")]
