"""Scan a reply of the agent: from sampled tokens, through bytes, to symbols.

All environments share this scan. It knows how a call, an answer, a refusal and a
question are written, and it knows the surface forms of the lexicon, but not their
meaning: each environment binds the name of a call to a tool and its arguments to
parameters (see `environments/tools/parse.py`).

A call is a JSON object, between the marks of the style (such as `<tool_call>`) if the
style has any. The object has a name, an object of arguments and, optionally, the
purpose of the call. White space, the order of the keys and escapes are free, and text
before the marks is ignored. The values of arguments are strings, numbers, booleans and
null; a number may have up to 32 characters. In a reply without a call, the last line
counts: `Answer: ` and a value, `Refuse` or `Ask`. Everything else, including bytes that
are not UTF-8, is MALFORMED; no input raises an error.

Because tokens are converted to bytes first, every segmentation of a text gives the same
result. All escapes are replaced in parallel. The bytes are then split into JSON tokens
by parallel operations (quotes by a running parity, everything else by looking at the
neighbouring bytes), and a short `lax.scan` over those JSON tokens checks the grammar.
"""

import string
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.text import escapes, scalars
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import style as styles
from openagent_jax.text.lexicon import Lexicon

# Kinds of reply, which are also the kinds of action.
CALL, ANSWER, REFUSE, ASK, MALFORMED = range(5)

BYTES_PER_TOKEN = 8  # a reply of S tokens may have up to 8 S bytes

# Classes of JSON tokens.
# Bare ones are numbers, booleans and null.
STRING, BARE, OPEN, CLOSE, COLON, COMMA, NOTHING, BAD = range(8)
BARE_WORDS = b"true", b"false", b"null"
PUNCTUATION = {"{": OPEN, "}": CLOSE, ":": COLON, ",": COMMA}

# States of the grammar, named after what may come next.
_START, _KEY, _KEY_COLON, _KEY_VALUE, _MORE = range(5)
_ARG_OR_END, _ARG, _ARG_COLON, _VALUE, _ARG_MORE = range(5, 10)
_END, _FAIL = 10, 11


class Scan(NamedTuple):
    """What a reply says, as symbols of the lexicon.

    A symbol is -1 if nothing was written, or if the text is not a surface form of the
    lexicon; for arguments, `given` distinguishes the two cases. Symbols are canonical:
    of all symbols with the same text, the first. Compare them with `lexicon.same_text`
    or `lexicon.same_value`, and use `lexicon.resolve` to find the value within a range
    that a text stands for.

    K is one more than the `max_args` of `scan`. All fields but `kind` and `value` are
    empty (-1 or False) unless `kind` is CALL.
    """

    kind: Int[Array, ""]  # CALL, ANSWER, REFUSE, ASK or MALFORMED
    name: Int[Array, ""]  # the name of the called tool
    arg_names: Int[Array, "K"]  # names of the arguments, in the order written
    arg_values: Int[Array, "K"]  # their values; the number 17 is the text "17"
    # The numbers that the values spell, with quotes or without, in canonical form (see
    # `scalars`); -1 for other values, and for numbers that do not fit.
    arg_numbers: Int[Array, "K"]
    is_null: Bool[Array, "K"]  # which of the values are null
    given: Bool[Array, "K"]  # which of the K arguments were written
    # ANSWER: the answer, a number or a symbol; otherwise -1.
    value: Int[Array, ""]


class _Tokens(NamedTuple):
    text: UInt[Array, "Z"]  # with escapes replaced; `begin` and `end` index into it
    kind: Int[Array, "J"]
    begin: Int[Array, "J"]
    end: Int[Array, "J"]
    valid: Bool[Array, ""]


def detokenize(
    lexicon: Lexicon, tokens: Int[Array, "S"], length: Int[Array, ""]
) -> tuple[UInt[Array, "Z"], Int[Array, ""]]:
    """Return the bytes of the first `length` tokens, and their number.

    Args:
      lexicon: the lexicon, which has the bytes of every token.
      tokens: the tokens of the reply, padded on the right.
      length: number of tokens that count, without the token that ends the reply.

    Returns:
      `(text, num_bytes)`, where `text` has Z = `BYTES_PER_TOKEN * S` bytes. If the text
      does not fit, `num_bytes` is larger than Z, and `scan` reports MALFORMED.
    """
    size = BYTES_PER_TOKEN * tokens.shape[0]
    text, _, num_bytes = lexicons.concatenate(lexicon.token_bytes, tokens, size, length)
    return text, num_bytes


