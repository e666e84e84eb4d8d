"""Surface forms: from symbols to tokens, and from bytes back to symbols.

A `Lexicon` is built once on the host from a list of surface forms and a
tokenizer. In JAX it does two things, both by table look-up:

* `write` concatenates the token spans of a row of symbols (ragged);
* `find` looks up a run of bytes among all surface forms. Texts are hashed by
  sum((byte + 1) * r**k) mod 2**32, whose values over all runs of a text come from
  one cumulative sum; a hit is then verified byte by byte.

Tokens become bytes before anything is parsed, so that any segmentation of the
same text counts the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.sandbox.symbols import Style, Symbols

MAX_TEXT = 64  # bytes of the longest surface form that can be looked up


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Ragged:
    """Rows of different length, stored end to end."""

    flat: Array
    start: Int[Array, "R"]
    length: Int[Array, "R"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Lexicon:
    """Tables over symbols and tokens. `canonical` is the first symbol of equal text."""

    spans: Ragged  # symbol -> tokens
    texts: Ragged  # symbol -> bytes
    token_bytes: Ragged  # token -> bytes
    canonical: Int[Array, "Y"]
    twin: Int[Array, "Y"]  # next symbol of the same text, or -1
    hashes: UInt[Array, "U"]  # sorted
    hash_symbol: Int[Array, "U"]  # canonical symbol of each hash
    base: UInt[Array, ""]  # r
    style: Style = field(metadata=dict(static=True))
    end_token: int = field(metadata=dict(static=True))
    vocab_size: int = field(metadata=dict(static=True))
    max_twins: int = field(metadata=dict(static=True))


def concatenate(
    table: Ragged, rows: Int[Array, "P"], size: int
) -> tuple[Array, Int[Array, "size"], Int[Array, ""]]:
    """The named rows end to end: `(flat[size], index of the row, total length)`.

    What does not fit into `size` is cut; then the total length is larger.
    """
    lengths = table.length[rows]
    ends = jnp.cumsum(lengths)
    place = jnp.arange(size)
    index = jnp.searchsorted(ends, place, side="right", method="scan_unrolled")
    index = jnp.minimum(index, rows.shape[0] - 1).astype(jnp.int32)
    offset = place - (ends - lengths)[index]
    values = table.flat[table.start[rows[index]] + offset]
    return jnp.where(place < ends[-1], values, 0), index, ends[-1]


def write(
    lexicon: Lexicon, symbols: Int[Array, "P"], num_tokens: int
) -> tuple[Int[Array, "S"], Int[Array, "S"], Int[Array, ""]]:
    """Tokens of a row of symbols: `(tokens, index of the piece, length)`."""
    return concatenate(lexicon.spans, symbols, num_tokens)


def powers(base: Array, num: int) -> tuple[Array, Array]:
    """`base**k` and `base**-k` mod 2**32 for k < num; the base is odd."""
    inverse = base
    for _ in range(5):  # Newton: each step doubles the number of right bits
        inverse = inverse * (jnp.uint32(2) - base * inverse)
    ones = jnp.ones((1,), jnp.uint32)
    up = jnp.cumprod(jnp.full((num - 1,), base, jnp.uint32), dtype=jnp.uint32)
    down = jnp.cumprod(jnp.full((num - 1,), inverse, jnp.uint32), dtype=jnp.uint32)
    return jnp.concatenate([ones, up]), jnp.concatenate([ones, down])


def find(
    lexicon: Lexicon,
    text: UInt[Array, "Z"],
    begin: Int[Array, "R"],
    end: Int[Array, "R"],
) -> Int[Array, "R"]:
    """Canonical symbols of the runs `text[begin:end]`; -1 where no form is equal."""
    size = text.shape[0]
    up, down = powers(lexicon.base, size)
    terms = (text.astype(jnp.uint32) + 1) * up
    sums = jnp.concatenate([jnp.zeros((1,), jnp.uint32), jnp.cumsum(terms)])
    clipped = jnp.clip(begin, 0, size - 1)
    value = (sums[jnp.clip(end, 0, size)] - sums[clipped]) * down[clipped]
    index = jnp.searchsorted(lexicon.hashes, value, method="scan_unrolled")
    index = jnp.minimum(index, lexicon.hashes.shape[0] - 1)
    symbol = lexicon.hash_symbol[index]
    length = end - begin
    hit = (lexicon.hashes[index] == value) & (lexicon.texts.length[symbol] == length)
    offset = jnp.arange(MAX_TEXT)[None]
    here = text[jnp.minimum(begin[:, None] + offset, size - 1)]
    there = lexicon.texts.flat[lexicon.texts.start[symbol][:, None] + offset]
    same = jnp.all((here == there) | (offset >= length[:, None]), axis=1)
    return jnp.where(hit & same & (length <= MAX_TEXT), symbol, -1)


def resolve(
    lexicon: Lexicon, symbol: Int[Array, "..."], low: Array, high: Array
) -> Int[Array, "..."]:
    """The symbol of equal text within `[low, high)`, or -1."""
    found = jnp.full_like(symbol, -1)
    for _ in range(lexicon.max_twins):
        inside = (symbol >= 0) & (low <= symbol) & (symbol < high)
        found = jnp.where((found < 0) & inside, symbol, found)
        symbol = jnp.where(symbol >= 0, lexicon.twin[symbol], -1)
    return found


def same_text(lexicon: Lexicon, a: Array, b: Array) -> Bool[Array, "..."]:
    """Whether two symbols read the same; -1 equals nothing."""
    canonical = lexicon.canonical
    return (a >= 0) & (b >= 0) & (canonical[a] == canonical[b])


# Host side.


def build(symbols: Symbols, tokenizer) -> Lexicon:
    """Precompute all tables for a `tokenizers.Tokenizer` (byte-level BPE).

    Raises:
      ValueError: a surface form is too long, or the tokenizer lacks a token.
    """
    texts, end_token = symbols.texts, symbols.texts[symbols.style.end]
    raw = [text.encode() for text in texts]
    for text, data in zip(texts, raw, strict=True):
        if len(data) > 4 * MAX_TEXT:
            raise ValueError(f"lexicon: surface form of {len(data)} bytes: {text!r}")
    encoded = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    first: dict[bytes, int] = {}
    canonical = np.array([first.setdefault(d, i) for i, d in enumerate(raw)], np.int32)
    twin = np.full(len(raw), -1, np.int32)
    last: dict[bytes, int] = {}
    count: dict[bytes, int] = {}
    for i, data in enumerate(raw):
        if data in last:
            twin[last[data]] = i
        last[data] = i
        count[data] = count.get(data, 0) + 1
    unique = list(first)
    base, hashes = _perfect_hash(unique)
    order = np.argsort(hashes)
    end = tokenizer.token_to_id(end_token)
    if end is None:
        raise ValueError(f"tokenizer: it has no token {end_token!r}")
    return Lexicon(
        spans=_ragged([e.ids for e in encoded], np.int32),
        texts=_ragged([list(d) for d in raw], np.uint8, pad=MAX_TEXT),
        token_bytes=_ragged(_token_bytes(tokenizer), np.uint8),
        canonical=jnp.asarray(canonical),
        twin=jnp.asarray(twin),
        hashes=jnp.asarray(hashes[order]),
        hash_symbol=jnp.asarray(np.array([first[u] for u in unique])[order], jnp.int32),
        base=jnp.uint32(base),
        style=symbols.style,
        end_token=end,
        vocab_size=tokenizer.get_vocab_size(with_added_tokens=True),
        max_twins=max(count.values()),
    )


def _ragged(rows: Sequence[Sequence[int]], dtype, pad: int = 1) -> Ragged:
    length = np.array([len(row) for row in rows], np.int32)
    start = np.cumsum(length) - length
    flat = np.zeros(int(length.sum()) + pad, dtype)
    for begin, row in zip(start, rows, strict=True):
        flat[begin : begin + len(row)] = row
    return Ragged(
        jnp.asarray(flat), jnp.asarray(start.astype(np.int32)), jnp.asarray(length)
    )


def _perfect_hash(texts: Sequence[bytes]) -> tuple[int, np.ndarray]:
    """An odd base under which all texts hash differently."""
    for base in range(1_000_003, 2**31, 2_654_435):
        base |= 1
        hashes = np.array([_hash(text, base) for text in texts], np.uint32)
        if len(np.unique(hashes)) == len(texts):
            return base, hashes
    raise ValueError("lexicon: no hash base separates the surface forms")


def _hash(text: bytes, base: int) -> int:
    value, power = 0, 1
    for byte in text:
        value = (value + (byte + 1) * power) % 2**32
        power = power * base % 2**32
    return value


def _token_bytes(tokenizer) -> list[list[int]]:
    """Bytes of every token; special tokens are a NUL, which no text may hold."""
    alphabet = _byte_level_alphabet()
    added = tokenizer.get_added_tokens_decoder()
    rows = []
    for token in range(tokenizer.get_vocab_size(with_added_tokens=True)):
        if token in added:
            special = added[token].special
            rows.append([0] if special else list(added[token].content.encode()))
        else:
            text = tokenizer.id_to_token(token) or ""
            rows.append([alphabet[char] for char in text])
    return rows


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in keep}
    others = [byte for byte in range(256) if byte not in keep]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table
