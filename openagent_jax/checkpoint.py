"""Checkpoints: written in the background and verified when they are restored.

Orbax commits a step by renaming its finished folder, so a killed save never looks like
a checkpoint. But Orbax reads corrupt bytes without an error. Therefore a step has two
items: `state` holds the arrays, and `record` is a JSON file of the SHA-256 of every
leaf, the metrics and the caller's `meta`, with a SHA-256 of its own.

Digests are taken of leaves, not of files, and are stored within the step. So they cover
the writing too, one rename commits arrays and digests together, and they do not depend
on the sharding. They delay `save` by 0.1 s per 100 MB. A leaf that is spread over
several hosts has no digest, as no host holds all of it.
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
Restored = tuple[Any, int, Json]  # the pytree, its step, its meta
_log = logging.getLogger(__name__)
# Orbax logs a long traceback for each error that we raise or report in one line.
for _name in ("absl", "asyncio"):
    logging.getLogger(_name).addFilter(
        lambda r: not (r.exc_info and "orbax" in f"{r.pathname} {r.getMessage()}")
    )


class CorruptCheckpointError(RuntimeError):
    """Every checkpoint that could be restored is corrupt."""


@dataclass(eq=False)
class Checkpoints:
    """The checkpoints of one run, in `folder/<step>/`.

    A folder has one writer at a time, which removes what a killed save left behind.
    Processes that read the folder of a running writer pass `read_only=True`.

    Attributes:
      folder: where the checkpoints are; it is created unless `read_only`.
      keep_last: how many of the last steps are kept. The default keeps one to fall back
        on; 0 keeps all.
      best_metric: name of a metric. Of the steps that were saved with it, the best one
        is kept too.
      best_mode: "max" or "min".
      read_only: whether `save` is forbidden and nothing is removed.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> checkpoints = Checkpoints(folder.name)
    >>> state = {"params": jax.numpy.arange(3)}
    >>> checkpoints.save(7, state, metrics={}, meta={"seed": 1})
    >>> restored, step, meta = checkpoints.restore(jax.eval_shape(lambda: state))
    >>> restored["params"].tolist(), step, meta
    ([0, 1, 2], 7, {'seed': 1})
    >>> checkpoints.close()
    >>> folder.cleanup()
    """

    folder: str | os.PathLike
    keep_last: int = 2
    best_metric: str | None = None
    best_mode: str = "max"
    read_only: bool = False

    def __post_init__(self):
        if "://" not in str(self.folder):
            self.folder = os.path.abspath(self.folder)
        self._sign = {"max": 1, "min": -1}[self.best_mode]
        self._saving = -1  # the step that was saved last
        self._skipped: list[int] = []  # steps that a restore found to be corrupt
        # Orbax's own metrics are not used: it would delete the newest step when its
        # metric is poor, and could not open a folder with a corrupt metrics file.
        options = ocp.CheckpointManagerOptions(
            create=not self.read_only, preservation_policy=self
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options)
        self._remove_unfinished()
        self._metrics: dict[int, Json] = {}
        for step in self.steps():
            with contextlib.suppress(CorruptCheckpointError):  # reported by restore
                self._metrics[step] = self._read_record(step)["metrics"]

    def steps(self) -> list[int]:
        """Return the committed steps, in increasing order.

        A corrupt step is among them: that shows only when it is restored.
        """
        self.wait()
        return sorted(self._manager.all_steps())

    def latest_step(self) -> int | None:
        """Return the last committed step, or None if there is none."""
        return max(self.steps(), default=None)

    def save(self, step: int, state: Any, metrics: Json, meta: Json) -> None:
        """Start to save a step in the background, unless it exists already.

        The arrays are copied before this method returns, so `state` may be donated.

        Args:
          step: the step.
          state: a pytree of arrays.
          metrics: numbers by name; `best_metric` is looked up here.
          meta: anything that JSON can hold, returned by `restore`.

        Raises:
          OSError: the save could not be started, or the save before it could not be
            committed.
          ValueError: the folder was opened with `read_only=True`, or has a later step.
        """
        if self.read_only:
            raise ValueError(f"{self.folder} was opened read-only")
        while self._skipped:  # they would count among the last `keep_last` steps
            self._manager.delete(self._skipped.pop())
        if step in self.steps():
            return
        if step < (self.latest_step() or 0):
            raise ValueError(f"{self.folder} has a later step than {step}")
        record = {
            "step": int(step),
            "metrics": {name: float(value) for name, value in metrics.items()},
            "meta": meta,
            "arrays": _specs(state),
            "sha256s": {k: _digest(leaf) for k, leaf in _leaves_by_name(state).items()},
        }
        record = json.loads(json.dumps(record))  # as `_read_record` will see it
        items = ocp.args.Composite(
            state=ocp.args.PyTreeSave(state),
            record=ocp.args.JsonSave(record | {"sha256": _json_digest(record)}),
        )
        self._saving, self._metrics[step] = step, record["metrics"]
        with self._reporting_failure():
            self._manager.save(step, args=items, force=True)

    def restore(self, abstract: Any) -> Restored:
        """Restore the newest state that is not corrupt.

        A warning is logged for each corrupt step that is skipped.

        Args:
          abstract: a pytree of arrays or `jax.ShapeDtypeStruct`s with the leaves,
            shapes and dtypes of the saved state. Its shardings are those of the
            result; a leaf without a sharding is put on the first device.

        Returns:
          The state, its step and its meta.

        Raises:
          CorruptCheckpointError: all steps are corrupt.
          FileNotFoundError: there is no checkpoint.
          ValueError: the saved state has other leaves, shapes or dtypes than
            `abstract`.
        """
        steps = self.steps()[::-1]
        state, step, meta = self._first_intact(steps, abstract)
        self._skipped = steps[: steps.index(step)]
        return state, step, meta

    def restore_params(
        self,
        abstract: Any,
        which: int | str = "latest",
        without: Collection[str] = (),
    ) -> Restored:
        """Restore the branch `params` of a state alone.

        Args:
          abstract: the parameters, as in `restore`.
          which: "latest", "best", or one step. With "latest" and "best", corrupt steps
            are skipped in favour of the next latest or next best one.
          without: names of branches of the saved parameters that are left out where
            they exist.

        Returns:
          The parameters, their step and its meta.

        Raises:
          CorruptCheckpointError, FileNotFoundError, ValueError: see `restore`.
        """
        latest, best = self.steps()[::-1], self._best_first(self.steps())
        choices: dict[int | str, list[int]] = {"latest": latest, "best": best}
        steps = choices.get(which, [step for step in latest if step == which])
        excluded = {f"params.{name}" for name in without}
        state, step, meta = self._first_intact(steps, {"params": abstract}, excluded)
        return state["params"], step, meta

    def wait(self) -> None:
        """Wait until the last save is committed.

        Raises:
          OSError: it could not be.
        """
        with self._reporting_failure():
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Wait for the last save and release the folder."""
        with contextlib.closing(self._manager):
            self.wait()

    def should_preserve(self, checkpoints: Any, *, context: Any):
        """Tell Orbax which of its `checkpoints` to keep (its `PreservationPolicy`)."""
        steps = sorted(info.step for info in checkpoints)
        keep = {*steps[-self.keep_last :], *self._best_first(steps)[:1]}
        return [info.step in keep for info in checkpoints]

    def _best_first(self, steps: list[int]) -> list[int]:
        """Return the steps that have the metric, the best one first."""
        values = {
            step: self._metrics.get(step, {}).get(self.best_metric or "")
            for step in steps
        }
        ranked = [
            (value * self._sign, step)
            for step, value in values.items()
            if value is not None and not math.isnan(value)
        ]
        return [step for _, step in sorted(ranked, reverse=True)]

    def _first_intact(
        self, steps: list[int], abstract: Any, excluded: Collection[str] | None = None
    ) -> Restored:
        """Restore the first of these steps that is intact on every host."""
        problems = []
        for step in steps:
            try:
                restored, problem = self._load(step, abstract, excluded), None
            except CorruptCheckpointError as error:
                restored, problem = None, error
            intact = np.array(restored is not None)
            if multihost_utils.process_allgather(intact).all() and restored:
                return restored
            problem = problem or "corrupt on another host"
            problems.append(f"{self.folder}/{step}: {problem}")
            _log.warning("skipped a corrupt checkpoint, %s", problems[-1])
        if not problems:
            raise FileNotFoundError(f"no such checkpoint in {self.folder}")
        raise CorruptCheckpointError("no intact checkpoint: " + "; ".join(problems))

    def _load(
        self, step: int, abstract: Any, excluded: Collection[str] | None = None
    ) -> Restored:
        """Restore one step; `excluded` is explained at `_check_same`."""
        record = self._read_record(step)
        _check_same(f"{self.folder}/{step}", record["arrays"], abstract, excluded)
        shardings = jax.tree.map(_restore_args, abstract)
        args = ocp.args.PyTreeRestore(
            abstract, shardings, partial_restore=excluded is not None
        )
        # Not through the manager: its barriers would hang the hosts that can read the
        # step when another host cannot.
        try:
            path = self._manager.directory / str(step) / "state"
            state = ocp.PyTreeCheckpointHandler().restore(path, args=args)
        except Exception as error:  # Orbax and TensorStore raise nearly anything
            raise CorruptCheckpointError(_one_line(error)) from error
        for name, leaf in _leaves_by_name(state).items():
            if len({record["sha256s"][name], _digest(leaf)} - {None}) > 1:
                raise CorruptCheckpointError(f"{name} differs from what was saved")
        return state, step, record["meta"]

    def _read_record(self, step: int) -> Json:
        """Read the record of a step and verify its digest."""
        try:
            path = self._manager.directory / str(step) / "record" / "metadata"
            record = json.loads(path.read_text())
            if record.pop("sha256") != _json_digest(record) or record["step"] != step:
                raise ValueError("it differs from what was saved")
        except Exception as error:
            raise CorruptCheckpointError(f"its record: {_one_line(error)}") from error
        return record

    def _remove_unfinished(self) -> None:
        """Remove the temporary folders of saves that did not finish."""
        if self.read_only or jax.process_index() != 0:
            return
        for path in self._manager.directory.glob("*.orbax-checkpoint-tmp*"):
            _log.warning("removed %s, left behind by an unfinished save", path)
            path.rmtree()

    @contextlib.contextmanager
    def _reporting_failure(self):
        """Turn a failed save into an `OSError` of one line, and clean up after it."""
        try:
            yield
        except Exception as error:
            with contextlib.suppress(OSError):  # threads of Orbax may still be writing
                self._remove_unfinished()
            self._manager.reload()
            where = f"{self.folder}/{self._saving}"
            raise OSError(f"{where} not saved: {_one_line(error)}") from error


