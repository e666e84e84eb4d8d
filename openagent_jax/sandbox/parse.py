"""From sampled tokens to an `Action`, through bytes: any segmentation counts.

A call is a JSON object, between the marks of the style (`<tool_call>`) where it has
any: a name, an object of arguments, and what it is for, if the agent says so. It may
have any white space, its keys in any order, and any escapes; what stands before the
marks is talk. Without a call it is the last line that counts: `Answer: ` and the value,
`Refuse` or `Ask`. Values of arguments are strings or whole numbers; a key said twice is
too much. Whatever is not understood, UTF-8 included, becomes MALFORMED, or an argument
that no tool accepts: an error observation, never a crash.

Escapes are replaced first, in parallel. The bytes are cut into JSON tokens by parallel
operations too (quotes by a running parity, the rest by neighbours); a short scan over
those tokens then checks the grammar.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt

from openagent_jax import types
from openagent_jax.sandbox import environment, escapes
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.sandbox import style as styles
from openagent_jax.types import Action, Task, ToolCall

# Classes of JSON tokens.
STRING, NUMBER, OPEN, CLOSE, COLON, COMMA, NOTHING, BAD = range(8)
MARKS = {"{": OPEN, "}": CLOSE, ":": COLON, ",": COMMA}
BYTES_PER_TOKEN = 8  # an action of S tokens may be 8 S bytes long

# States of the grammar: what may come next.
_START, _KEY, _KEY_COLON, _KEY_VALUE, _MORE = range(5)
_ARG_OR_END, _ARG, _ARG_COLON, _VALUE, _ARG_MORE = range(5, 10)
_END, _FAIL = 10, 11


class _Tokens(NamedTuple):
    text: UInt[Array, "Z"]  # without escapes; here they begin and end
    kind: Int[Array, "J"]
    begin: Int[Array, "J"]
    end: Int[Array, "J"]
    fits: Bool[Array, ""]


def parse(
    lexicon: lexicons.Lexicon, task: Task, tokens: Int[Array, "S"], length: Array
) -> Action:
    """The action that the first `length` tokens spell (the end mark left out)."""
    size = BYTES_PER_TOKEN * tokens.shape[0]
    text, _, num_bytes = lexicons.concatenate(lexicon.token_bytes, tokens, size, length)
    return parse_bytes(lexicon, task, text, num_bytes)


def parse_bytes(
    lexicon: lexicons.Lexicon,
    task: Task,
    text: UInt[Array, "Z"],
    num_bytes: Int[Array, ""],
) -> Action:
    """The action that `text[:num_bytes]` spells."""
    num_args = task.tools.arg_name.shape[1]
    place = jnp.arange(text.shape[0])
    text = jnp.where(place < num_bytes, text, ord(" "))
    sound = (num_bytes <= text.shape[0]) & escapes.is_utf8(text)
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
    json = _tokenize(
        jnp.where(inside, text, ord(" ")), max_tokens=15 + 4 * (num_args + 1)
    )
    well_formed, keys, texts, arg_names, arg_values = _read(json)
    spans = jnp.concatenate([keys, texts, arg_names, arg_values])
    symbols = lexicons.find(lexicon, json.text, json.begin[spans], json.end[spans])
    symbols = jnp.where(spans >= 0, symbols, -1)
    said = lexicons.find(lexicon, text, value_begin[None], end[None])[0]
    num = arg_names.shape[0]
    named, valued = symbols[5 : 5 + num], symbols[5 + num :]

    def reads(symbol, text: int):
        return lexicons.same_text(lexicon, symbol, jnp.int32(text))

    is_name = reads(symbols[:2], style.key_name)
    is_purpose = reads(symbols[:2], style.key_purpose) | (keys[:2] < 0)
    right_keys = (is_name & is_purpose[::-1]).any()
    right_keys &= reads(symbols[2], style.key_arguments)
    name = symbols[3 + jnp.argmax(is_name)]
    call, fits = _bind(lexicon, task, name, named, valued, arg_names >= 0)
    called = marked & well_formed & json.fits & right_keys
    kind = jnp.int32(types.MALFORMED)
    kind = jnp.where(asks, types.ASK, kind)
    kind = jnp.where(refuses, types.REFUSE, kind)
    kind = jnp.where(answers, types.ANSWER, kind)
    if marks.call_open:  # an answer does not hold a call
        kind = jnp.where(marked, types.MALFORMED, kind)
    kind = jnp.where(called, types.CALL, kind)
    kind = jnp.where(sound, kind, types.MALFORMED)
    is_call = kind == types.CALL
    return Action(
        kind=kind,
        call=ToolCall(
            tool=jnp.where(is_call, call.tool, -1),
            # An argument too many, too few or twice: no value stands for it.
            args=jnp.where(is_call & fits, call.args, -1),
            code=jnp.where(is_call, jnp.where(fits, call.code, _BAD_CODE), -1),
        ),
        value=jnp.where(kind == types.ANSWER, said, -1),
    )


_BAD_CODE = 0  # the empty text: a code was passed, and it is no tool's


def _bind(lexicon, task, name, named, valued, given):
    """Symbols of names and values -> a `ToolCall`, and whether all names fit."""
    tools = task.tools
    there = environment.callable_tools(task)
    equal = lexicons.same_text(lexicon, name, tools.name) & there
    tool = jnp.where(jnp.any(equal), jnp.argmax(equal), -1)
    row = jnp.maximum(tool, 0)
    has_arg = tools.arg_high[row] > tools.arg_low[row]
    slot_names = jnp.concatenate(
        [tools.arg_name[row], jnp.array([lexicon.style.code], jnp.int32)]
    )
    slots = jnp.concatenate([has_arg, jnp.array([True])])
    # [slot, pair]: which of the written pairs fills which slot.
    fills = lexicons.same_text(lexicon, slot_names[:, None], named[None, :])
    fills &= slots[:, None] & given[None]
    fits = jnp.all(jnp.any(fills, axis=0) | ~given)
    fits &= jnp.all(jnp.sum(fills, axis=1) <= 1)
    filled = jnp.any(fills, axis=1)
    value = valued[jnp.argmax(fills, axis=1)]
    args = lexicons.resolve(
        lexicon, value[:-1], tools.arg_low[row], tools.arg_high[row]
    )
    code = jnp.where(value[-1] >= 0, value[-1], _BAD_CODE)
    call = ToolCall(
        tool.astype(jnp.int32),
        jnp.where(filled[:-1], args, -1),
        jnp.where(filled[-1], code, -1),
    )
    return call, fits


def _end(text: UInt[Array, "Z"]) -> Array:
    """Where the blanks at the end begin."""
    solid = ~_blank(text)
    end = text.shape[0] - jnp.argmax(solid[::-1])
    return jnp.where(jnp.any(solid), end, 0)


def _blank(text: Array) -> Array:
    return (text == 32) | (text == 9) | (text == 10) | (text == 13)


def _starts_with(text: UInt[Array, "Z"], begin, mark: bytes) -> tuple[Array, Array]:
    """Whether the text at `begin` starts with a mark, and where that ends."""
    wanted = np.frombuffer(mark, np.uint8)
    there = text[jnp.minimum(begin + jnp.arange(len(mark)), text.shape[0] - 1)]
    return jnp.all(there == wanted), begin + len(mark)


def _between(
    text: UInt[Array, "Z"], end: Array, marks: styles.Marks
) -> tuple[Bool[Array, ""], Bool[Array, "Z"]]:
    """Whether a call is opened, and the bytes between its marks: those after the first
    opening one, none if the text does not end with the closing one."""
    place = jnp.arange(text.shape[0])
    opened = jnp.bool_(True)
    begin, stop = jnp.int32(0), end
    if marks.call_open:
        # Blanks behind the end: a mark does not wrap around.
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
    """JSON tokens of a text: where they begin and end (strings without quotes)."""
    size = text.shape[0]
    place = jnp.arange(size)
    escaped = escapes.escaped(text)
    quote = (text == ord('"')) & ~escaped
    inside = jnp.cumsum(quote) % 2 == 1  # from an opening quote to before the closing
    closing = quote & ~inside
    control = inside & (text < 32)
    meant = escapes.unescape(text, inside & ~quote, escaped)

    table = np.full(256, BAD, np.int32)
    for char, kind in MARKS.items():
        table[ord(char)] = kind
    for char in "0123456789":
        table[ord(char)] = NUMBER
    kind = jnp.asarray(table)[text]
    number = (kind == NUMBER) & ~inside & ~closing
    begins_number = number & ~jnp.concatenate([jnp.array([False]), number[:-1]])
    outside = ~inside & ~closing & ~_blank(text)
    starts = (quote & inside) | begins_number | (outside & ~number)
    kind = jnp.where(quote & inside, STRING, kind)
    goes_on = jnp.concatenate([number[1:], jnp.array([False])])
    kind = jnp.where(begins_number & (text == ord("0")) & goes_on, BAD, kind)

    count = jnp.cumsum(starts)
    where = jnp.searchsorted(count, jnp.arange(1, max_tokens + 1), side="left")
    real = jnp.arange(max_tokens) < count[-1]
    where = jnp.minimum(where, size - 1)
    # The end of a string is its closing quote, of a number its first other byte.
    stop = closing | ~(number | inside)
    next_stop = jax.lax.cummin(jnp.where(stop, place, size), reverse=True)
    next_close = jax.lax.cummin(jnp.where(closing, place, size), reverse=True)
    kinds = jnp.where(real, kind[where], NOTHING)
    is_string = kinds == STRING
    end = jnp.where(is_string, next_close[where], next_stop[where])
    sound = (count[-1] <= max_tokens) & ~jnp.any(control)
    sound &= (jnp.sum(quote) % 2 == 0) & meant.sound
    # A text that is full has its end behind its last byte.
    last = jnp.concatenate([meant.place, meant.place[-1:] + 1])
    begin = meant.place[jnp.minimum(where + is_string, size - 1)]
    return _Tokens(meant.text, kinds, begin, last[jnp.minimum(end, size)], sound)


def _read(json: _Tokens):
    """Check the grammar over the JSON tokens.

    Returns `(well formed, keys, texts, argument names, argument values)`, all but the
    first as indices of tokens, -1 where there is none. `keys` are those of one or two
    texts and of the object; that they read "name", "purpose" and "arguments" is for
    the caller to check.
    """
    max_pairs = (json.kind.shape[0] - 15) // 4
    pair = jnp.arange(max_pairs)

    def read(carry, item):
        state, key, keys, texts, num, names, values = carry
        kind, index = item
        string, number = kind == STRING, kind == NUMBER
        opens, closes = kind == OPEN, kind == CLOSE
        colon, comma = kind == COLON, kind == COMMA

        def goes(condition, to, other: int | jax.Array = _FAIL):
            return jnp.where(condition, to, other)

        some, all_ = (keys[0] >= 0) & (keys[2] >= 0), jnp.all(keys >= 0)
        table: list[int | jax.Array] = [_FAIL] * (_FAIL + 1)
        table[_START] = goes(opens, _KEY)
        table[_KEY] = goes(string, _KEY_COLON)
        table[_KEY_COLON] = goes(colon, _KEY_VALUE)
        table[_KEY_VALUE] = goes(
            string & (keys[1] < 0), _MORE, goes(opens & (keys[2] < 0), _ARG_OR_END)
        )
        table[_MORE] = goes(comma & ~all_, _KEY, goes(closes & some, _END))
        table[_ARG_OR_END] = goes(string, _ARG_COLON, goes(closes, _MORE))
        table[_ARG] = goes(string, _ARG_COLON)
        table[_ARG_COLON] = goes(colon, _VALUE)
        table[_VALUE] = goes(string | number, _ARG_MORE)
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
    (state, _, keys, texts, _, names, values), _ = jax.lax.scan(read, start, items)
    return state == _END, keys, texts, names, values
