"""Scan a reply of the agent: from sampled tokens, through bytes, to symbols.

All environments share this scan. It knows how a call, an answer, a refusal and a
question are written, and it knows the surface forms of the lexicon, but not their
meaning: each environment binds the name of a call to a tool and its arguments to
parameters (see `environments/tools/parse.py`).

A call is a JSON object, between the marks of the style (such as `<tool_call>`) if the
style has any. The object has a name and an object of arguments, and no other key. White
space, the order of the keys and escapes are free, and text before the marks is ignored.
The values of arguments are strings, numbers, booleans and null; a number may have up to
32 characters. Up to a depth they may be nested in objects and arrays; then the leaves
are returned, each with its path. In a reply without a call, the last line counts:
`Answer: ` and a value, `Refuse` or `Ask`. Everything else, including bytes that are not
UTF-8, is MALFORMED; no input raises an error.

Because tokens are converted to bytes first, every segmentation of a text gives the same
result. All escapes are replaced in parallel. The bytes are then split into JSON tokens
by parallel operations (`json_tokens`), and a short `lax.scan` over those JSON tokens
checks the grammar (`call_grammar`).
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax.text import call_grammar, escapes, json_tokens, scalars
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import style as styles
from openagent_jax.text.json_tokens import BARE, CLOSE, CLOSE_LIST, blank
from openagent_jax.text.lexicon import Lexicon

# Kinds of reply, which are also the kinds of action.
CALL, ANSWER, REFUSE, ASK, MALFORMED = range(5)

BYTES_PER_TOKEN = 8  # a reply of S tokens may have up to 8 S bytes

BARE_WORDS = b"true", b"false", b"null"


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
    # The keys that they are under, as `text.nesting` has them; K x 0 for flat ones.
    arg_path: Int[Array, "K L"]
    arg_values: Int[Array, "K"]  # their values; the number 17 is the text "17"
    # The numbers that the values spell, with quotes or without, in canonical form (see
    # `scalars`); -1 for other values, and for numbers that do not fit.
    arg_numbers: Int[Array, "K"]
    is_null: Bool[Array, "K"]  # which of the values are null
    # Which of the values are an empty object, and which an empty array.
    is_empty: Bool[Array, "2 K"]
    given: Bool[Array, "K"]  # which of the K arguments were written
    # Whether a key was written twice in an object; not checked if there is no path.
    repeated: Bool[Array, ""]
    # ANSWER: the answer, a number or a symbol; otherwise -1.
    value: Int[Array, ""]


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
    depth: int = 1,
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
      depth: the depth of arguments. If it is 1, their values have to be scalars;
        otherwise they may be objects and arrays, and each leaf counts as an argument.

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
    begin = jnp.argmax(~blank(text) & (place > line))
    answers, value_begin = _starts_with(text, begin, marks.answer)
    refuses, after_refuse = _starts_with(text, begin, marks.refuse)
    asks, after_ask = _starts_with(text, begin, marks.ask)
    refuses &= after_refuse == end
    asks &= after_ask == end

    marked, inside = _between(text, end, marks)
    json = json_tokens.split(
        jnp.where(inside, text, ord(" ")),
        call_grammar.max_tokens(max_pairs, depth),
        with_lists=depth > 1,
    )
    call = call_grammar.check(json, max_pairs, depth)
    well_formed, keys, arg_values = call.well_formed, call.keys, call.values
    # The keys of all arguments, level by level.
    spans = [keys, call.name[None], *jnp.moveaxis(call.paths, 1, 0), arg_values]
    spans = jnp.concatenate(spans)
    # The answer is looked up beside them: what is done twice is compiled once.
    texts = jnp.stack([json.text, text])
    begin, end = (
        jnp.stack([of_json[spans], jnp.full(spans.shape, of_answer, jnp.int32)])
        for of_json, of_answer in ((json.begin, value_begin), (json.end, end))
    )
    symbols, others = jax.vmap(partial(lexicons.find, lexicon))(texts, begin, end)
    values = (x[:, -max_pairs:] for x in (begin, end))
    numbers = jax.vmap(scalars.read)(texts, *values)
    symbols = jnp.where(spans >= 0, symbols, -1)
    bare = (json.kind[arg_values] == BARE) & (arg_values >= 0)
    words = jnp.stack(
        [bare & json_tokens.is_word(json, arg_values, x) for x in BARE_WORDS]
    )
    well_formed &= jnp.all(~bare | numbers.is_number[0] | jnp.any(words, axis=0))
    arg_numbers = jnp.where(arg_values >= 0, numbers.value[0], -1)
    number = numbers.value[1, 0]
    answer = jnp.where(number >= 0, number, others[0])

    def reads(symbol, text: int):
        return lexicons.same_text(lexicon, symbol, jnp.int32(text))

    right_keys = reads(symbols[0], style.key_name)
    right_keys &= reads(symbols[1], style.key_arguments)
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
    given = arg_values >= 0
    names, values = symbols[3:-max_pairs], symbols[-max_pairs:]
    path = jnp.zeros((max_pairs, 0), jnp.int32)
    is_empty, repeated = jnp.zeros((2, max_pairs), bool), jnp.bool_(False)
    if depth > 1:
        names = names.reshape(depth, max_pairs).T
        names, path, repeated = _paths(call, names)
        closed = json.kind[arg_values][None]
        is_empty = closed == jnp.array([[CLOSE], [CLOSE_LIST]])
        is_empty &= (given & is_call)[None]
        values = jnp.where(jnp.any(is_empty, axis=0), -1, values)
    return Scan(
        kind=kind,
        name=jnp.where(is_call, symbols[2], -1),
        arg_names=jnp.where(is_call, names, -1),
        arg_path=jnp.where(is_call, path, 0),
        arg_values=jnp.where(is_call, values, -1),
        arg_numbers=jnp.where(is_call, arg_numbers, -1),
        is_null=is_call & words[BARE_WORDS.index(b"null")],
        is_empty=is_empty,
        given=is_call & given,
        repeated=is_call & repeated,
        value=jnp.where(kind == ANSWER, answer, -1),
    )


def _paths(
    call: call_grammar.Call, symbols: Int[Array, "K M"]
) -> tuple[Int[Array, "K"], Int[Array, "K L"], Bool[Array, ""]]:
    """Return own keys and outer keys of arguments, and whether a key was repeated.

    Args:
      call: the call.
      symbols: the symbols of the keys of `call.paths`.
    """
    there = call.paths >= 0
    # Symbol 0, the empty text, stands for no key.
    keys = jnp.where(symbols == 0, -1, symbols)
    keys = jnp.where(call.indices >= 0, scalars.code(0) + call.indices, keys)
    keys = jnp.where(there, keys, 0)
    own = jnp.sum(there, axis=1, keepdims=True) - 1
    name = jnp.take_along_axis(keys, jnp.maximum(own, 0), axis=1)[:, 0]
    outer = jnp.where(jnp.arange(keys.shape[1])[None] < own, keys, 0)[:, :-1]
    # Two arguments that agree in their keys so far, but not in where the last one is.
    same = jnp.cumprod((keys[:, None] == keys[None]) & there[:, None], axis=2) > 0
    other = call.paths[:, None] != call.paths[None]
    return jnp.where(own[:, 0] >= 0, name, -1), outer, jnp.any(same & other)


def _end(text: UInt[Array, "Z"]) -> Array:
    """Return the length of the text without trailing white space."""
    visible = ~blank(text)
    end = text.shape[0] - jnp.argmax(visible[::-1])
    return jnp.where(jnp.any(visible), end, 0)


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
