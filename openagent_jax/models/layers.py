"""The arithmetic of a Llama layer, in the forms that were measured to be fast.

All functions are pure and know no parameters; `transformer` puts them together.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

QUERY_BLOCK = 64  # queries attended at once, see `causal_attention`
MASKED = -1e30  # finite: a row without any key gives numbers, not NaN


def causal_attention(
    q: Float[Array, "B S H K"],
    k: Float[Array, "B S J K"],
    v: Float[Array, "B S J K"],
    segments: Int[Array, "B S"],
) -> Float[Array, "B S H K"]:
    """Attention within the segments of `[B S]`, a block of queries at a time.

    A block looks only at the keys up to its end. That is half the work, and the
    scores of a block stay in the CPU's cache.
    """
    k, v = as_keys(k), as_values(v)
    slots = jnp.arange(q.shape[1])
    out = []
    for start in range(0, q.shape[1], QUERY_BLOCK):
        end = min(start + QUERY_BLOCK, q.shape[1])
        causal = slots[None, :end] <= slots[start:end, None]
        same = segments[:, start:end, None] == segments[:, None, :end]
        mask = causal[None] & same
        out.append(attention(q[:, start:end], [k[..., :end]], [v[:, :, :end]], mask))
    return jnp.concatenate(out, axis=1)


def as_keys(x: Float[Array, "B S J K"]) -> Float[Array, "B J K S"]:
    """The layout that `attention` wants of keys."""
    return x.transpose(0, 2, 3, 1)


def as_values(x: Float[Array, "B S J K"]) -> Float[Array, "B J S K"]:
    """The layout that `attention` wants of values."""
    return x.transpose(0, 2, 1, 3)


def put(
    whole: Float[Array, "B J *any"],
    part: Float[Array, "B J *any"],
    slots: Int[Array, "B S"],
    axis: int,
) -> Float[Array, "B J *any"]:
    """`part` written into the slots of an axis; what is out of range is not."""
    # A negative index would count from the end.
    slots = jnp.where(slots < 0, whole.shape[axis], slots)
    at = (slice(None),) * (axis - 1)
    return jax.vmap(lambda x, y, slots: x.at[*at, slots].set(y, mode="drop"))(
        whole, part, slots
    )


def attention(
    q: Float[Array, "B S H K"],
    keys: Sequence[Float[Array, "P J K _"]],
    values: Sequence[Float[Array, "P J _ K"]],
    mask: Bool[Array, "B S M"],
) -> Float[Array, "B S H K"]:
    """Keys and values come in blocks, M slots together; query heads in groups, one for
    each of the J key heads. B / P rows in a row share a block: P is B, or less.

    With keys as `[K M]` both products are plain ones, which matters in decoding.
    """
    (b, s, h, size), j = q.shape, keys[0].shape[1]
    q = (q * size**-0.5).reshape(b, s, j, h // j, size).transpose(0, 2, 3, 1, 4)
    # The queries of a group are the rows of one matrix product with their keys.
    q = q.reshape(b, j, -1, size)
    product = partial(jnp.einsum, preferred_element_type=jnp.float32)
    scores = [
        _by_rows(product("pjrk,pjkm->pjrm", _by_groups(q, len(k)), k), b) for k in keys
    ]
    scores = jnp.concatenate(scores, axis=-1).reshape(b, j, h // j, s, -1)
    weights = jax.nn.softmax(jnp.where(mask[:, None, None], scores, MASKED))
    weights = weights.astype(values[0].dtype).reshape(b, j, -1, scores.shape[-1])
    out, start = jnp.zeros((b, j, weights.shape[2], size), values[0].dtype), 0
    for v in values:
        end = start + v.shape[2]
        part = _by_groups(weights[..., start:end], len(v))
        out += _by_rows(jnp.einsum("pjrm,pjmk->pjrk", part, v), b)
        start = end
    return out.reshape(b, h, s, size).swapaxes(1, 2)


def _by_groups(x: Float[Array, "B J R _"], num: int) -> Float[Array, "P J _ _"]:
    """The rows of each of `num` groups side by side, as rows of one matrix."""
    b, j, r, size = x.shape
    return x.reshape(num, b // num, j, r, size).swapaxes(1, 2).reshape(num, j, -1, size)


def _by_rows(x: Float[Array, "P J _ _"], num: int) -> Float[Array, "B J R _"]:
    """Apart again."""
    p, j, _, size = x.shape
    return x.reshape(p, j, num // p, -1, size).swapaxes(1, 2).reshape(num, j, -1, size)


def rms_norm(
    x: Float[Array, "*batch D"], scale: Float[Array, "D"], eps: float
) -> Float[Array, "*batch D"]:
    """Divide by the root mean square, in float32."""
    y = x.astype(jnp.float32)
    y = y * lax.rsqrt(jnp.mean(y * y, axis=-1, keepdims=True) + eps)
    return (y * scale[(None,) * (x.ndim - 1)]).astype(x.dtype)


def matmul(
    x: Float[Array, "*batch D"], weight: Float[Array, "D E"], dtype
) -> Float[Array, "*batch E"]:
    """`x @ weight` on flat rows.

    With two leading axes XLA's CPU backend makes a slow transposed copy of whatever
    comes before the gradient of `weight`: a whole training step was seen to take
    1.15 to 1.35 times as long.
    """
    rows = x.reshape(-1, x.shape[-1])
    y = jnp.matmul(rows, weight, preferred_element_type=dtype)
    return y.reshape(*x.shape[:-1], -1)
