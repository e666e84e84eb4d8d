"""From a config to the parts of a run: the only file that reads a ConfigDict.

What is wrong with a config is found here, before anything is compiled or written.
"""

import contextlib
import dataclasses
import difflib
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict
from tokenizers import Tokenizer

import openagent_jax
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
    train,
    worlds,
)
from openagent_jax.algorithms import grpo, paft, policy_gradient, ppo, sft
from openagent_jax.checkpoint import Checkpoints, digest
from openagent_jax.models import hf, look_back, lora, shuffle, transformer
from openagent_jax.sandbox import domain, domain_file
from openagent_jax.sandbox.lexicon import Lexicon
from openagent_jax.types import Algorithm, Limits, Metrics, Params, Policy

FROZEN = "frozen"  # in the meta of a checkpoint: digests of what it leaves out
BACKBONES = Path(openagent_jax.__file__).parent / "backbones"
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
    "model.lora.rank",
    "checkpoint.keep_last",
)


@dataclass(frozen=True)
class Backbone:
    """A model, its tokenizer, and where its weights come from."""

    config: transformer.ModelConfig
    tokenizer: Tokenizer
    init: Callable[[jax.Array], Params]

    @property
    def policy(self) -> Policy:
        return transformer.make_policy(self.config)


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
    _known("algorithm.name", [c.algorithm.name], ALGORITHMS)
    _known("eval.split", [c.eval.split], domain.SPLITS)
    _known("eval.scenarios", c.eval.scenarios, perturb.CATALOGUE)
    _known("monitor.stop", c.monitor.stop, monitors.MONITORS)
    _known("paft.perturbations", c.paft.perturbations, perturb.CATALOGUE)
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
            with _blamed_on(key):
                domain_file.load(name, _limits(c))
    with _blamed_on("optim"):
        _optimizer(c)
    _known("surrogate.loss", [c.surrogate.loss], losses.NORMALISERS)
    _known("surrogate.normaliser", [c.surrogate.normaliser], ["", *losses.DIVISORS])
    _known("grpo.std", [c.grpo.std], advantages.STD_OVER)
    if c.algorithm.name != "sft":
        with _blamed_on("reward"):
            rewards.check({name: weight for name, weight in c.reward.items() if weight})
    if c.algorithm.name == "grpo":
        with _blamed_on("grpo"):
            grpo.check(grpo.Groups(**c.grpo), c.train.batch_size)
    if c.paft.alpha:
        with _blamed_on("paft"):
            paft.check(c.paft.alpha, c.paft.twins)
    if c.grpo.twins and not c.paft.twins:
        raise BadUse("grpo.twins=True needs paft.twins=True and paft.alpha=0.5")


