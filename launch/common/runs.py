"""What a run stores of its model besides the checkpoints, and how they are read."""

import contextlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from launch.common import config
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from openagent_jax import optim
from openagent_jax.algorithms import ppo
from openagent_jax.checkpoint import Checkpoints, digest
from openagent_jax.environments.world import World
from openagent_jax.interop import chat_template
from openagent_jax.models import hf, hf_folder
from openagent_jax.types import Params

STAGE = "stage"  # key in the manifest: see `stage`
# Key in the manifest, and in the report of a model that is evaluated as it is.
CONFIG_HASH = "config_hash"
WORLD = "world"  # key in the manifest: see `world_digest`
EARLIER = "earlier"  # key in the manifest: see `earlier`
# Keys that may change when a run is continued: they do not affect what is learned.
MAY_CHANGE = ("compile_cache", "mesh.", "checkpoint.", "train.log_every", "data.num_")
MAY_CHANGE += ("eval.keep", "train.num_ahead", "profile.")
LOCK = "lock"  # file in a workdir that its run locks
FROZEN = "frozen"  # key in the meta of a checkpoint: digests of what it leaves out


def save_model(folder: Path, model: Backbone) -> None:
    """Write what restoring needs besides weights: config, tokenizer and template."""
    with hf_folder.atomic_folder(folder) as made:
        hf.save_config(made, model.config)
        hf_folder.copy_auxiliary_files(model.folder, made)
        (made / chat_template.FILE).unlink(missing_ok=True)
        if model.template:
            (made / chat_template.FILE).write_text(model.template, "utf-8")


@contextlib.contextmanager
def lock(workdir: Path) -> Iterator[None]:
    """Keep other processes from training in a workdir, which is made if it is missing.

    The lock ends with the process, however that ends.

    Raises:
      UsageError: another process trains there.
    """
    import fcntl  # not on Windows

    workdir.mkdir(parents=True, exist_ok=True)
    with open(workdir / LOCK, "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(
                f"{workdir} is in use by {file.read().strip() or 'another process'}; "
                "wait for it, or use another --workdir"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield


def ended(workdir: Path) -> int | None:
    """Return the last step of a run that has ended; None for any other."""
    try:
        return manifest(workdir)["ended"]["step"]
    except (KeyError, TypeError):
        return None


def manifest(workdir: Path) -> dict[str, Any]:
    """Return the manifest of the run in a workdir; empty if there is none to read."""
    try:
        return dict(json.loads((workdir / "manifest.json").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def earlier(workdir: Path, now: Iterable[str]) -> list[dict[str, Any]]:
    """Return what the earlier parts of a run were made with, in their order.

    Args:
      workdir: the workdir of the run.
      now: the keys of `origin.origin`.
    """
    old = manifest(workdir)
    last = {key: old[key] for key in now if key in old}
    return [*old.get(EARLIER, []), *([last] if last else [])]


def world_digest(world: World) -> str:
    """Return a digest of what the tasks of a world and their texts are made from."""
    style = world.tables.lexicon.style_digest
    return f"{digest(world.tables)} {style}"


def check_world(workdir: Path, found: str) -> None:
    """Refuse to continue a run whose tasks would no longer be those of its beginning.

    Args:
      workdir: the workdir of the run.
      found: the digest of the world that it would be continued in.

    Raises:
      UsageError: a file that the config names has changed, or the code has.
    """
    expected = manifest(workdir).get(WORLD)
    if expected not in (None, found):
        raise UsageError(
            f"{workdir}: what its tasks are made from has changed since it began (a "
            "domain file, a log, a chat template, a tokenizer, or the code); restore "
            "it, or start a new run with init_from and another --workdir"
        )


def check_same(workdir: Path, c: Config) -> None:
    """Refuse a workdir that holds a run of another config.

    Keys that did not exist when the run was made have their defaults.

    Raises:
      UsageError: it does, or the stored config cannot be read.
    """
    stored = config.stored(workdir)
    if stored is None:
        return
    old, new = (
        json.loads(json.dumps(values))  # where tuples are lists
        for values in (config.defaults() | config.flat(stored), config.flat(c))
    )
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not key.startswith(MAY_CHANGE):
            raise UsageError(
                f"{workdir} holds a run of another config ({key} is {old.get(key)} "
                f"there, {new.get(key)} here); use another --workdir, or delete that "
                "folder"
            )


def stage(workdir: Path) -> int:
    """Return the place of a run in its chain: the number of runs before it.

    It is in the manifest of the run. For a run of an earlier version, the chain is
    followed back by `init_from`, as far as its folders are still there.

    Raises:
      UsageError: the config of the run cannot be read.
    """
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(manifest(workdir)[STAGE])
    before = Path((config.stored(workdir) or {}).get("init_from", "")).expanduser()
    return stage(before) + 1 if (before / "checkpoints").is_dir() else 0


def seed(workdir: Path) -> int | None:
    """Return the seed of the run in a workdir; None if it holds no run."""
    return manifest(workdir).get("seed")


def digests(frozen: Params) -> dict[str, str | None]:
    """Return a digest of each branch that a checkpoint leaves out."""
    return {name: digest(branch) for name, branch in frozen.items()}


def check_frozen(
    workdir: Path, ours: dict[str, str | None], meta: dict[str, Any]
) -> None:
    """Check that adapters are used with the weights that they were trained with.

    Args:
      workdir: workdir of the run, for the error message.
      ours: digests of the weights that were found.
      meta: meta of the checkpoint, with the digests at the time of training.

    Raises:
      UsageError: the weights have changed.
    """
    for name, found in ours.items():
        expected = meta.get(FROZEN, {}).get(name)
        if expected and found and expected != found:
            raise UsageError(
                f'{workdir}: its adapters were trained with a "{name}" other than '
                "the one found now; restore the model that its config.json names"
            )


def read_params(folder: Path, which: str, abstract: Any) -> tuple[Params, int, dict]:
    """Read the parameters of one checkpoint, their step and its meta.

    Args:
      folder: the `checkpoints` of a run.
      which: "latest", "best", or a step.
      abstract: shapes, dtypes and shardings of the parameters.

    Raises:
      UsageError: there is no such step.
    """
    with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
        try:
            return checkpoints.restore_params(
                abstract,
                int(which) if which.isdecimal() else which,
                without=(ppo.VALUE, optim.REFERENCE),
            )
        except FileNotFoundError:
            raise UsageError(
                f"{folder} has no step {which}; it has {checkpoints.steps()}"
            ) from None
