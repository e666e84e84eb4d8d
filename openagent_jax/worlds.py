"""Worlds put together: lexicon, domains, and the pools that perturbations draw from.

Host side, once a run. What comes out are pytrees and pure functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from openagent_jax import perturb
from openagent_jax.sandbox import domain as domains
from openagent_jax.sandbox import (
    domain_file,
    lexicon,
    random_words,
    random_worlds,
    render,
    style,
    symbols,
)
from openagent_jax.types import Limits, Task

RANDOM = "random"  # the domain of endless random worlds
TRANSFER = "medical"  # held out: where `domain_transfer` leads


@dataclass(frozen=True)
class Worlds:
    """A source of tasks under one tokenizer."""

    lexicon: lexicon.Lexicon
    sample: Callable[[jax.Array, str], Task]  # (key, split) -> task
    pools: dict[str, perturb.Pools]  # by split; empty for random worlds
    # Tokens that mean nothing, and their shapes; those of random worlds alone.
    free_tokens: tuple[jax.Array, jax.Array] | None = None

    def longest_prompt(self, key: jax.Array, num: int) -> int:
        """Tokens of the longest of a few prompts."""

        def length(key):
            pieces = render.prompt(self.lexicon.style, self.sample(key, "train"))
            return lexicon.write(self.lexicon, pieces, 1)[2]

        return int(jax.jit(jax.vmap(length))(jax.random.split(key, num)).max())


def build(
    domain: str | Path,
    tokenizer: Tokenizer,
    limits: Limits,
    num_visible: int,
    min_visible: int = 3,
    transfer: str | Path = TRANSFER,
    form: style.Style[str] | None = None,
    vocab_size: int = 0,
) -> Worlds:
    """Tasks of a domain: a builtin name, a file, or `random`.

    Args:
      domain: where from.
      tokenizer: spells them.
      limits: of their arrays.
      num_visible: tools in the documents, if the goal does not need more.
      min_visible: the same at least; for random worlds.
      transfer: where `domain_transfer` leads.
      form: how they are written; compact, if not given.
      vocab_size: of the model, where it is more than that of the tokenizer.

    Raises:
      domain_spec.DomainError: the file is wrong.
      ValueError: the tokenizer cannot be used, or not with the style.
    """
    table, form = symbols.Symbols(), form or style.compact(limits.num_args)
    if domain == RANDOM:
        builtin = [path.stem for path in domain_file.DOMAINS.glob("*.json")]
        code = {style.CODE}  # no argument may have its name
        avoid = code.union(*(domains.words(domain_file.load(d)) for d in builtin))
        words = random_words.compile(table, tokenizer, avoid)
        source = random_worlds.RandomWorlds(words, min_visible, num_visible)
        built = lexicon.build(table, tokenizer, form, vocab_size)
        tokens, shapes = words.free_tokens(built)
        return Worlds(
            lexicon=built,
            sample=lambda key, split: random_worlds.sample_task(source, key, limits),
            pools={},
            free_tokens=(jnp.asarray(tokens), jnp.asarray(shapes)),
        )
    main, other = (
        domains.compile(domain_file.load(name, limits), table, limits)
        for name in (domain, transfer)
    )

    def sample(source: domains.Domain, key: jax.Array, split: str) -> Task:
        return domains.sample_task(source, key, domains.SPLITS[split], num_visible)

    pools = {
        split: _pools(main, table, split, partial(sample, other, split=split))
        for split in domains.SPLITS
    }
    built = lexicon.build(table, tokenizer, form, vocab_size)
    return Worlds(built, partial(sample, main), pools)


def perturbation(worlds: Worlds, names: Sequence[str], split: str):
    """One of the named perturbations at a time, each as likely."""
    pools = worlds.pools[split]
    return perturb.one_of(*(perturb.make(name, pools) for name in names))


def _pools(
    domain: domains.Domain, table: symbols.Symbols, split: str, transfer
) -> perturb.Pools:
    s, rewrite = domains.SPLITS[split], domains.REWRITE + domains.SPLITS[split]
    trained, all_styles = style.NUM_TRAIN_STYLES, len(style.RESULT_STYLES)
    styles = (1, trained) if split == "train" else (trained, all_styles)
    opaque = table.opaque[split]
    variants = domain.variants
    return perturb.Pools(
        names=variants.name[s],
        descriptions=variants.description[s],
        arg_names=variants.arg_name[s],
        opaque=jnp.array([opaque.low, opaque.high]),
        gates=jnp.asarray(table.gates[split], jnp.int32),
        phrases=domain.phrases[rewrite],
        num_phrases=domain.num_phrases[rewrite],
        styles=jnp.array(styles),
        shifted=domain.result_range[domains.SHIFT],
        constant_range=domain.constant_range[domains.SHIFT],
        transfer=transfer,
    )