def mesh(c: ConfigDict, devices: Sequence[Any] | None = None) -> Mesh:
    """The devices (all, if not given), laid out; the batch fits on them."""
    rows, parts = num_rows(c), c.train.num_minibatches * c.train.num_micro_batches
    what = "train.batch_size"
    if rows > c.train.batch_size:
        what += " * grpo.size"
    keys = [f"train.num_{name}" for name in ("minibatches", "micro_batches")]
    keys = [key for key in keys if c[key] > 1]
    if rows % parts:
        divisors = " * ".join(f"{key}={c[key]}" for key in keys)
        raise BadUse(f"{divisors} does not divide {what}={rows}")
    with _blamed_on("mesh"):
        made = sharding.make_mesh(**c.mesh, devices=devices)
        sharding.check_batch_size(made, rows, what)
        sharding.check_batch_size(made, rows // parts, " / ".join([what, *keys]))
    return made


def backbone(c: ConfigDict, key: str = "init_from") -> Backbone:
    """What a key of the config names. Its weights are read when `init` is called."""
    name = flat(c.to_dict())[key]
    if name == "random":
        tokenizer = _tokenizer(_folder(c.model.tokenizer, "model.tokenizer"))
        vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        sizes, heads = _given(transformer.ModelConfig, c.model), c.model.look_back_heads
        sizes["lora"] = adapters(c)
        with _blamed_on("model"):
            config = transformer.ModelConfig(vocab_size=vocab_size, **sizes)
            plain = transformer.make_policy(config).init

            @jax.jit
            def init(key):
                plain_key, key = jax.random.split(key)
                return look_back.look_back(config, plain(plain_key), key, heads)

            jax.eval_shape(lambda: init(jax.random.key(0)))  # it checks its sizes
        return Backbone(config, tokenizer, init)
    folder = _folder(name, key)
    if (folder / "checkpoints").is_dir():

        def restored(key):
            found, params, _ = restore(folder)
            return lora.merge(found.config.lora, params)

        return dataclasses.replace(_model(folder / "model", c), init=restored)
    if not (folder / hf.WEIGHTS_FILE).is_file():
        raise BadUse(f'{key}="{name}": {folder} has no {hf.WEIGHTS_FILE}')
    return _model(folder, c)


def reference(c: ConfigDict, model: Backbone) -> Backbone | None:
    """What the policy is held near to; None if to nothing, or to where it began."""
    if c.algorithm.name == "sft" or not c.surrogate.kl or not c.surrogate.reference:
        return None
    found = backbone(c, "surrogate.reference")
    key = jax.random.key(0)
    ours, theirs = (jax.eval_shape(x.policy.init, key) for x in (model, found))
    if ours != theirs:
        raise BadUse(
            f'surrogate.reference="{c.surrogate.reference}" is of another shape than '
            "the model that learns; take one like init_from"
        )
    return found


def first_params(c: ConfigDict, model: Backbone) -> Params:
    """What training starts from."""
    # No step has this number, so its data have another key.
    return model.init(jax.random.fold_in(jax.random.key(c.seed), 2**32 - 1))


def restore(
    workdir: Path, which: str = "latest", c: ConfigDict | None = None
) -> tuple[Backbone, Params, int]:
    """The policy that a run has trained, its parameters and their step.

    Adapters alone are kept by a run, so what they adapt is read where it came from.

    `which` is "latest", "best", or a step.
    """
    folder = workdir / "checkpoints"
    if not folder.is_dir():
        raise BadUse(f"{workdir} is no workdir: it has no checkpoints")
    model, frozen = _model(workdir / "model", c), {}
    run = stored_config(workdir) if stored(workdir) else None
    if run and (settings := adapters(run)):
        config = dataclasses.replace(model.config, lora=settings)
        model = dataclasses.replace(model, config=config)
        with _blamed_on(f"{workdir} holds adapters alone, and needs its init_from"):
            frozen = first_params(run, backbone(run))
        abstract = jax.eval_shape(
            partial(lora.init, settings), jax.random.key(0), frozen
        )
    else:
        abstract = jax.eval_shape(lambda: model.policy.init(jax.random.key(0)))
    with contextlib.closing(Checkpoints(folder, read_only=True)) as checkpoints:
        try:
            params, step, meta = checkpoints.restore_params(
                abstract,
                int(which) if which.isdecimal() else which,
                without=(ppo.VALUE, policy_gradient.REFERENCE),
            )
        except FileNotFoundError:
            raise BadUse(
                f"{folder} has no step {which}; it has {checkpoints.steps()}"
            ) from None
    check_frozen(workdir, digests(frozen), meta)
    params = {**frozen, **params}
    return dataclasses.replace(model, init=lambda key: params), params, step


def digests(frozen: Params) -> dict[str, str | None]:
    """Of each branch that a checkpoint leaves out."""
    return {name: digest(branch) for name, branch in frozen.items()}


def check_frozen(
    workdir: Path, found: dict[str, str | None], meta: dict[str, Any]
) -> None:
    """
    Raises:
      BadUse: adapters were trained beside other weights than are found now.
    """
    for name, ours in found.items():
        theirs = meta.get(FROZEN, {}).get(name)
        if theirs and ours and theirs != ours:
            raise BadUse(
                f'{workdir}: its adapters were trained beside another "{name}" than is '
                "found now; bring back the model that its config.json names"
            )


def save_model(folder: Path, model: Backbone) -> None:
    """What `restore` needs besides the weights."""
    hf.save_config(folder, model.config)
    file = folder / "tokenizer.json"
    file.write_text(model.tokenizer.to_str(pretty=True), "utf-8")


def task_worlds(c: ConfigDict, tokenizer: Tokenizer, domain: str) -> worlds.Worlds:
    with _blamed_on(f"sandbox, with the domain {domain}"):
        return worlds.build(
            domain,
            tokenizer,
            _limits(c),
            num_visible=c.sandbox.num_visible,
            min_visible=c.sandbox.min_visible,
            transfer=c.sandbox.transfer,
        )


def eval_domain(c: ConfigDict) -> str:
    return c.eval.domain or c.sandbox.domain


def sizes(c: ConfigDict) -> rollout.Sizes:
    return rollout.Sizes(**{name: c.sandbox[name] for name in rollout.Sizes._fields})


def adapters(c: ConfigDict) -> lora.Lora | None:
    """What is trained, if not the model itself."""
    settings = c.model.lora
    if not settings.rank:
        return None
    with _blamed_on("model.lora"):
        return lora.Lora(settings.rank, settings.alpha, tuple(settings.targets))


def algorithm(c: ConfigDict, policy: Policy, source: worlds.Worlds) -> Algorithm:
    inner = _inner(c, policy, source.lexicon)
    if c.paft.alpha == 0:
        return inner
    mix = worlds.perturbation(source, c.paft.perturbations, "train")
    strength = paft.ramp(c.paft.strength, c.paft.ramp_steps)
    return paft.paft(inner, mix, c.paft.alpha, strength, c.paft.twins)


def _inner(c: ConfigDict, policy: Policy, lexicon: Lexicon) -> Algorithm:
    turns = c.sandbox.max_turns
    if c.algorithm.name == "sft":
        return sft.sft(policy, lexicon, turns, c.algorithm.num_tokens)
    weights = {name: weight for name, weight in c.reward.items() if weight}
    names = policy_gradient.Surrogate._fields
    surrogate = policy_gradient.Surrogate(*(c.surrogate[name] for name in names))
    learner = policy_gradient.Learner(
        policy, lexicon, sizes(c), weights, c.algorithm.temperature, surrogate
    )
    if c.algorithm.name == "grpo":
        return grpo.grpo(learner, grpo.Groups(**c.grpo))
    return ppo.ppo(learner, ppo.Critic(**c.ppo))


def start(c: ConfigDict, model: Backbone) -> tuple[Params, Params]:
    """What is trained, and what is only used beside it."""
    # Through the host: what a checkpoint gave lies on one device of its own.
    params, frozen = jax.device_get(first_params(c, model)), {}
    if model.config.lora:
        key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 2)  # of no step
        params, frozen = lora.init(model.config.lora, key, params), params
    if c.algorithm.name != "sft" and c.surrogate.kl:
        other = reference(c, model)
        held = jax.device_get(first_params(c, other)) if other else params
        if not frozen:
            params = {**params, policy_gradient.REFERENCE: held}
        elif other:  # else it is what the adapters stand beside
            frozen = {**frozen, policy_gradient.REFERENCE: held}
    if c.algorithm.name == "ppo":
        params = ppo.with_value(params, model.config.width)
    return params, frozen


