"""Keep sampled goals in files, since sampling those of 26 domains takes minutes.

The name of a file is a hash of everything that goals depend on: the domain, the limits,
the number and the seed, and the source of the modules that read domains and sample
goals, or that these use. So a file is never out of date.
"""

import contextlib
import functools
import gzip
import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from openagent_jax.domains.domain_spec import Condition, DomainSpec, GoalSpec
from openagent_jax.domains.limits import Limits


def remembered(
    folder: str | None,
    sample: Callable[[DomainSpec, Limits, int, int], tuple[GoalSpec, ...]],
    spec: DomainSpec,
    limits: Limits,
    num: int,
    seed: int,
) -> tuple[GoalSpec, ...]:
    """Return sampled goals, from a file if they have been sampled before.

    Args:
      folder: where the files are; None or "" for no files. There are none either if it
        is in a cloud storage, such as `gs://bucket/folder`, which JAX can write to.
      sample: samples goals; see `goal_sampling.sample_goals`, also for the others.
      spec: the domain.
      limits: the limits of its goals.
      num: how many goals to sample.
      seed: the goals are a function of it.
    """
    if not folder or "://" in folder or num == 0:
        return sample(spec, limits, num, seed)
    given = repr((spec, limits, num, seed)).encode()
    name = hashlib.sha256(_sources() + given).hexdigest()[:32]
    file = Path(folder) / "goals" / f"{name}.json.gz"
    try:
        return tuple(map(_goal, json.loads(gzip.decompress(file.read_bytes()))))
    except (
        OSError,
        ValueError,
        EOFError,
        zlib.error,
    ):  # there is none, or it is damaged
        goals = sample(spec, limits, num, seed)
        _write(file, goals)
        return goals


@functools.cache
def _sources() -> bytes:
    """Return a hash of the source code of the packages that goals depend on."""
    domains = Path(__file__).parent.parent
    folders = domains, domains.with_name("text")
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    texts = [file.read_bytes() for file in files]
    return hashlib.sha256(b"\0".join(texts)).digest()


def _write(file: Path, goals: Sequence[GoalSpec]) -> None:
    """Write goals atomically, so that no other process sees a partial file; do nothing
    if the folder cannot be written to."""
    text = json.dumps([asdict(goal) for goal in goals])
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        # Removed with what is in it, also if the disk is full.
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            made.write_bytes(gzip.compress(text.encode(), 1, mtime=0))
            os.replace(made, file)


def _goal(item: dict[str, Any]) -> GoalSpec:
    return GoalSpec(
        item["name"],
        tuple((slot, kind) for slot, kind in item["constants"]),
        tuple((tool, arguments) for tool, arguments in item["steps"]),
        item["answer"],
        {pool: tuple(texts) for pool, texts in item["phrases"].items()},
        {int(step): Condition(*when) for step, when in item["conditions"].items()},
    )
