"""Checkpoints: written in the background, checked when read, last and best kept.

Orbax commits a step by renaming its finished folder: no killed save looks like a
checkpoint. But it reads altered bytes without a word. So a step is two items: the
arrays in `state`, and in `record` a JSON of the SHA-256 of every leaf, the metrics and
the caller's `meta`, under a SHA-256 of its own.

Digests of leaves inside the step, not of files beside it: taken from the live arrays
they cover the writing too, one rename commits both, and any sharding gives the same.
They hold up `save` by 0.1 s per 100 MB. A leaf that no single host holds has none.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils

Json = dict[str, Any]
Restored = tuple[Any, int, Json]  # a tree, its step, its meta
_log = logging.getLogger(__name__)
# Orbax logs pages of traceback for each error that we raise or report in one line.
for _name in ("absl", "asyncio"):
    logging.getLogger(_name).addFilter(
        lambda r: not (r.exc_info and "orbax" in f"{r.pathname} {r.getMessage()}")
    )


class Damaged(RuntimeError):
    """No checkpoint can be trusted."""


@dataclass(eq=False)
class Checkpoints:
    """The checkpoints of one run, in `folder/<step>/`.

    Keeps the last `keep_last` steps (two: one to fall back on; 0: all) and the best by
    `best_metric` of those saved with it. The one writer removes what a killed save left
    behind: to read beside a running one, open with `read_only=True`.
    """

    folder: str | os.PathLike
    keep_last: int = 2
    best_metric: str | None = None
    best_mode: str = "max"  # or "min"
    read_only: bool = False

    def __post_init__(self):
        if "://" not in str(self.folder):
            self.folder = os.path.abspath(self.folder)
        self._sign = {"max": 1, "min": -1}[self.best_mode]
        self._saving, self._passed_over = -1, []  # steps
        # Without Orbax's own metrics: it would delete the newest step when its metric
        # is poor, and could not open a folder with a damaged metrics file.
        options = ocp.CheckpointManagerOptions(
            create=not self.read_only, preservation_policy=self
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options)
        self._remove_unfinished()
        self._metrics: dict[int, Json] = {}
        for step in self.steps():
            with contextlib.suppress(Damaged):  # reported if it is ever asked for
                self._metrics[step] = self._read_record(step)["metrics"]

    def steps(self) -> list[int]:
        """Committed steps; whether one is damaged shows only when it is restored."""
        self.wait()
        return sorted(self._manager.all_steps())

    def latest_step(self) -> int | None:
        return max(self.steps(), default=None)

    def save(self, step: int, state: Any, metrics: Json, meta: Json) -> None:
        """Starts to save, unless `step` is there already; `state` may be donated.

        OSError if it cannot start, or if the save before could not be committed.
        """
        if self.read_only:
            raise ValueError(f"{self.folder} was opened read-only")
        while self._passed_over:  # else they would count among the last
            self._manager.delete(self._passed_over.pop())
        if step in self.steps():
            return
        if step < (self.latest_step() or 0):
            raise ValueError(f"{self.folder} has a later step than {step}")
        record = {
            "step": int(step),
            "metrics": {name: float(value) for name, value in metrics.items()},
            "meta": meta,
            "arrays": _specs(state),
            "sha256s": {name: _digest(leaf) for name, leaf in _named(state).items()},
        }
        record = json.loads(json.dumps(record))  # as it will be read
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(state),
            record=ocp.args.JsonSave(record | {"sha256": _seal(record)}),
        )
        self._saving, self._metrics[step] = step, record["metrics"]
        with self._failing_clearly():
            self._manager.save(step, args=items, force=True)

    def restore(self, abstract: Any) -> Restored:
        """The newest good state; a warning for each damaged one on the way.

        Leaves of `abstract` are arrays or `jax.ShapeDtypeStruct`s and set the shardings
        (None: the first device). Other leaves, shapes or dtypes: ValueError.
        """
        steps = self.steps()[::-1]
        state, step, meta = self._first_good(steps, abstract)
        self._passed_over = steps[: steps.index(step)]
        return state, step, meta

    def restore_params(
        self,
        abstract: Any,
        which: int | str = "latest",
        without: Collection[str] = (),
    ) -> Restored:
        """The same for `params` alone; `which`: "latest", "best" or one step. Branches
        of the parameters that are named in `without` may be there, and are left."""
        last, best = self.steps()[::-1], self._best_first(self.steps())
        choice: dict[int | str, list[int]] = {"latest": last, "best": best}
        steps = choice.get(which, [s for s in last if s == which])
        left = {f"params.{name}" for name in without}
        found, step, meta = self._first_good(steps, {"params": abstract}, left)
        return found["params"], step, meta

    def wait(self) -> None:
        """Returns when the last save is committed; OSError if it could not be."""
        with self._failing_clearly():
            self._manager.wait_until_finished()

    def close(self) -> None:
        with contextlib.closing(self._manager):
            self.wait()

    def should_preserve(self, checkpoints: Any, *, context: Any):
        """Orbax asks which of its `checkpoints` to keep."""
        steps = sorted(info.step for info in checkpoints)
        keep = {*steps[-self.keep_last :], *self._best_first(steps)[:1]}
        return [info.step in keep for info in checkpoints]

    def _best_first(self, steps: list[int]) -> list[int]:
        values = {
            s: self._metrics.get(s, {}).get(self.best_metric or "") for s in steps
        }
        scores = {s: v * self._sign for s, v in values.items() if v is not None}
        ranked = [(score, s) for s, score in scores.items() if not math.isnan(score)]
        return [step for _, step in sorted(ranked, reverse=True)]

    def _first_good(
        self, steps: list[int], abstract: Any, without: Any = None
    ) -> Restored:
        problems = []
        for step in steps:
            try:
                found, problem = self._load(step, abstract, without), None
            except Damaged as damage:
                found, problem = None, damage
            good = np.array(found is not None)
            if multihost_utils.process_allgather(good).all() and found:
                return found
            problems.append(f"{self.folder}/{step}: {problem or 'bad on another host'}")
            _log.warning("checkpoint passed over, %s", problems[-1])
        if not problems:
            raise FileNotFoundError(f"no such checkpoint in {self.folder}")
        raise Damaged("no good checkpoint: " + "; ".join(problems))

    def _load(self, step: int, abstract: Any, without: Any = None) -> Restored:
        record = self._read_record(step)
        _check_same(f"{self.folder}/{step}", record["arrays"], abstract, without)
        shardings = jax.tree.map(_restore_args, abstract)
        args = ocp.args.PyTreeRestore(
            abstract, shardings, partial_restore=without is not None
        )
        try:  # without the manager: its barriers hang the hosts that read it well
            path = self._manager.directory / str(step) / "state"
            state = ocp.PyTreeCheckpointHandler().restore(path, args=args)
        except Exception as error:  # Orbax and TensorStore raise nearly anything
            raise Damaged(_one_line(error)) from error
        for name, leaf in _named(state).items():
            if len({record["sha256s"][name], _digest(leaf)} - {None}) > 1:
                raise Damaged(f"{name} is not what was saved")
        return state, step, record["meta"]

    def _read_record(self, step: int) -> Json:
        try:
            path = self._manager.directory / str(step) / "record" / "metadata"
            record = json.loads(path.read_text())
            if record.pop("sha256") != _seal(record) or record["step"] != step:
                raise ValueError("not what was saved")
        except Exception as error:
            raise Damaged(f"its record: {_one_line(error)}") from error
        return record

    def _remove_unfinished(self) -> None:
        if self.read_only or jax.process_index() != 0:
            return
        for path in self._manager.directory.glob("*.orbax-checkpoint-tmp*"):
            _log.warning("removed %s, which a save left unfinished", path)
            path.rmtree()

    @contextlib.contextmanager
    def _failing_clearly(self):
        try:
            yield
        except Exception as error:
            with contextlib.suppress(OSError):  # some threads of Orbax still write
                self._remove_unfinished()
            self._manager.reload()
            where = f"{self.folder}/{self._saving}"
            raise OSError(f"{where} not saved: {_one_line(error)}") from error


def digest(tree: Any) -> str | None:
    """One for all leaves; None if this host has not all of them."""
    digests = {name: _digest(leaf) for name, leaf in _named(tree).items()}
    return None if None in digests.values() else _seal(digests)


def _named(tree: Any) -> dict[str, Any]:
    """Leaves by name, such as `opt_state.0.mu.dense.kernel`."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(k, simple=True, separator="."): x for k, x in leaves}