def scan(
    lexicon: Lexicon,
    text: UInt[Array, "Z"],
    num_bytes: Int[Array, ""],
    max_args: int,
) -> Scan:
    """Return what the reply `text[:num_bytes]` says.

    The function is pure and its shapes are static, so it works under `jax.jit` and
    `jax.vmap`. An environment interprets the symbols that it returns, for example for
    a tool `get(item)`:

        text, num_bytes = reply_scan.detokenize(lexicon, tokens, length)
        reply = reply_scan.scan(lexicon, text, num_bytes, max_args=1)
        is_get = lexicons.same_text(lexicon, reply.name, get)  # get: a symbol
        value, number = reply.arg_values[0], reply.arg_numbers[0]
        item = lexicons.resolve(lexicon, value, number, items.low, items.high)

    Args:
      lexicon: the surface forms to look up; its style defines how a call is marked and
        the keys of its JSON object.
      text: the bytes of the reply, as `detokenize` returns them.
      num_bytes: number of bytes of `text` that count. If it is larger than Z, the reply
        was truncated and is MALFORMED.
      max_args: the largest number of arguments of a tool. One more is read and returned
        (K is `max_args + 1`), for worlds in which a call may also have a code.
        A call with more than K arguments is MALFORMED.

    Returns:
      The `Scan`. The caller has to check whether an argument was written twice.
    """
    max_pairs = max_args + 1
    place = jnp.arange(text.shape[0])
    text = jnp.where(place < num_bytes, text, ord(" "))
    valid = (num_bytes <= text.shape[0]) & escapes.is_utf8(text)
    end = _end(text)
    text = jnp.where(place < end, text, ord(" "))

    style = lexicon.style
    marks = style.marks
    breaks = ((text == ord("\n")) | (text == ord("\r"))) & (place < end)
    line = jnp.max(jnp.where(breaks, place, -1))
    begin = jnp.argmax(~_blank(text) & (place > line))
    answers, value_begin = _starts_with(text, begin, marks.answer)
    refuses, after_refuse = _starts_with(text, begin, marks.refuse)
    asks, after_ask = _starts_with(text, begin, marks.ask)
    refuses &= after_refuse == end
    asks &= after_ask == end

    marked, inside = _between(text, end, marks)
    json = _tokenize(jnp.where(inside, text, ord(" ")), max_tokens=15 + 4 * max_pairs)
    well_formed, keys, texts, arg_names, arg_values = _check_grammar(json)
    spans = jnp.concatenate([keys, texts, arg_names, arg_values])
    symbols = lexicons.find(lexicon, json.text, json.begin[spans], json.end[spans])
    symbols = jnp.where(spans >= 0, symbols, -1)
    numbers = scalars.read(json.text, json.begin[arg_values], json.end[arg_values])
    bare = (json.kind[arg_values] == BARE) & (arg_values >= 0)
    words = jnp.stack([bare & _is_word(json, arg_values, x) for x in BARE_WORDS])
    well_formed &= jnp.all(~bare | numbers.is_number | jnp.any(words, axis=0))
    arg_numbers = jnp.where(arg_values >= 0, numbers.value, -1)
    answer = lexicons.find(lexicon, text, value_begin[None], end[None])[0]
    number = scalars.read(text, value_begin[None], end[None]).value[0]
    answer = jnp.where(number >= 0, number, answer)

    def reads(symbol, text: int):
        return lexicons.same_text(lexicon, symbol, jnp.int32(text))

    is_name = reads(symbols[:2], style.key_name)
    is_purpose = reads(symbols[:2], style.key_purpose) | (keys[:2] < 0)
    right_keys = (is_name & is_purpose[::-1]).any()
    right_keys &= reads(symbols[2], style.key_arguments)
    called = marked & well_formed & json.valid & right_keys
    kind = jnp.int32(MALFORMED)
    kind = jnp.where(asks, ASK, kind)
    kind = jnp.where(refuses, REFUSE, kind)
    kind = jnp.where(answers, ANSWER, kind)
    if marks.call_open:  # an answer must not contain the opening mark of a call
        kind = jnp.where(marked, MALFORMED, kind)
    kind = jnp.where(called, CALL, kind)
    kind = jnp.where(valid, kind, MALFORMED)
    is_call = kind == CALL
    return Scan(
        kind=kind,
        name=jnp.where(is_call, symbols[3 + jnp.argmax(is_name)], -1),
        arg_names=jnp.where(is_call, symbols[5 : 5 + max_pairs], -1),
        arg_values=jnp.where(is_call, symbols[5 + max_pairs :], -1),
        arg_numbers=jnp.where(is_call, arg_numbers, -1),
        is_null=is_call & words[BARE_WORDS.index(b"null")],
        given=is_call & (arg_names >= 0),
        value=jnp.where(kind == ANSWER, answer, -1),
    )


