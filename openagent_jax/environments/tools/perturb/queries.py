"""Perception of requests: they are worded badly, too long, or not clear.

What the user wants stays the same.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from openagent_jax import draw, hashing
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.perturb.edits import Pools, variant
from openagent_jax.environments.tools.types import Task
from openagent_jax.perturb import Perturbation, bernoulli, pick, select
from openagent_jax.text import scalars

CHOICE_SALT, VAGUE_SALT = 1, 2  # of `hashing.hashed_key`
NUM_TRIES = 8  # values that are drawn until one is another than those of the request


def query_rewrite(pools: Pools) -> Perturbation:
    """Rewrite the request in other words.

    Before: `Find the evening event in Fern Park.`
    After:  `um, evening event around Fern Park?`
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        r = jax.random.randint(which, (), 0, pools.num_phrases)
        seed = hashing.hashed_key(which, CHOICE_SALT)
        phrase = choices.spoken(pools.choices, pools.phrases[r], seed)
        # The phrases are those of the domain, not of one that has replaced it.
        hit = bernoulli(coin, strength) & (task.goal.kind >= 0)
        rewritten = _vague(key, replace(task, phrase=phrase), pools)
        return select(hit, rewritten, task)

    return apply


def query_underspecified(pools: Pools) -> Perturbation:
    """Leave a value that the task needs out of the request.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in whatever it was.`
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        used = jnp.any(
            task.phrase[:, None] == -1 - jnp.arange(task.shown.shape[0])[None], axis=0
        )
        q = pick(which, used & task.shown & ~_changes(task))
        hidden = replace(task, shown=task.shown.at[q].set(False))
        hidden = _vague(key, hidden, pools)
        return select(bernoulli(coin, strength) & (q >= 0), hidden, task)

    return apply


def query_typos(pools: Pools) -> Perturbation:
    """Misspell words of the request.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evneing event in Fern Park.`

    Strength is the probability that a piece of the request, which is what stands
    between two values or choices of words, is misspelt. Half of its words that can be
    misspelt then are. Values, short words and capitalised words stay. A misspelt word
    is one edit away from the right one and close to no other word of the world, so that
    it can be recognised. Rare pieces are never misspelt. An agent that matches words
    literally fails where it needs a misspelt one.
    """

    def apply(key, task, strength):
        coin, which = jax.random.split(key)
        text = variant(which, pools.misspelt.forms)
        hit = bernoulli(coin, strength, text.shape) & (text > 0)
        hit &= pools.misspelt.text == task.phrase
        return replace(task, phrase=jnp.where(hit, text, task.phrase))

    return apply


def query_redundant(pools: Pools) -> Perturbation:
    """Add irrelevant text to the request: small talk, and a value that is not meant.

    Before: `Find the evening event in Fern Park.`
    After:  `I asked about Elm Park before, it is settled. Find the evening event in
            Fern Park. (You are great.)`
    Or:     `Find the evening event in Fern Park or Elm Park. (Now I remember: it is not
            Elm Park.)`

    Strength is the probability of each of three asides: small talk before the request,
    small talk after it, and another value, of the same type as one of the request. The
    latter stands before the request in 3 of 8 tasks and after it in as many; in the
    others it stands beside the right value, and a remark tells which is which by naming
    the right one or the wrong one. So an agent that takes the first value that it sees
    fails in half of these tasks, and so does one that takes the last. Asides that find
    no room in the request are left out.

    As in `query_ambiguous`, two values are named, in the same words, but here no
    question is needed.
    """

    def apply(key, task, strength):
        num_constants = task.constants.shape[0]
        uniforms = jax.random.uniform(key, (_NUM_DRAWN + NUM_TRIES + num_constants,))
        u, asides = uniforms[:_NUM_DRAWN], pools.asides
        room = jnp.sum(task.phrase == 0)
        lure = other_value(uniforms[_NUM_DRAWN:], task, pools)
        right = -1 - lure.constant

        inline = _either(u[3:5], pools, right, lure.value)
        is_wrong = (u[5] < 0.5).astype(jnp.int32)
        opening, closing = _row(u[6], asides.resolved)[is_wrong]
        named = jnp.where(is_wrong, lure.value, right)
        resolved = jnp.stack([opening, named, closing])
        cost = jnp.sum(inline != 0) - 1 + len(resolved)
        beside = (u[7] < 0.25) & (cost <= room)

        comes_first, texts = u[8] < 0.5, _row(u[9], asides.lures)
        mention = [jnp.stack([texts[i, 0], lure.value, texts[i, 1]]) for i in range(2)]
        early = jnp.where(~beside & comes_first, mention[0], 0)
        late = jnp.where(beside, resolved, jnp.where(comes_first, 0, mention[1]))

        cost = jnp.where(beside, cost, len(resolved))
        lured = (u[0] < strength) & (lure.constant >= 0) & (cost <= room)
        room -= jnp.where(lured, cost, 0)
        greets = (u[1] < strength) & (room > 0)
        room -= greets
        parts = (u[2] < strength) & (room > 0)
        new = _spliced(
            task.phrase,
            jnp.where(lured & beside, lure.place, -1),
            inline,
            jnp.append(
                jnp.where(greets, _row(u[10], asides.talk)[0], 0), lured * early
            ),
            jnp.append(lured * late, jnp.where(parts, _row(u[11], asides.talk)[1], 0)),
        )
        return select(lured | greets | parts, replace(task, phrase=new), task)

    return apply


def query_ambiguous(pools: Pools) -> Perturbation:
    """Name two values where one is meant, without telling which.

    Before: `Find the evening event in Fern Park.`
    After:  `Find the evening event in Elm Park or Fern Park. (I forget which one.)`

    Strength is the probability that a value of the request becomes two; a request
    without room for that stays as it is. The other value is of the same type, drawn as
    constants are, and the right one comes first in half of the tasks: a guess succeeds
    in half of them. The user answers a question with the right value.

    Two named values alone do not call for a question: requests of `query_redundant`
    name two in the same words, but then say which one is meant.
    """

    def apply(key, task, strength):
        num_constants = task.constants.shape[0]
        uniforms = jax.random.uniform(key, (4 + NUM_TRIES + num_constants,))
        u = uniforms[:4]
        lure = other_value(uniforms[4:], task, pools)
        # What is right is said, although the request does not show it alone.
        right = -1 - num_constants - lure.constant
        inline = _either(u[1:3], pools, right, lure.value)
        unsure = _row(u[3], pools.asides.unsure)[None]
        fits = jnp.sum(inline != 0) <= jnp.sum(task.phrase == 0)
        none = jnp.zeros(0, jnp.int32)
        new = replace(
            task,
            phrase=_spliced(task.phrase, lure.place, inline, none, unsure),
            shown=task.shown.at[lure.constant].set(False),
        )
        return select((u[0] < strength) & fits & (lure.constant >= 0), new, task)

    return apply


_NUM_DRAWN = 12  # uniform numbers that `query_redundant` needs


class Lure(NamedTuple):
    """A value that could stand in a request in place of one of its constants."""

    constant: Int[Array, ""]  # index; -1 if no constant has another value
    place: Int[Array, ""]  # the piece of the request that names the constant
    value: Int[Array, ""]


def other_value(
    uniforms: Float[Array, "_"],
    task: Task,
    pools: Pools,
    may: Bool[Array, "Q"] | bool = True,
) -> Lure:
    """Draw a value of the type of a constant that the request shows exactly once.

    Args:
      uniforms: `NUM_TRIES` + Q uniform numbers.
      task: the task.
      pools: what constants are drawn from.
      may: the constants that are considered.
    """
    index = jnp.arange(task.constants.shape[0])
    # Constants may have been replaced by those of unfamiliar entities.
    own, shifted = pools.own_range, pools.constant_range
    is_own = scalars.within(task.said, own[:, 0], own[:, 1])
    low, high = jnp.where(is_own[:, None], own, shifted).T
    size = jnp.maximum(high - low, 1)
    value = low[None] + draw.below(uniforms[:NUM_TRIES, None], size[None])
    value = scalars.canonical(value)
    # Neither what is said, nor what a document says to give in its place.
    taken = jnp.concatenate([task.said, task.constants])
    is_new = jnp.all(value[:, :, None] != taken[None, None], axis=2)
    value = value[jnp.argmax(is_new, axis=0), index]
    named = task.phrase[:, None] == -1 - index[None]
    may &= (
        task.shown
        & ~_changes(task)
        & (jnp.sum(named, axis=0) == 1)
        & jnp.any(is_new, axis=0)
    )
    # The ranges are those of the domain, not of one that has replaced it.
    may &= (high > low) & (task.goal.kind >= 0)
    q = jnp.argmax(jnp.where(may, uniforms[NUM_TRIES:], -1.0))
    constant = jnp.where(jnp.any(may), q, -1)
    return Lure(constant, jnp.argmax(named[:, q]), value[q])


def _vague(key: jax.Array, task: Task, pools: Pools) -> Task:
    """Write words that tell nothing in place of values that the request leaves out."""
    piece = -1 - task.phrase
    is_constant = (piece >= 0) & (piece < len(task.shown))
    left_out = is_constant & ~task.shown[jnp.where(is_constant, piece, 0)]
    words = pools.vague[hashing.hashed_key(key, VAGUE_SALT) % len(pools.vague)]
    return replace(task, phrase=jnp.where(left_out, words, task.phrase))


def _changes(task: Task) -> Bool[Array, "Q"]:
    """Return the constant that the user changes, and those with its new value."""
    change = task.faults.change
    there = jnp.arange(len(task.constants)) == change.constant
    return (there | (task.said == change.value)) & (change.constant >= 0)


def _either(
    u: Float[Array, "2"], pools: Pools, right: Int[Array, ""], wrong: Int[Array, ""]
) -> Int[Array, "4"]:
    """Return the pieces that name two values, in either order."""
    before, between = _row(u[0], pools.asides.either)
    first = jnp.where(u[1] < 0.5, right, wrong)
    second = jnp.where(u[1] < 0.5, wrong, right)
    return jnp.stack([before, first, between, second])


def _row(u: Float[Array, ""], table: Array) -> Array:
    """Return the row of a table that a uniform number chooses."""
    return table[draw.below(u, jnp.int32(table.shape[0]))]


def _spliced(
    phrase: Int[Array, "P"],
    place: Int[Array, ""],
    inline: Int[Array, "_"],
    before: Int[Array, "_"],
    after: Int[Array, "_"],
) -> Int[Array, "P"]:
    """Return a request with pieces put in, which have room in it.

    Args:
      phrase: the request.
      place: the piece of it that `inline` replaces; -1 for none.
      inline: its replacement.
      before: pieces to put before the request; 0 for none.
      after: pieces to put after it.
    """
    wide = jnp.zeros((len(phrase), len(inline)), phrase.dtype).at[:, 0].set(phrase)
    here = jnp.arange(len(phrase)) == place
    wide = jnp.where(here[:, None], inline[None], wide)
    pieces = jnp.concatenate([before, wide.reshape(-1), after])
    order = jnp.argsort(pieces == 0, stable=True)
    return pieces[order][: len(phrase)].astype(phrase.dtype)