def _specs(tree: Any) -> dict[str, str]:
    return {k: f"{x.dtype}{list(x.shape)}" for k, x in _named(tree).items()}


def _check_same(where: str, saved: Json, abstract: Any, without: Any) -> None:
    """Of what is left out, `without` names branches; None if all is wanted."""
    wanted = _specs(abstract)
    for name in sorted({*saved, *wanted}):
        there, here = saved.get(name, "absent"), wanted.get(name, "absent")
        left = without is not None and (
            name.split(".")[0] not in abstract
            or ".".join(name.split(".")[:2]) in without
        )
        if there != here and not left:
            raise ValueError(f"{where}: {name} is {there} there, {here} was asked for")


def _digest(leaf: jax.Array) -> str | None:
    """SHA-256 of dtype, shape and C-order bytes; None if this host has not them all."""
    digest = hashlib.sha256(f"{leaf.dtype}{leaf.shape}".encode())
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return None
    digest.update(np.ascontiguousarray(leaf).view(np.uint8).data)
    return digest.hexdigest()


def _seal(record: Json) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _restore_args(leaf: Any) -> ocp.ArrayRestoreArgs:
    alone = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    sharding = leaf.sharding or alone
    sharding.shard_shape(leaf.shape)  # if it does not divide, ValueError: no damage
    return ocp.ArrayRestoreArgs(sharding=sharding)


def _one_line(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 300 else f"{text[:180]} ... {text[-100:]}"