def _end(text: UInt[Array, "Z"]) -> Array:
    """Return the length of the text without trailing white space."""
    visible = ~_blank(text)
    end = text.shape[0] - jnp.argmax(visible[::-1])
    return jnp.where(jnp.any(visible), end, 0)


def _blank(text: Array) -> Array:
    return (text == 32) | (text == 9) | (text == 10) | (text == 13)


def _starts_with(text: UInt[Array, "Z"], begin, mark: bytes) -> tuple[Array, Array]:
    """Return whether the text has a mark at `begin`, and where the mark ends."""
    wanted = np.frombuffer(mark, np.uint8)
    actual = text[jnp.minimum(begin + jnp.arange(len(mark)), text.shape[0] - 1)]
    return jnp.all(actual == wanted), begin + len(mark)


def _between(
    text: UInt[Array, "Z"], end: Array, marks: styles.Marks
) -> tuple[Bool[Array, ""], Bool[Array, "Z"]]:
    """Return whether the text opens a call, and a mask of the bytes between its marks.

    The mask starts after the first opening mark. It is empty if the text does not end
    with the closing mark.
    """
    place = jnp.arange(text.shape[0])
    opened = jnp.bool_(True)
    begin, stop = jnp.int32(0), end
    if marks.call_open:
        # Padding, so that every position has enough bytes to compare with the mark.
        after = jnp.pad(text, (0, len(marks.call_open)), constant_values=ord(" "))
        here = jnp.stack(
            [after[i : i + len(text)] == x for i, x in enumerate(marks.call_open)]
        ).all(axis=0)
        opened = jnp.any(here)
        begin = jnp.argmax(here) + len(marks.call_open)
    if marks.call_close:
        stop = end - len(marks.call_close)
        closed, _ = _starts_with(text, jnp.maximum(stop, 0), marks.call_close)
        stop = jnp.where(closed, stop, 0)
    return opened, (place >= begin) & (place < stop)


def _tokenize(text: UInt[Array, "Z"], max_tokens: int) -> _Tokens:
    """Return the JSON tokens of a text: kinds and spans (strings without quotes)."""
    size = text.shape[0]
    place = jnp.arange(size)
    escaped = escapes.escaped(text)
    quote = (text == ord('"')) & ~escaped
    inside = jnp.cumsum(quote) % 2 == 1  # from an opening quote to before the closing
    closing = quote & ~inside
    control = inside & (text < 32)
    unescaped = escapes.unescape(text, inside & ~quote, escaped)

    table = np.full(256, BAD, np.int32)
    for char, kind in PUNCTUATION.items():
        table[ord(char)] = kind
    for char in "+-." + string.digits + string.ascii_letters:
        table[ord(char)] = BARE
    kind = jnp.asarray(table)[text]
    bare = (kind == BARE) & ~inside & ~closing
    begins_bare = bare & ~jnp.concatenate([jnp.array([False]), bare[:-1]])
    outside = ~inside & ~closing & ~_blank(text)
    starts = (quote & inside) | begins_bare | (outside & ~bare)
    kind = jnp.where(quote & inside, STRING, kind)

    count = jnp.cumsum(starts)
    where = jnp.searchsorted(count, jnp.arange(1, max_tokens + 1), side="left")
    real = jnp.arange(max_tokens) < count[-1]
    where = jnp.minimum(where, size - 1)
    # A string ends at its closing quote, all else at the first byte of another kind.
    stop = closing | ~(bare | inside)
    next_stop = jax.lax.cummin(jnp.where(stop, place, size), reverse=True)
    next_close = jax.lax.cummin(jnp.where(closing, place, size), reverse=True)
    kinds = jnp.where(real, kind[where], NOTHING)
    is_string = kinds == STRING
    end = jnp.where(is_string, next_close[where], next_stop[where])
    valid = (count[-1] <= max_tokens) & ~jnp.any(control)
    valid &= (jnp.sum(quote) % 2 == 0) & unescaped.valid
    # The end of a text that fills the whole array is one past its last byte.
    last = jnp.concatenate([unescaped.place, unescaped.place[-1:] + 1])
    begin = unescaped.place[jnp.minimum(where + is_string, size - 1)]
    return _Tokens(unescaped.text, kinds, begin, last[jnp.minimum(end, size)], valid)