def trainer(
    c: ConfigDict,
    model: Backbone,
    source: worlds.Worlds,
    devices: Sequence[Any] | None = None,
):
    """`(step, state)`: one update, compiled, and the sharded start."""
    laid_out = mesh(c, devices)
    tx = _optimizer(c)
    step = train.make_step(
        lambda key: source.sample(key, "train"),
        algorithm(c, model.policy, source),
        tx,
        _num_sampled(c),
        c.train.num_micro_batches,
        c.train.num_epochs,
        c.train.num_minibatches,
        # Demonstrations have a room of their own; few episodes need all of theirs.
        0 if c.algorithm.name == "sft" else c.sandbox.context_tokens * 5 // 8,
        partial(
            jax.lax.with_sharding_constraint,
            shardings=sharding.batch_sharding(laid_out),
        ),
        _view(c, source),
    )
    params, frozen = start(c, model)
    state, shardings = sharding.init_sharded(
        laid_out,
        transformer.logical_axes(model.config),
        lambda given: train.init_state(given[0], tx, *given[1:]),
        (params, jax.random.key(c.seed), frozen),
    )
    outputs = shardings, sharding.replicated(laid_out)
    update = jax.jit(step, donate_argnums=0, out_shardings=outputs)
    return update.lower(state).compile(), state


