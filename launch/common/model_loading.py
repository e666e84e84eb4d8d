"""A model with its tokenizer: of a folder, or with random weights."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer

from launch.common import errors, lineage, model_folders, tokenizer_files
from launch.common.errors import UsageError
from launch.common.lineage import Stages
from launch.common.sections import Model
from openagent_jax.environments.tools.worlds import fixed_tokens
from openagent_jax.models import hf, initial_heads, transformer, word_forms
from openagent_jax.text import style, token_bytes
from openagent_jax.types import Params, Policy


@dataclass(frozen=True)
class Backbone:
    """A model, its tokenizer, and where its weights come from."""

    config: transformer.ModelConfig
    tokenizer: Tokenizer
    init: Callable[..., Params]  # (key, shardings or None) -> params
    folder: Path  # holds the files of the tokenizer
    template: str = ""  # the chat template, in Jinja; "" is our compact style
    stage: int = 0  # number of runs that have trained it, one after the other
    trained_on: Stages = ()  # what it was trained on; see `lineage`

    @property
    def policy(self) -> Policy:
        """The model as pure functions of its parameters."""
        return transformer.make_policy(self.config)


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
            f"{folder / hf.CONFIG_FILE} is {config.vocab_size}; use the tokenizer that "
            "belongs to this model"
        )
    template = tokenizer_files.template(
        folder, settings.chat_template if settings else ""
    )

    def init(_, shardings=None):
        return hf.load(folder, shardings, **overrides)[1]

    stages = lineage.of_folder(folder)
    return Backbone(config, tokenizer, init, folder, template, trained_on=stages)


def random(settings: Model) -> Backbone:
    """Return a model of random weights, with initial heads and word forms."""
    folder = model_folders.folder(settings.tokenizer, "model.tokenizer")
    tokenizer = tokenizer_files.tokenizer(folder)
    with errors.blame("model"):
        config = settings.decoder(token_bytes.num_tokens(tokenizer))
        full_precision = dataclasses.replace(config, param_dtype="float32")
        plain_init = transformer.make_policy(full_precision).init
        texts = [bytes(row) for row in token_bytes.vocab_bytes(tokenizer, b"")]

        kinds = _kinds(tokenizer, texts) if settings.match_heads else None

        @jax.jit
        def start(key):
            keys = jax.random.split(key, 3)
            params = plain_init(keys[0])
            embed = params["embed"]
            if any(settings.heads):
                embed = initial_heads.embedding(config, keys[1], settings.heads)
            if settings.word_forms:
                embed = word_forms.join(embed, texts, keys[2])
            params["embed"] = embed
            if any(settings.heads):
                heads = settings.heads
                params = initial_heads.add(config, params, embed, heads, kinds)
            return jax.tree.map(lambda x: x.astype(config.param_dtype), params)

        # Tracing it finds sizes that do not fit together, without compiling.
        jax.eval_shape(lambda: start(jax.random.key(0)))

    def init(key, shardings=None):
        return jax.device_put(start(key), shardings)

    template = tokenizer_files.template(folder, settings.chat_template)
    return Backbone(config, tokenizer, init, folder, template)


def _kinds(tokenizer: Tokenizer, texts: Sequence[bytes]) -> initial_heads.Kinds:
    """Return which tokens are of which kind.

    Content words are words or numbers, but no words that all domains share.

    Raises:
      ValueError: the tokenizer does not have the tokens of the compact style.
    """
    found = [tokenizer.token_to_id(text) for text in style.SPEAKERS]
    speakers = tuple(token for token in found if token is not None)
    if len(speakers) < len(found):
        raise ValueError(
            "model.match_heads=1 needs a tokenizer with the tokens of the compact "
            f"style, {', '.join(style.SPEAKERS)}"
        )
    general = fixed_tokens.of_general_words(tokenizer)
    content = np.array([text.strip(b" _").isalnum() for text in texts])
    content[[*general]] = False
    return initial_heads.Kinds(content, speakers, documents=speakers[0])
