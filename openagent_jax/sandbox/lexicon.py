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

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt
from tokenizers import Tokenizer

from openagent_jax.sandbox import spelling
from openagent_jax.sandbox import style as styles
from openagent_jax.sandbox.symbols import Symbols

MAX_TEXT = 64  # bytes of the longest surface form that can be looked up
NUM_BASES = 32  # that are tried


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

    spans: Ragged  # symbol -> tokens; see `write`
    lends: Bool[Array, "Y"]  # its last blank is spelled with what follows
    texts: Ragged  # symbol -> bytes
    token_bytes: Ragged  # token -> bytes
    canonical: Int[Array, "Y"]
    twin: Int[Array, "Y"]  # next symbol of the same text, or -1
    hashes: UInt[Array, "U"]  # sorted
    hash_symbol: Int[Array, "U"]  # canonical symbol of each hash
    base: UInt[Array, ""]  # r
    style: styles.Style[int] = field(metadata=dict(static=True))
    style_digest: str = field(metadata=dict(static=True))  # of its texts
    end_token: int = field(metadata=dict(static=True))
    vocab_size: int = field(metadata=dict(static=True))
    max_twins: int = field(metadata=dict(static=True))
    num_probes: int = field(metadata=dict(static=True))  # texts of one hash, at most
    any_lends: bool = field(metadata=dict(static=True))


def concatenate(
    table: Ragged, rows: Int[Array, "P"], size: int, num_rows: Array | int | None = None
) -> tuple[Array, Int[Array, "size"], Int[Array, ""]]:
    """The named rows end to end: `(flat[size], index of the row, total length)`.

    Args:
      table: where they are.
      rows: which.
      size: room; what does not fit is cut, and then the total length is larger.
      num_rows: the first so many of `rows` count; all, if not given.
    """
    lengths = table.length[rows]
    if num_rows is not None:
        lengths = jnp.where(jnp.arange(rows.shape[0]) < num_rows, lengths, 0)
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
    """Tokens of a row of symbols: `(tokens, index of the piece, length)`.

    Most tokenizers spell a blank together with the word behind it. So the last blank of
    a text goes to the next one: there are spans of each text without its last blank,
    with another one in front, and with both, as many rows further.
    """
    if lexicon.any_lends:
        num, place = len(lexicon.lends), jnp.arange(symbols.shape[0])
        real = lexicon.texts.length[symbols] > 0
        lends = lexicon.lends[symbols] & (place < jnp.max(jnp.where(real, place, -1)))
        last = jax.lax.cummax(jnp.where(real, place, -1))
        before = jnp.concatenate([jnp.array([-1]), last[:-1]])
        led = real & (before >= 0) & lends[before]
        symbols = symbols + num * lends + 2 * num * led
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
    first = jnp.searchsorted(lexicon.hashes, value, method="scan_unrolled")
    length = end - begin
    offset = jnp.arange(MAX_TEXT)[None]
    here = text[jnp.minimum(begin[:, None] + offset, size - 1)]
    found = jnp.full_like(begin, -1)
    for probe in range(lexicon.num_probes):
        index = jnp.minimum(first + probe, lexicon.hashes.shape[0] - 1)
        symbol = lexicon.hash_symbol[index]
        hit = (lexicon.hashes[index] == value) & (
            lexicon.texts.length[symbol] == length
        )
        there = lexicon.texts.flat[lexicon.texts.start[symbol][:, None] + offset]
        same = jnp.all((here == there) | (offset >= length[:, None]), axis=1)
        found = jnp.where(hit & same & (length <= MAX_TEXT), symbol, found)
    return found


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