def watch(c: ConfigDict, say: Callable[[str], None]) -> Callable[[int, Metrics], None]:
    """What looks at the metrics of each step."""
    bounds = {name: c.monitor[name] for name in monitors.MONITORS}
    return monitors.Watch(bounds, c.monitor.patience, c.monitor.stop, say).see


def _num_sampled(c: ConfigDict) -> int:
    """Tasks of a step; some may be left out of the batch."""
    over = c.grpo.oversample if c.algorithm.name == "grpo" else 1
    return c.train.batch_size * over


def num_rows(c: ConfigDict) -> int:
    """Rows of a batch."""
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


def _view(c: ConfigDict, source: worlds.Worlds) -> train.View:
    """What the loss sees of the parameters."""

    def view(params: Params, key: jax.Array) -> Params:
        if not c.optim.train_embedding:  # its gradient would be made for nothing
            params = {**params, "embed": jax.lax.stop_gradient(params["embed"])}
        if c.train.shuffle_vectors and source.free_tokens:
            params = shuffle.shuffle_vectors(params, key, *source.free_tokens)
        return params

    return view


def _optimizer(c: ConfigDict):
    return optim.make_optimizer(**c.optim, num_steps=c.train.num_steps)


def _limits(c: ConfigDict) -> Limits:
    return Limits(**_given(Limits, c.sandbox))


def _given(kind, section: ConfigDict) -> dict[str, Any]:
    """What a section says of the fields of a dataclass."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in section.items() if name in names}


def _model(folder: Path, c: ConfigDict | None) -> Backbone:
    """A folder in Hugging Face Llama layout, with a tokenizer."""
    changes: dict[str, Any] = {}
    if c:
        changes = dict(dtype=c.model.dtype, remat=c.model.remat, lora=adapters(c))
    with _blamed_on("backbone"):
        config = hf.load_config(folder, **changes)
    return Backbone(config, _tokenizer(folder), lambda key: hf.load(folder)[1])


def _tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise BadUse(f"{file}: no such file; a backbone needs its tokenizer")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # it raises nothing more special
        raise BadUse(f"{file}: {error}") from None


def _folder(name: str, key: str) -> Path:
    builtin = BACKBONES / name
    folder = builtin if builtin.is_dir() else Path(name).expanduser()
    if not folder.is_dir():
        names = ", ".join(sorted(path.name for path in BACKBONES.iterdir()))
        raise BadUse(f'{key}="{name}" is neither a folder nor one of random, {names}')
    return folder


def _known(key: str, names: Iterable[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, 1)
            hint = f'did you mean "{close[0]}"?' if close else ", ".join(sorted(known))
            raise BadUse(f'{key}: there is no "{name}"; {hint}')


@contextlib.contextmanager
def _blamed_on(key: str):
    """A `ValueError` in here is the fault of the config."""
    try:
        yield
    except ValueError as error:
        text = str(error)
        raise BadUse(text if text.startswith(key) else f"{key}: {text}") from None
