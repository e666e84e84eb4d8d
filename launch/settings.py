"""What a config says: checked, stored, and turned into the small parts.

What is wrong with a config is found here, before anything is compiled or written. This
file, `backbones` and `build` alone read a ConfigDict.
"""

import contextlib
import dataclasses
import difflib
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from jax.sharding import Mesh
from ml_collections import ConfigDict

from configs import base
from launch.cli import BadUse
from openagent_jax import (
    advantages,
    losses,
    monitors,
    optim,
    perturb,
    rewards,
    rollout,
    sharding,
    worlds,
)
from openagent_jax.algorithms import grpo, paft
from openagent_jax.models import lora
from openagent_jax.sandbox import domain, domain_file, logs
from openagent_jax.types import Limits

ALGORITHMS = ("sft", "grpo", "ppo")
SHARES = ("paft.alpha", "paft.strength", "optim.end_factor", "eval.strength")
MAY_BE_ZERO = (
    "seed",
    "optim.warmup_steps",
    "paft.ramp_steps",
    "train.max_tokens",
    "eval.every",
    "eval.seed",
    "model.look_back_heads",
    "algorithm.num_rows",
    "model.lora.rank",
    "checkpoint.keep_last",
)


def check(c: ConfigDict) -> None:
    """What cannot work, whatever the machine. All numbers are checked here.

    Raises:
      BadUse: names the key and the remedy.
    """
    for key, value in flat(c.to_dict()).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        low = 0 if isinstance(value, float) or key in MAY_BE_ZERO else 1
        low = -1 if key.startswith("mesh.") else low
        high = 1 if key in SHARES else 2**31 - 1
        low = -high if key.startswith("reward.") else low
        if not low <= value <= high:
            raise BadUse(f"{key}={value} is not a number from {low} to {high}")
    known("algorithm.name", [c.algorithm.name], ALGORITHMS)
    known("eval.split", [c.eval.split], domain.SPLITS)
    known("eval.scenarios", c.eval.scenarios, perturb.CATALOGUE)
    known("monitor.stop", c.monitor.stop, monitors.MONITORS)
    known("paft.perturbations", c.paft.perturbations, perturb.CATALOGUE)
    for name in c.paft.perturbations:
        if perturb.CATALOGUE[name].family != "train":
            raise BadUse(
                f'paft.perturbations: "{name}" is held out for evaluation; remove it'
            )
    if c.paft.alpha and not c.paft.perturbations:
        raise BadUse("paft.perturbations is empty; name some, or set paft.alpha=0")
    if c.paft.alpha and c.sandbox.domain == worlds.RANDOM:
        raise BadUse('paft.alpha needs a domain; sandbox.domain is "random"')
    if c.train.shuffle_vectors and c.sandbox.domain != worlds.RANDOM:
        raise BadUse(
            f'train.shuffle_vectors is for random words; sandbox.domain is "'
            f'{c.sandbox.domain}"'
        )
    if c.sandbox.min_visible > c.sandbox.num_visible:
        raise BadUse(
            f"sandbox.min_visible={c.sandbox.min_visible} is more than "
            f"sandbox.num_visible={c.sandbox.num_visible}"
        )
    least = c.sandbox.prompt_tokens + c.sandbox.action_tokens + c.sandbox.result_tokens
    if c.sandbox.context_tokens < least:
        raise BadUse(
            f"sandbox.context_tokens={c.sandbox.context_tokens} has no room for a "
            f"prompt, an action and a result: {least} tokens"
        )
    if c.eval.scenarios and eval_domain(c) == worlds.RANDOM:
        raise BadUse('eval.scenarios must be () where the domain is "random"')
    if adapters(c) and c.optim.train_embedding:
        raise BadUse(
            "optim.train_embedding=True needs model.lora.rank=0: else adapters alone "
            "are trained"
        )
    for key, name in (
        ("sandbox.domain", c.sandbox.domain),
        ("sandbox.transfer", c.sandbox.transfer),
        ("eval.domain", eval_domain(c)),
    ):
        if name != worlds.RANDOM:
            with blamed_on(key):
                if logs.is_log(name):
                    logs.load(name, room(c)).checked()
                else:
                    domain_file.load(name, limits(c))
    with blamed_on("optim"):
        optimizer(c)
    known("surrogate.loss", [c.surrogate.loss], losses.NORMALISERS)
    known("surrogate.normaliser", [c.surrogate.normaliser], ["", *losses.DIVISORS])
    known("grpo.std", [c.grpo.std], advantages.STD_OVER)
    if c.data.path:
        _check_stored(c)
    if c.algorithm.num_rows:
        _check_packing(c)
    if c.algorithm.name != "sft":
        with blamed_on("reward"):
            rewards.check({name: weight for name, weight in c.reward.items() if weight})
    if c.algorithm.name == "grpo":
        with blamed_on("grpo"):
            grpo.check(grpo.Groups(**c.grpo), c.train.batch_size)
    if c.paft.alpha:
        with blamed_on("paft"):
            paft.check(c.paft.alpha, c.paft.twins)
    if c.grpo.twins and not c.paft.twins:
        raise BadUse("grpo.twins=True needs paft.twins=True and paft.alpha=0.5")


def check_apart(c: ConfigDict) -> None:
    """Demonstrations are to be made one by one."""
    if c.paft.alpha and c.paft.twins:
        raise BadUse("paft.twins=True is for batches; set it to False")


