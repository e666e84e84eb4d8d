"""Embeddings in which the forms of a word resemble each other.

`oak`, `Oak`, `oak ` and `oak_` are four tokens. Where each has a random vector of its
own, a decoder has to learn for every word that the four belong together, and cannot
know it of a word that it has never met. Here the vector of a token is the sum of one
that all forms of its stem share and one that all stems in this form share, so that
attention finds the word of a request in the name of a tool, and the output head tells
the forms apart.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FORM_SHARE = 0.2  # share of the variance that tells the forms of a word apart


def split(text: bytes) -> tuple[bytes, bytes]:
    """Return the stem and the form of a token.

    Tokens that are not letters have no forms: they are stems of their own.

    >>> split(b"oak"), split(b"Oak "), split(b"oak_")
    ((b'oak', b'a'), (b'oak', b'A '), (b'oak', b'a_'))
    >>> split(b" oak"), split(b"7"), split(b" ")
    ((b'oak', b' a'), (b'7', b''), (b' ', b''))
    """
    letters = text.removeprefix(b" ")  # many tokenizers begin words with the blank
    start, end = text[: len(text) - len(letters)], b""
    if letters[-1:] in (b" ", b"_"):
        letters, end = letters[:-1], letters[-1:]
    if not letters.isalpha():
        return text, b""
    return letters.lower(), start + (b"A" if letters[:1].isupper() else b"a") + end


def join(
    embed: Float[Array, "V D"], texts: Sequence[bytes], key: jax.Array
) -> Float[Array, "V D"]:
    """Return a random embedding with its vectors combined by stem and form.

    The length of the vectors stays about the same. The first channel, which may be the
    same for all tokens (`initial_heads`), stays exactly the same.

    Args:
      embed: random vectors.
      texts: the text of each token; further tokens keep their vectors.
      key: PRNG key for the vectors of the forms.

    >>> embed = jax.random.normal(jax.random.key(0), (4, 400))
    >>> new = join(embed, [b"oak", b"Oak ", b"elm"], jax.random.key(1))
    >>> alike = jnp.corrcoef(new[:, 1:])
    >>> bool(alike[0, 1] > 0.7), bool(alike[0, 2] < 0.3)
    (True, True)
    """
    pairs = [split(text) for text in texts]
    with_forms = [i for i, (_, form) in enumerate(pairs) if form]
    if not with_forms:
        return embed
    first: dict[bytes, int] = {}
    for token, (stem, form) in enumerate(pairs):
        if form:
            first.setdefault(stem, token)
    names, form = np.unique([pairs[i][1] for i in with_forms], return_inverse=True)
    token = np.array(with_forms)
    stem = np.array([first[pairs[i][0]] for i in with_forms])
    scale = jnp.std(embed[:, 1:])
    of_form = scale * jax.random.normal(key, (len(names), embed.shape[1] - 1))
    shared, own = (1 - FORM_SHARE) ** 0.5, FORM_SHARE**0.5
    new = shared * embed[stem, 1:] + own * of_form[form]
    return embed.at[token, 1:].set(new.astype(embed.dtype))