def _is_word(json: _Tokens, tokens: Int[Array, "K"], word: bytes) -> Bool[Array, "K"]:
    """Return which JSON tokens are a given word."""
    begin, last = json.begin[tokens], json.text.shape[0] - 1
    place = jnp.minimum(begin[:, None] + jnp.arange(len(word))[None], last)
    same = jnp.all(json.text[place] == np.frombuffer(word, np.uint8)[None], axis=1)
    return same & (json.end[tokens] - begin == len(word))


def _check_grammar(json: _Tokens):
    """Check the grammar over the JSON tokens.

    Returns `(well_formed, keys, texts, arg_names, arg_values)`. All but the first are
    indices of JSON tokens, or -1. `keys` has three entries: the keys of the first and
    the second string field and that of the object of arguments. `texts` has the two
    strings. The caller checks that the keys are "name", "purpose" and "arguments".
    """
    max_pairs = (json.kind.shape[0] - 15) // 4
    pair = jnp.arange(max_pairs)

    def step(carry, item):
        state, key, keys, texts, num, names, values = carry
        kind, index = item
        text, bare = kind == STRING, kind == BARE
        opens, closes = kind == OPEN, kind == CLOSE
        colon, comma = kind == COLON, kind == COMMA

        def goes(condition, to, other: int | jax.Array = _FAIL):
            return jnp.where(condition, to, other)

        some, all_ = (keys[0] >= 0) & (keys[2] >= 0), jnp.all(keys >= 0)
        table: list[int | jax.Array] = [_FAIL] * (_FAIL + 1)
        table[_START] = goes(opens, _KEY)
        table[_KEY] = goes(text, _KEY_COLON)
        table[_KEY_COLON] = goes(colon, _KEY_VALUE)
        table[_KEY_VALUE] = goes(
            text & (keys[1] < 0), _MORE, goes(opens & (keys[2] < 0), _ARG_OR_END)
        )
        table[_MORE] = goes(comma & ~all_, _KEY, goes(closes & some, _END))
        table[_ARG_OR_END] = goes(text, _ARG_COLON, goes(closes, _MORE))
        table[_ARG] = goes(text, _ARG_COLON)
        table[_ARG_COLON] = goes(colon, _VALUE)
        table[_VALUE] = goes(text | bare, _ARG_MORE)
        table[_ARG_MORE] = goes(comma, _ARG, goes(closes, _MORE))
        table[_END] = goes(kind == NOTHING, _END)
        new = jnp.stack(list(map(jnp.int32, table)))[state]

        key = jnp.where(new == _KEY_COLON, index, key)
        is_text = (state == _KEY_VALUE) & (new == _MORE)
        is_object = (state == _KEY_VALUE) & (new == _ARG_OR_END)
        first = is_text & (keys[0] < 0)
        which = jnp.stack([first, is_text & ~first, is_object])
        keys = jnp.where(which, key, keys)
        texts = jnp.where(which[:2], index, texts)
        names = jnp.where((new == _ARG_COLON) & (pair == num), index, names)
        values = jnp.where((new == _ARG_MORE) & (pair == num), index, values)
        new = jnp.where((new == _ARG_COLON) & (num >= max_pairs), _FAIL, new)
        num = num + (new == _ARG_MORE)
        return (new, key, keys, texts, num, names, values), None

    none = jnp.full(max_pairs, -1, jnp.int32)
    start = (
        jnp.int32(_START),
        jnp.int32(-1),
        jnp.full(3, -1, jnp.int32),
        jnp.full(2, -1, jnp.int32),
        jnp.int32(0),
        none,
        none,
    )
    items = (json.kind, jnp.arange(json.kind.shape[0], dtype=jnp.int32))
    (state, _, keys, texts, _, names, values), _ = jax.lax.scan(step, start, items)
    return state == _END, keys, texts, names, values
