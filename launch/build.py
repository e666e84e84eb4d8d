"""From a config to the parts of a run: the only file that reads a ConfigDict.

What is wrong with a config is found here, before anything is compiled.
"""

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import jax
import optax
from ml_collections import ConfigDict
from tokenizers import Tokenizer

import openagent_jax
from launch.cli import BadUse
from openagent_jax import optim, perturb, rollout, sharding, train, worlds
from openagent_jax.algorithms import paft, sft
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.models import hf, transformer
from openagent_jax.sandbox import domain_file
from openagent_jax.types import Algorithm, Limits, Params, Policy, TrainState

BACKBONES = Path(openagent_jax.__file__).parent / "backbones"


@dataclass(frozen=True)
class Backbone:
    """A model, its tokenizer, and where its weights come from."""

    config: transformer.ModelConfig
    tokenizer: Tokenizer
    init: Callable[[jax.Array], Params]

    @property
    def policy(self) -> Policy:
        return transformer.make_policy(self.config)


def backbone(c: ConfigDict) -> Backbone:
    """What `init_from` names."""
    changes = dict(dtype=c.model.dtype, remat=c.model.remat)
    if c.init_from == "random":
        tokenizer = _tokenizer(_folder(c.model.tokenizer, "model.tokenizer"))
        names = {field.name for field in fields(transformer.ModelConfig)}
        given = {name: value for name, value in c.model.items() if name in names}
        vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        config = transformer.ModelConfig(vocab_size=vocab_size, **given)
        return Backbone(config, tokenizer, transformer.make_policy(config).init)
    folder = _folder(c.init_from, "init_from")
    if (folder / "checkpoints").is_dir():
        return restore(folder, "latest", c)[0]
    config, params = hf.load(folder, **changes)
    return Backbone(config, _tokenizer(folder), lambda key: params)


def restore(
    workdir: Path, which: int | str = "latest", c: ConfigDict | None = None
) -> tuple[Backbone, Params, int]:
    """The policy that a run has trained, its parameters and their step."""
    folder = workdir / "checkpoints"
    if not folder.is_dir():
        raise BadUse(f"{workdir} is no workdir: it has no checkpoints")
    changes = dict(dtype=c.model.dtype, remat=c.model.remat) if c else {}
    config = hf.load_config(workdir / "model", **changes)
    policy = transformer.make_policy(config)
    abstract = jax.eval_shape(policy.init, jax.random.key(0))
    with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
        params, step, _ = checkpoints.restore_params(abstract, _step(which))
    model = Backbone(config, _tokenizer(workdir / "model"), lambda key: params)
    return model, params, step


def _step(which: int | str) -> int | str:
    if which in ("latest", "best") or isinstance(which, int):
        return which
    if not which.isdigit():
        raise BadUse(f"--step={which} is not latest, best or a number")
    return int(which)


def save_model(folder: Path, model: Backbone) -> None:
    """What `restore` needs besides the weights."""
    hf.save_config(folder, model.config)
    model.tokenizer.save(str(folder / "tokenizer.json"))


def task_worlds(c: ConfigDict, tokenizer: Tokenizer, domain: str) -> worlds.Worlds:
    names = {field.name for field in fields(Limits)}
    limits = Limits(**{k: v for k, v in c.sandbox.items() if k in names})
    try:
        return worlds.build(
            domain, tokenizer, limits, c.sandbox.num_visible, c.sandbox.transfer
        )
    except domain_file.DomainError as error:
        raise BadUse(f"sandbox.domain: {error}") from None


def algorithm(c: ConfigDict, policy: Policy, source: worlds.Worlds) -> Algorithm:
    if c.algorithm.name != "sft":
        raise BadUse(f'algorithm.name="{c.algorithm.name}" is not "sft"')
    inner = sft.sft(policy, source.lexicon, c.sandbox.max_turns, c.algorithm.num_tokens)
    if c.paft.alpha == 0:
        return inner
    mix = worlds.perturbation(source, c.paft.perturbations, "train")
    return paft.paft(inner, mix, c.paft.alpha, c.paft.strength)


def optimizer(c: ConfigDict) -> optax.GradientTransformation:
    return optim.make_optimizer(**c.optim, num_steps=c.train.num_steps)