def digest(tree: Any) -> str | None:
    """Return one SHA-256 of all leaves of a pytree, as a hexadecimal string.

    It covers names, shapes, dtypes and values, and does not depend on shardings. It is
    None if this host does not hold all of some leaf.

    >>> zeros, ones = jax.numpy.zeros(2), jax.numpy.ones(2)
    >>> digest({"x": zeros}) == digest({"x": zeros})
    True
    >>> digest({"x": zeros}) == digest({"x": ones})
    False
    """
    digests = {name: _digest(leaf) for name, leaf in _leaves_by_name(tree).items()}
    return None if None in digests.values() else _json_digest(digests)


def _leaves_by_name(tree: Any) -> dict[str, Any]:
    """Return the leaves by name, such as `opt_state.0.mu.dense.kernel`."""
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(k, simple=True, separator="."): x for k, x in leaves}


def _specs(tree: Any) -> dict[str, str]:
    """Return the dtype and shape of each leaf by name, as text."""
    return {k: f"{x.dtype}{list(x.shape)}" for k, x in _leaves_by_name(tree).items()}


def _check_same(
    where: str, saved: Json, abstract: Any, excluded: Collection[str] | None
) -> None:
    """Check that the saved leaves are the requested ones.

    Args:
      where: the step, for the message.
      saved: the `_specs` of the saved state.
      abstract: the requested state.
      excluded: None if the whole saved state is requested. Otherwise top-level branches
        that are not in `abstract`, and branches of the form "params.name" named here,
        may be left out.

    Raises:
      ValueError: leaves, shapes or dtypes differ.
    """
    requested = _specs(abstract)
    for name in sorted({*saved, *requested}):
        old, new = saved.get(name, "absent"), requested.get(name, "absent")
        is_excluded = excluded is not None and (
            name.split(".")[0] not in abstract
            or ".".join(name.split(".")[:2]) in excluded
        )
        if old != new and not is_excluded:
            raise ValueError(
                f"{where}: {name} is {old} in the checkpoint, but {new} was requested"
            )


def _digest(leaf: jax.Array) -> str | None:
    """Return the SHA-256 of the dtype, the shape and the bytes in C order.

    It is None if this host does not hold all of the array.
    """
    digest = hashlib.sha256(f"{leaf.dtype}{leaf.shape}".encode())
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return None
    digest.update(np.ascontiguousarray(leaf).view(np.uint8).data)
    return digest.hexdigest()


def _json_digest(value: Json) -> str:
    """Return the SHA-256 of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def _restore_args(leaf: Any) -> ocp.ArrayRestoreArgs:
    """Return how Orbax restores a leaf.

    Raises:
      ValueError: the sharding does not divide the shape. Raised here, it is not taken
        for a corrupt checkpoint.
    """
    first_device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    sharding = leaf.sharding or first_device
    sharding.shard_shape(leaf.shape)
    return ocp.ArrayRestoreArgs(sharding=sharding)


def _one_line(error: Exception) -> str:
    """Return the type and the text of an error on one line, shortened if it is long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) < 300 else f"{text[:180]} ... {text[-100:]}"
