"""Find a backbone by name: random, builtin, a folder, a GGUF file or another run."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from tokenizers import Tokenizer

from launch.common import errors, model_folders, placement, tokenizer_files
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.sections import Model
from openagent_jax.models import hf, lora, previous_token_heads, transformer
from openagent_jax.text import token_bytes
from openagent_jax.types import Params, Policy


@dataclass(frozen=True)
class Backbone:
    """A model, its tokenizer, and where its weights come from."""

    config: transformer.ModelConfig
    tokenizer: Tokenizer
    init: Callable[..., Params]  # (key, shardings or None) -> params
    folder: Path  # holds the files of the tokenizer
    template: str = ""  # the chat template, in Jinja; "" is our compact form

    @property
    def policy(self) -> Policy:
        """The model as pure functions of its parameters."""
        return transformer.make_policy(self.config)


def backbone(c: Config) -> Backbone:
    """Return the backbone that `init_from` names.

    Its weights are read when its `init` is called.

    Raises:
      UsageError: there is no such backbone, or its files cannot be used.
    """
    return _find(c, c.init_from, "init_from")


def reference(c: Config, model: Backbone) -> Backbone | None:
    """Return the model that `surrogate.reference` names, for the KL penalty.

    Returns:
      None if there is no penalty, or if its reference is the start of training.

    Raises:
      UsageError: there is no such model, or its shapes are not those of `model`.
    """
    name = c.surrogate.reference
    if not c.algorithm.is_reinforcement or not c.surrogate.kl or not name:
        return None
    found = _find(c, name, "surrogate.reference")
    if placement.shapes(model.config) != placement.shapes(found.config):
        raise UsageError(
            f'surrogate.reference="{name}" has another shape than the model that is '
            "trained; take one like init_from"
        )
    return found


def first_params(c: Config, model: Backbone, shardings: Any = None) -> Params:
    """Return the parameters that training starts from.

    Args:
      c: the config; its seed determines random weights.
      model: the model whose parameters are returned.
      shardings: how to place them; by default they are on the first device.
    """
    # No step has this number, so no step draws its tasks from this key.
    key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 1)
    return model.init(key, shardings)


def from_folder(
    folder: Path, settings: Model | None = None, what: str = "backbone"
) -> Backbone:
    """Return the model of a folder in the layout of Hugging Face, with its tokenizer.

    Args:
      folder: holds config.json, tokenizer.json and, unless `init` is replaced, weights.
      settings: the section `model` of the config; None takes the folder as it is.
      what: names the model in error messages.

    Raises:
      UsageError: its architecture or its files cannot be used.
    """
    overrides = settings.overrides if settings else {}
    with errors.blame(what):
        config = hf.load_config(folder, **overrides)
    tokenizer = tokenizer_files.tokenizer(folder)
    num_tokens = token_bytes.num_tokens(tokenizer)
    if num_tokens > config.vocab_size:
        raise UsageError(
            f"{folder / 'tokenizer.json'}: {num_tokens} tokens, but vocab_size of "
            f"{folder / hf.CONFIG_FILE} is {config.vocab_size}"
        )
    template = tokenizer_files.template(
        folder, settings.chat_template if settings else ""
    )

    def init(_, shardings=None):
        return hf.load(folder, shardings, **overrides)[1]

    return Backbone(config, tokenizer, init, folder, template)


def _find(c: Config, name: str, key: str) -> Backbone:
    """Return the backbone that `name`, the value of the config key `key`, refers to."""
    if name == "random":
        return _random(c.model)
    folder, what = model_folders.with_weights(name, key), f'{key}="{name}"'
    if (folder / "checkpoints").is_dir():
        return _of_run(c, folder, what)
    model = from_folder(folder, c.model, what)
    with errors.blame(what):
        hf.check(folder, model.config)
    return model


def _random(settings: Model) -> Backbone:
    """Return a model of random weights, with previous-token heads."""
    folder = model_folders.folder(settings.tokenizer, "model.tokenizer")
    tokenizer = tokenizer_files.tokenizer(folder)
    with errors.blame("model"):
        config = settings.decoder(token_bytes.num_tokens(tokenizer))
        full_precision = dataclasses.replace(config, param_dtype="float32")
        plain_init = transformer.make_policy(full_precision).init

        @jax.jit
        def start(key):
            plain_key, key = jax.random.split(key)
            params = previous_token_heads.add(
                config, plain_init(plain_key), key, settings.look_back_heads
            )
            return jax.tree.map(lambda x: x.astype(config.param_dtype), params)

        # Tracing it finds sizes that do not fit together, without compiling.
        jax.eval_shape(lambda: start(jax.random.key(0)))

    def init(key, shardings=None):
        return jax.device_put(start(key), shardings)

    template = tokenizer_files.template(folder, settings.chat_template)
    return Backbone(config, tokenizer, init, folder, template)


def _of_run(c: Config, workdir: Path, what: str) -> Backbone:
    """Return the model of another run, with its adapters merged."""
    # Imported here because `runs` imports this module: a run may start from a run.
    from launch.common import runs

    model = from_folder(workdir / "model", c.model, what)

    def init(_, shardings=None):
        restored, params, _ = runs.restore(workdir, c=c, shardings=shardings)
        return lora.merge(restored.config.lora, params)

    return dataclasses.replace(model, init=init)