def trainer(c: ConfigDict, model: Backbone, source: worlds.Worlds):
    """`(step, state)`: one compiled update and the sharded start."""
    mesh = sharding.make_mesh(**c.mesh)
    check_batch = partial(sharding.check_batch_size, mesh)
    check_batch(c.train.batch_size, "train.batch_size")
    if c.train.batch_size % c.train.num_micro_batches:
        raise BadUse(
            f"train.num_micro_batches={c.train.num_micro_batches} does not divide "
            f"train.batch_size={c.train.batch_size}"
        )
    part = c.train.batch_size // c.train.num_micro_batches
    check_batch(part, "train.batch_size / train.num_micro_batches")
    tx = optimizer(c)
    laid_out = sharding.batch_sharding(mesh)
    step = train.make_step(
        partial(source.sample, split="train"),
        algorithm(c, model.policy, source),
        tx,
        c.train.batch_size,
        c.train.num_micro_batches,
        lambda batch: jax.lax.with_sharding_constraint(batch, laid_out),
    )
    params = model.init(jax.random.fold_in(jax.random.key(c.seed), 1))

    def init(key) -> TrainState:
        return train.init_state(params, tx, key)

    axes = transformer.logical_axes(model.config)
    state, shardings = sharding.init_sharded(mesh, axes, init, jax.random.key(c.seed))
    compiled = jax.jit(
        step, donate_argnums=0, out_shardings=(shardings, sharding.replicated(mesh))
    )
    return compiled, state


def sizes(c: ConfigDict) -> rollout.Sizes:
    s = c.sandbox
    return rollout.Sizes(s.max_turns, s.prompt_tokens, s.action_tokens, s.result_tokens)


def check(c: ConfigDict) -> None:
    """Combinations that cannot work, named before anything is built."""
    for key, value in (
        ("train.num_steps", c.train.num_steps),
        ("train.batch_size", c.train.batch_size),
        ("train.num_micro_batches", c.train.num_micro_batches),
        ("train.log_every", c.train.log_every),
        ("checkpoint.every", c.checkpoint.every),
        ("eval.num_tasks", c.eval.num_tasks),
        ("eval.batch_size", c.eval.batch_size),
        ("sandbox.max_turns", c.sandbox.max_turns),
    ):
        if value < 1:
            raise BadUse(f"{key}={value} must be at least 1")
    if not 0 <= c.paft.alpha <= 1:
        raise BadUse(f"paft.alpha={c.paft.alpha} is not between 0 and 1")
    if not 0 <= c.eval.strength <= 1:
        raise BadUse(f"eval.strength={c.eval.strength} is not between 0 and 1")
    for key, names in (
        ("paft.perturbations", c.paft.perturbations),
        ("eval.scenarios", c.eval.scenarios),
    ):
        for name in names:
            if name not in perturb.CATALOGUE:
                known = ", ".join(sorted(perturb.CATALOGUE))
                raise BadUse(f'{key}: unknown "{name}"; there are {known}')
    if c.paft.alpha:
        held_out = [
            name
            for name in c.paft.perturbations
            if perturb.CATALOGUE[name].family != "train"
        ]
        if held_out:
            raise BadUse(
                f'paft.perturbations: "{held_out[0]}" is held out for evaluation; '
                "remove it"
            )
        if not c.paft.perturbations:
            raise BadUse("paft.perturbations is empty; name some, or set paft.alpha=0")
        if c.sandbox.domain == worlds.RANDOM:
            raise BadUse('paft.alpha needs a domain; sandbox.domain is "random"')
    if c.eval.scenarios and eval_domain(c) == worlds.RANDOM:
        raise BadUse('eval.scenarios must be () where the domain is "random"')


def eval_domain(c: ConfigDict) -> str:
    return c.eval.domain or c.sandbox.domain


def config_hash(c: ConfigDict) -> str:
    text = json.dumps(c.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder(name: str, key: str) -> Path:
    builtin = BACKBONES / name
    folder = builtin if builtin.is_dir() else Path(name).expanduser()
    if not folder.is_dir():
        raise BadUse(
            f'{key}="{name}" is neither a folder nor one of '
            f"{sorted(path.name for path in BACKBONES.glob('*'))} nor random"
        )
    return folder


def _tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise BadUse(f"{file}: no such file; a backbone needs its tokenizer")
    return Tokenizer.from_file(str(file))