def mesh(c: ConfigDict, devices: Sequence[Any] | None = None) -> Mesh:
    """The devices (all, if not given), laid out; the batch fits on them."""
    rows, parts = num_rows(c), c.train.num_minibatches * c.train.num_micro_batches
    what = "train.batch_size"
    if c.algorithm.num_rows:
        what = "algorithm.num_rows"
    elif rows > c.train.batch_size:
        what += " * grpo.size"
    keys = [f"train.num_{name}" for name in ("minibatches", "micro_batches")]
    keys = [key for key in keys if c[key] > 1]
    if rows % parts:
        divisors = " * ".join(f"{key}={c[key]}" for key in keys)
        raise BadUse(f"{divisors} does not divide {what}={rows}")
    with blamed_on("mesh"):
        made = sharding.make_mesh(**c.mesh, devices=devices)
        sharding.check_batch_size(made, rows, what)
        sharding.check_batch_size(made, rows // parts, " / ".join([what, *keys]))
    return made


def eval_domain(c: ConfigDict) -> str:
    return c.eval.domain or c.sandbox.domain


def sizes(c: ConfigDict) -> rollout.Sizes:
    return rollout.Sizes(**{name: c.sandbox[name] for name in rollout.Sizes._fields})


def limits(c: ConfigDict) -> Limits:
    return Limits(**given(Limits, c.sandbox))


def room(c: ConfigDict) -> dict[str, int]:
    """What a conversation of a log may take."""
    keys = {"sandbox.max_turns", *worlds.TOKENS}
    if c.algorithm.name != "sft":
        keys.remove("algorithm.num_tokens")
    sizes = flat(c.to_dict())
    return logs.room(limits(c)) | {key: sizes[key] for key in sorted(keys)}


def adapters(c: ConfigDict) -> lora.Lora | None:
    """What is trained, if not the model itself."""
    asked = c.model.lora
    if not asked.rank:
        return None
    with blamed_on("model.lora"):
        return lora.Lora(asked.rank, asked.alpha, tuple(asked.targets))


def optimizer(c: ConfigDict):
    return optim.make_optimizer(**c.optim, num_steps=c.train.num_steps)


def num_rows(c: ConfigDict) -> int:
    """Rows of a batch."""
    if c.algorithm.name == "sft":
        return c.algorithm.num_rows or c.train.batch_size
    size = c.grpo.size if c.algorithm.name == "grpo" else 1
    return c.train.batch_size * size


def stored(workdir: Path) -> dict[str, Any] | None:
    """The config of the run in a workdir; None if there is none."""
    file = workdir / "config.json"
    if not file.exists():
        return None
    try:
        return dict(json.loads(file.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise BadUse(
            f"{file} is damaged ({error}); restore it, or use another --workdir"
        ) from None


def stored_config(workdir: Path) -> ConfigDict:
    """The same to work with; what an older run did not know has its default."""
    old = stored(workdir)
    if old is None:
        raise BadUse(f"{workdir} is no workdir: it has no config.json")
    c = base.get_config()
    try:
        c.update(old)
    except TypeError as error:
        raise BadUse(f"{workdir}/config.json: {error}") from None
    return c


def flat(tree: dict[str, Any]) -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    pairs = {}
    for key, value in tree.items():
        inner = flat(value) if isinstance(value, dict) else {"": value}
        pairs |= {f"{key}.{k}".rstrip("."): v for k, v in inner.items()}
    return pairs


def config_hash(c: ConfigDict) -> str:
    text = json.dumps(c.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def given(kind, section: ConfigDict) -> dict[str, Any]:
    """What a section says of the fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in section.items() if name in names}


def known(key: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f'did you mean "{close[0]}"?' if close else ", ".join(sorted(known))
            raise BadUse(f'{key}: there is no "{name}"; {hint}')


@contextlib.contextmanager
def blamed_on(key: str):
    """A `ValueError` in here is the fault of the config."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise BadUse(text if text.startswith(key) else f"{key}: {text}") from error


@contextlib.contextmanager
def needs_extra(what: str, extra: str):
    """What is imported in here comes with an extra."""
    try:
        yield
    except ImportError as error:
        raise BadUse(
            f'{what} needs what is not installed ({error}): pip install -e ".[{extra}]"'
        ) from None


def _check_stored(c: ConfigDict) -> None:
    if c.algorithm.name != "sft":
        raise BadUse(
            f'data.path feeds supervised fine-tuning; algorithm.name="'
            f'{c.algorithm.name}" plays its own episodes: set data.path=""'
        )
    if c.paft.alpha:
        raise BadUse(
            f"paft.alpha={c.paft.alpha}, but data.path is stored as it is: set "
            "paft.alpha=0, and perturb when it is built"
        )


def _check_packing(c: ConfigDict) -> None:
    rows, columns = c.algorithm.num_rows, c.algorithm.num_tokens
    if c.algorithm.name != "sft":
        raise BadUse(
            f"algorithm.num_rows={rows} packs demonstrations; algorithm.name is "
            f'"{c.algorithm.name}", whose rows are episodes: set it to 0'
        )
    if rows > c.train.batch_size and not c.data.path:
        raise BadUse(
            f"algorithm.num_rows={rows} is more than train.batch_size="
            f"{c.train.batch_size}: some rows would always be empty"
        )
    least = c.sandbox.prompt_tokens + c.sandbox.action_tokens
    if columns < least:
        raise BadUse(
            f"algorithm.num_tokens={columns} has no room for one demonstration, of a "
            f"prompt and an action at least: {least} tokens"
        )
