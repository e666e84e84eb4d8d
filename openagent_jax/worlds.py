"""Worlds put together: lexicon, domains, and the pools that perturbations draw from.

Host side, once a run. What comes out are pytrees and pure functions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from tokenizers import Tokenizer

from openagent_jax import perturb
from openagent_jax.sandbox import (
    demonstrate,
    domain_file,
    lexicon,
    logs,
    random_words,
    random_worlds,
    recorded_worlds,
    render,
    style,
    symbols,
)
from openagent_jax.sandbox import domain as domains
from openagent_jax.types import Limits, Task

RANDOM = "random"  # the domain of endless random worlds
TRANSFER = "medical"  # held out: where `domain_transfer` leads
# Keys of a config: room for tokens. That of a demonstration is not always there.
TOKENS = {f"sandbox.{x}_tokens" for x in ("prompt", "action", "result", "context")}
TOKENS |= {"algorithm.num_tokens"}

Source = domains.Domain | recorded_worlds.Recordings


@dataclass(frozen=True)
class Worlds:
    """A source of tasks under one tokenizer."""

    lexicon: lexicon.Lexicon
    sample: Callable[[jax.Array, str], Task]  # (key, split) -> task
    pools: dict[str, perturb.SomePools]  # by split; empty for random worlds
    # Tokens that mean nothing, and their shapes; those of random worlds alone.
    free_tokens: tuple[jax.Array, jax.Array] | None = None
    log: logs.Log | None = None  # of recorded worlds

    def check(self, split: str) -> None:
        """
        Raises:
          ValueError: no task is of this split.
        """
        jax.eval_shape(lambda key: self.sample(key, split), jax.random.key(0))

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
    room: Mapping[str, int] | None = None,
) -> Worlds:
    """Tasks of a domain: a builtin name, a file, a log, or `random`.

    Args:
      domain: where from.
      tokenizer: spells them.
      limits: of their arrays.
      num_visible: tools in the documents, if the goal does not need more.
      min_visible: the same at least; for random worlds.
      transfer: where `domain_transfer` leads.
      form: how they are written; compact, if not given.
      vocab_size: of the model, where it is more than that of the tokenizer.
      room: of episodes, by the keys of a config; conversations that need more are left
        out of a log. See `logs.load`.

    Raises:
      domain_spec.DomainError: the file is wrong, or no conversation of it is mapped.
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
    names = [str(domain), str(transfer)]
    room = logs.room(limits) | dict(room or {})
    found = {
        name: logs.load(name, room).spelled_by(tokenizer).checked()
        for name in names
        if logs.is_log(name)
    }
    if found:
        limits = recorded_worlds.fitted(
            limits, [task for log in found.values() for _, task in log.tasks]
        )
    main, other = (
        recorded_worlds.compile([task for _, task in found[name].tasks], table, limits)
        if name in found
        else domains.compile(domain_file.load(name, limits), table, limits)
        for name in names
    )

    def sample(source: Source, key: jax.Array, split: str) -> Task:
        s = domains.SPLITS[split]
        if isinstance(source, recorded_worlds.Recordings):
            return recorded_worlds.sample_task(source, key, s)
        return domains.sample_task(source, key, s, num_visible)

    built = lexicon.build(table, tokenizer, form, vocab_size)
    log = found.get(names[0])
    if log and isinstance(main, recorded_worlds.Recordings):
        log, main = _roomy(log, main, built, room)
    pools = {
        split: _pools(main, table, split, partial(sample, other, split=split))
        for split in domains.SPLITS
    }
    return Worlds(built, partial(sample, main), pools, log=log)


def perturbation(worlds: Worlds, names: Sequence[str], split: str):
    """One of the named perturbations at a time, each as likely."""
    pools = worlds.pools[split]
    return perturb.one_of(*(perturb.make(name, pools) for name in names))


def _roomy(
    log: logs.Log,
    source: recorded_worlds.Recordings,
    lexicon_: lexicon.Lexicon,
    room: Mapping[str, int],
) -> tuple[logs.Log, recorded_worlds.Recordings]:
    """Without the conversations whose tokens find no room."""

    tasks = [task for _, task in log.tasks]
    if tokens := TOKENS & room.keys():
        measure = partial(_num_tokens, lexicon_, room["sandbox.max_turns"])
        found = recorded_worlds.measured(source, measure, len(tasks))
        needs = [{key: int(found[key][i]) for key in tokens} for i in range(len(tasks))]
        log, kept = log.with_room(needs, room)
        source = recorded_worlds.only(source, tasks, kept) if kept else source
    return log.checked(), source


def _num_tokens(
    lexicon_: lexicon.Lexicon, max_turns: int, task: Task
) -> dict[str, jax.Array]:
    """Of an episode and its parts, as the expert plays it."""

    def num(pieces):
        return lexicon.write(lexicon_, pieces, 1)[2]

    def longest(write, parts):
        lengths = jax.vmap(lambda part: num(write(lexicon_.style, task, part)))(parts)
        return jnp.max(jnp.where(episode.valid, lengths, 0))

    episode = demonstrate.demonstrate(lexicon_, task, max_turns)
    whole = render.trajectory(lexicon_, episode, 1)[3]
    return {
        "sandbox.prompt_tokens": num(render.prompt(lexicon_.style, task)),
        "sandbox.action_tokens": longest(render.action, episode.action),
        "sandbox.result_tokens": longest(render.observation, episode.result),
        "sandbox.context_tokens": whole,
        "algorithm.num_tokens": whole,
    }


def _pools(
    source: Source, table: symbols.Symbols, split: str, transfer: Callable
) -> perturb.SomePools:
    s, rewrite = domains.SPLITS[split], domains.REWRITE + domains.SPLITS[split]
    trained, all_styles = style.NUM_TRAIN_STYLES, len(style.RESULT_STYLES)
    styles = (1, trained) if split == "train" else (trained, all_styles)
    opaque = table.opaque[split]
    gates = jnp.asarray(table.gates[split], jnp.int32)
    shared: dict[str, Any] = dict(
        opaque=jnp.array([opaque.low, opaque.high]),
        styles=jnp.array(styles),
        transfer=transfer,
    )
    if isinstance(source, recorded_worlds.Recordings):

        def of_task(task: Task) -> perturb.Pools:
            own = recorded_worlds.pools(source, task, s, gates)
            return perturb.Pools(**own._asdict(), **shared)

        return of_task
    variants = source.variants
    return perturb.Pools(
        names=variants.name[s],
        descriptions=variants.description[s],
        arg_names=variants.arg_name[s],
        gates=gates,
        phrases=source.phrases[rewrite],
        num_phrases=source.num_phrases[rewrite],
        shifted=source.result_range[domains.SHIFT],
        constant_range=source.constant_range[domains.SHIFT],
        **shared,
    )
