"""Permute the embeddings of words, so that little can be memorised about any of them.

A small decoder that is trained on a few thousand words memorises some of them and reads
the others less reliably. If every training step permutes the embeddings anew, the
decoder has to learn to read them all. The forms of a word (`word_forms`) move together.
"""

from collections.abc import Collection, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax.models import word_forms
from openagent_jax.types import Params


def free(
    texts: Sequence[bytes], fixed: Collection[int]
) -> tuple[Int[Array, "K W"], Int[Array, "K"]]:
    """Return the words that may take part in `shuffle`, and their kinds.

    A word is a stem with all of its forms. Words with the same forms are of one kind.
    So are single characters without forms, and longer tokens without forms that begin
    and end alike.

    Args:
      texts: the text of each token.
      fixed: tokens whose embeddings have a meaning of their own. Words with such a form
        are left out.

    Returns:
      The tokens of each word, in an order that is the same for all words of a kind, and
      padded with -1; and a number for the kind of each word.

    >>> texts = [b"in", b"in ", b"oak", b"oak ", b"elm", b"elm ", b"Oslo"]
    >>> words, kinds = free(texts, fixed={1})
    >>> words.tolist(), kinds.tolist()
    ([[2, 3], [4, 5], [6, -1]], [1, 1, 0])
    """
    words: dict[bytes, dict[bytes, int]] = {}
    for token, text in enumerate(texts):
        stem, form = word_forms.split(text)
        # Several tokens may stand for the same text.
        while form in words.setdefault(stem, {}):
            form += b"+"
        words[stem][form] = token
    taken, moving = {*fixed}, []
    for stem, forms in words.items():
        if not taken.intersection(forms.values()):
            ends = b"" if any(forms) or len(stem) == 1 else stem[:1] + stem[-1:]
            kind = b"|".join([b"%d" % min(len(stem), 2), ends, *sorted(forms)])
            moving.append((kind, [forms[form] for form in sorted(forms)]))
    tokens = np.full((len(moving), max((len(x) for _, x in moving), default=1)), -1)
    for row, (_, members) in zip(tokens, moving, strict=True):
        row[: len(members)] = members
    _, kinds = np.unique([kind for kind, _ in moving], return_inverse=True)
    return jnp.asarray(tokens, jnp.int32), jnp.asarray(kinds, jnp.int32)


def shuffle(
    params: Params,
    key: jax.Array,
    tokens: Int[Array, "K W"],
    kinds: Int[Array, "K"],
) -> Params:
    """Permute the embeddings of some of these words among words of the same kind.

    In half of the cases all words take part; otherwise a random fraction of them, from
    none to all, so that the model can also learn facts about a word. Columns of an
    untied output head are permuted along with the embeddings.

    Args:
      params: parameters of a decoder, with "embed" and perhaps "head".
      key: PRNG key.
      tokens: the tokens of the words that may take part; see `free`.
      kinds: a number for the kind of each word.

    Returns:
      The parameters; only "embed" and "head" differ.

    >>> params = {"embed": jnp.arange(5)[:, None]}
    >>> tokens, kinds = jnp.array([[1, 2], [3, 4]]), jnp.array([0, 0])
    >>> keys = jax.random.split(jax.random.key(0), 20)
    >>> news = jax.vmap(lambda key: shuffle(params, key, tokens, kinds)["embed"])(keys)
    >>> sorted({tuple(new) for new in news[..., 0].tolist()})
    [(0, 1, 2, 3, 4), (0, 3, 4, 1, 2)]
    """
    fraction_key, pick_key, order_key = jax.random.split(key, 3)
    index = jnp.arange(tokens.shape[0])
    fraction = 2 * jax.random.uniform(fraction_key)
    pick = jax.random.uniform(pick_key, index.shape) < fraction
    group = jnp.where(pick, kinds, jnp.max(kinds) + 1)
    rank = jnp.where(pick, jax.random.permutation(order_key, index), index)
    # Both sides are sorted by group. Within a group, the words in their own order
    # receive the embeddings of the same words in random order. Words that do not take
    # part form a group without random order, so they keep their embeddings.
    receivers = tokens[jnp.lexsort((index, group))]
    donors = tokens[jnp.lexsort((rank, group))]
    nowhere = params["embed"].shape[0]  # updates of padding are dropped
    receivers = jnp.where(receivers < 0, nowhere, receivers)
    embed = params["embed"]
    new = {"embed": embed.at[receivers].set(embed[donors], mode="drop")}
    if "head" in params:
        head = params["head"]
        moved = head[:, donors]
        new["head"] = head.at[:, receivers].set(moved, mode="drop")
    return {**params, **new}
