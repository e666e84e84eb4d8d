"""The arithmetic of a Llama layer, in forms that were measured to be fast.

These are pure functions without parameters of their own; `transformer` combines them.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

# Of `causal_attention`: the fewest queries that are processed at once, and the largest
# number of such blocks. Each block is one more piece of the program to compile.
QUERY_BLOCK = 64
MAX_QUERY_BLOCKS = 8
MASKED = -1e30  # finite, so that a query without any key gives numbers, not NaN


def causal_attention(
    q: Float[Array, "B S H K"],
    k: Float[Array, "B S J K"],
    v: Float[Array, "B S J K"],
    segments: Int[Array, "B S"],
) -> Float[Array, "B S H K"]:
    """Compute causal attention within segments, one block of queries at a time.

    A block attends only to the keys up to its end. This nearly halves the work, and
    the scores of a block stay in the CPU's cache.

    Args:
      q: queries of H heads of size K.
      k: keys of J heads; H is a multiple of J.
      v: values of J heads.
      segments: the segment of each token. A token attends to itself and to the tokens
        before it in its own segment.
    """
    k, v = as_keys(k), as_values(v)
    slots = jnp.arange(q.shape[1])
    size = max(QUERY_BLOCK, -(-q.shape[1] // MAX_QUERY_BLOCKS))
    out = []
    for start in range(0, q.shape[1], size):
        end = min(start + size, q.shape[1])
        causal = slots[None, :end] <= slots[start:end, None]
        same = segments[:, start:end, None] == segments[:, None, :end]
        mask = causal[None] & same
        out.append(attention(q[:, start:end], [k[..., :end]], [v[:, :, :end]], mask))
    return jnp.concatenate(out, axis=1)


def as_keys(x: Float[Array, "B S J K"]) -> Float[Array, "B J K S"]:
    """Transpose keys to the layout of `attention` and of the cache."""
    return x.transpose(0, 2, 3, 1)


def as_values(x: Float[Array, "B S J K"]) -> Float[Array, "B J S K"]:
    """Transpose values to the layout of `attention` and of the cache."""
    return x.transpose(0, 2, 1, 3)


def write_slots(
    block: Float[Array, "B J *any"],
    new: Float[Array, "B J *any"],
    slots: Int[Array, "B S"],
    axis: int,
) -> Float[Array, "B J *any"]:
    """Write new keys or values into the slots of a cache block.

    Args:
      block: the keys or values of one block of the cache.
      new: the new entries, shaped as `block` but with S entries along `axis`.
      slots: the slot of each entry; an entry whose slot is out of range is dropped.
      axis: the axis of the slots.

    >>> write_slots(
    ...     jnp.zeros((1, 1, 3)), jnp.ones((1, 1, 2)), jnp.array([[2, 3]]), axis=2
    ... ).tolist()
    [[[0.0, 0.0, 1.0]]]
    """
    # Negative indices would count from the end, so they are moved out of range.
    slots = jnp.where(slots < 0, block.shape[axis], slots)
    leading = (slice(None),) * (axis - 1)
    return jax.vmap(lambda x, y, slots: x.at[*leading, slots].set(y, mode="drop"))(
        block, new, slots
    )


def attention(
    q: Float[Array, "B S H K"],
    keys: Sequence[Float[Array, "B J K _"]],
    values: Sequence[Float[Array, "B J _ K"]],
    mask: Bool[Array, "B S M"],
) -> Float[Array, "B S H K"]:
    """Compute grouped-query attention (arXiv 2305.13245) with keys in several blocks.

    With keys laid out as `[K M]`, both products are plain matrix products, which makes
    decoding faster.

    Args:
      q: queries of H heads of size K.
      keys: blocks of keys of J heads, with M slots in total; H is a multiple of J.
      values: blocks of values, with the same slots as `keys`.
      mask: the slots that each query attends to.
    """
    (b, s, h, size), j = q.shape, keys[0].shape[1]
    q = (q * size**-0.5).reshape(b, s, j, h // j, size).transpose(0, 2, 3, 1, 4)
    # The query heads that share a key head become rows of one matrix product.
    q = q.reshape(b, j, -1, size)
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    scores = [product("bjrk,bjkm->bjrm", q, k) for k in keys]
    scores = jnp.concatenate(scores, axis=-1).reshape(b, j, h // j, s, -1)
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, MASKED))
    weights = weights.astype(values[0].dtype).reshape(b, j, -1, scores.shape[-1])
    out, start = jnp.zeros((b, j, weights.shape[2], size), values[0].dtype), 0
    for v in values:
        end = start + v.shape[2]
        out += jnp.einsum("bjrm,bjmk->bjrk", weights[..., start:end], v)
        start = end
    return out.reshape(b, h, s, size).swapaxes(1, 2)


def rms_norm(
    x: Float[Array, "*batch D"], scale: Float[Array, "D"], eps: float
) -> Float[Array, "*batch D"]:
    """Apply RMSNorm (arXiv 1910.07467), computed in float32.

    Args:
      x: the vectors to normalise.
      scale: a learned factor for each channel.
      eps: added to the mean square.

    >>> rms_norm(jnp.array([3.0, -3.0]), scale=jnp.ones(2), eps=0.0).tolist()
    [1.0, -1.0]
    """
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * scale[(None,) * (x.ndim - 1)]).astype(x.dtype)


def matmul(
    x: Float[Array, "*batch D"], weight: Float[Array, "D E"], dtype
) -> Float[Array, "*batch E"]:
    """Compute `x @ weight` with the leading axes of `x` flattened.

    With two leading axes, XLA's CPU backend makes a slow transposed copy of an operand
    when it computes the gradient of `weight`: a whole training step was measured to
    take 1.15 to 1.35 times as long.

    Args:
      x: the input.
      weight: the matrix.
      dtype: the dtype of the result and of the accumulation.
    """
    rows = x.reshape(-1, x.shape[-1])
    y = jnp.matmul(rows, weight, preferred_element_type=dtype)
    return y.reshape(*x.shape[:-1], -1)