def build(
    symbols: Symbols,
    tokenizer: Tokenizer,
    style: styles.Style[str],
    vocab_size: int = 0,
) -> Lexicon:
    """Precompute all tables.

    Args:
      symbols: the surface forms; the texts of the style are added to them.
      tokenizer: of the kind of byte-level BPE or of SentencePiece.
      style: in which episodes are written.
      vocab_size: of the model; tokens that the tokenizer does not know mean nothing.

    Raises:
      ValueError: a surface form is too long; the tokenizer lacks a token, changes what
        it is given, or has more tokens than the model.
    """
    for text in symbols.texts:
        if (size := len(text.encode())) > 4 * MAX_TEXT:
            raise ValueError(f"lexicon: surface form of {size} bytes: {text!r}")
    end = tokenizer.token_to_id(style.end)
    if end is None:
        raise ValueError(f"tokenizer: it has no token {style.end!r}")
    num_tokens = spelling.num_tokens(tokenizer)
    if vocab_size and vocab_size < num_tokens:
        raise ValueError(
            f"tokenizer: it has {num_tokens} tokens, and the model knows {vocab_size}"
        )
    marks = b"".join(style.marks)
    numbers = symbols.numbers.low, symbols.numbers.high
    form = styles.mapped(style, symbols.one, numbers=numbers)
    texts = symbols.texts
    raw = [text.encode() for text in texts]
    tokenizer = spelling.as_it_is(tokenizer)
    token_bytes = spelling.token_bytes(tokenizer, marks)
    written, lends = texts, np.zeros(len(texts), bool)
    if any(row[:1] == [32] and len(row) > 1 for row in token_bytes):
        # Not where the agent begins to speak: what it says is its own.
        starts = form.assistant, form.tool_close, form.reply_close
        lends = np.array([text.endswith(" ") for text in texts])
        lends[[*starts]] = False
        cut = [text[:-1] if x else text for text, x in zip(texts, lends, strict=True)]
        written = texts + cut + [" " + text for text in texts + cut]
    spans = [x.ids for x in tokenizer.encode_batch(written, add_special_tokens=False)]
    spelling.check(written, spans, tokenizer, token_bytes)
    token_bytes += [[0]] * (vocab_size - num_tokens)
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
    base, hashes = _hashed(unique)
    order = np.argsort(hashes, kind="stable")
    return Lexicon(
        spans=_ragged(spans, np.int32),
        lends=jnp.asarray(lends),
        texts=_ragged([list(d) for d in raw], np.uint8, pad=MAX_TEXT),
        token_bytes=_ragged(token_bytes, np.uint8),
        canonical=jnp.asarray(canonical),
        twin=jnp.asarray(twin),
        hashes=jnp.asarray(hashes[order]),
        hash_symbol=jnp.asarray(np.array([first[u] for u in unique])[order], jnp.int32),
        base=jnp.uint32(base),
        style=form,
        style_digest=hashlib.sha256(repr(style).encode()).hexdigest()[:16],
        end_token=end,
        vocab_size=max(vocab_size, num_tokens),
        max_twins=max(count.values()),
        num_probes=int(np.unique(hashes, return_counts=True)[1].max()),
        any_lends=bool(lends.any()),
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


def _hashed(texts: Sequence[bytes]) -> tuple[int, np.ndarray]:
    """An odd base, and the hashes of all texts under it: all different, if there is
    such a base among the first ones, as there is for up to some 150,000 texts."""
    flat = np.frombuffer(b"".join(texts), np.uint8).astype(np.uint32) + 1
    length = np.array([len(text) for text in texts])
    end = np.cumsum(length)
    offset = np.arange(len(flat)) - np.repeat(end - length, length)
    best, num_best = (0, end), 0
    for i in range(NUM_BASES):
        base = (1_000_003 + i * 2_654_435) | 1
        power = np.full(max(length.max(), 1), base, np.uint32)
        power[0] = 1
        power = np.cumprod(power, dtype=np.uint32)
        sums = np.cumsum(flat * power[offset], dtype=np.uint32)
        sums = np.concatenate([np.zeros(1, np.uint32), sums])
        hashes = sums[end] - sums[end - length]
        num = len(np.unique(hashes))
        if num > num_best:
            best, num_best = (base, hashes), num
        if num == len(texts):
            break
    return best
