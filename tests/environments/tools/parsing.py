"""The parser of tool calls, and a reference implementation in plain Python with `json`.

Known limits, which the reference shares: values are scalars, a number has at most 32
characters, and a call has at most as many arguments as a tool can have, plus the code.
"""

import decimal
import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax.environments.tools import parse, render, types
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan, scalars
from tests import helpers

WORLDS = ("poi", "medical", "random", "poi hermes", "medical llama3")  # and the style
ROOM = 176  # tokens of an action
BLANKS = b" \t\n\r"
MAX_PAIRS = helpers.LIMITS.num_args + 1


@jax.jit
@helpers.traced
def parse_batch(lexicon, tasks, tokens, length):
    def one(task, tokens, length):
        text, num_bytes = reply_scan.detokenize(lexicon, tokens, length)
        return parse.parse(lexicon, task, text, num_bytes)

    return jax.vmap(one)(tasks, tokens, length)


@jax.jit
def write(lexicon, tasks, actions):
    """Return the tokens of actions without the end token, and their numbers."""

    def one(task, action):
        pieces = render.action(lexicon.style, task, action)
        return lexicons.write(lexicon, pieces, ROOM)

    tokens, _, length = jax.vmap(one)(tasks, actions)
    return tokens, length - 1


def world(name):
    return helpers.world(*name.split())


@functools.cache
def sampled(name):
    name = name.split()[0]  # tasks do not depend on the style
    if name != "random":
        return helpers.tasks(name)
    world = helpers.world(name)

    def sample(key):
        return world.environment.sample(world.tables, key, "train")

    return jax.jit(jax.vmap(sample))(helpers.keys())


class Reference:
    """The parser of one world, in plain Python."""

    def __init__(self, name):
        self.texts = [text.encode() for text in helpers.texts(*name.split())]
        style = world(name).tables.lexicon.style
        self.marks, self.arguments = style.marks, self.texts[style.key_arguments]
        self.symbols = {}  # text -> its symbols
        self.numbers = {}  # number -> all symbols that spell it
        for symbol, text in enumerate(self.texts):
            if len(text) <= lexicons.MAX_TEXT:
                self.symbols.setdefault(text, []).append(symbol)
            if (number := number_of(text)) is not None:
                self.numbers.setdefault(number, []).append(symbol)
        self.tasks = helpers.rows(sampled(name))

    def canonical(self, text):
        return self.symbols.get(text, [-1])[0]

    def parse(self, i, data):
        """Return `(kind, tool, args, code, value)` of a reply in task i."""
        data = data.strip(BLANKS)
        try:
            data.decode()
        except UnicodeDecodeError:
            return reply_scan.MALFORMED, -1, None, -1, -1
        opened, inside = b"", data
        if self.marks.call_open:
            _, opened, inside = data.partition(self.marks.call_open)
        if not opened:
            line = re.split(rb"[\n\r]", data)[-1].strip(BLANKS)
            if (line + b" ").startswith(b"Answer: "):
                value = line[8:] or b"?" * 99
                number = number_of(value)
                if number is None:
                    value = self.canonical(value)
                else:
                    value = scalars.shortest(number)
                return reply_scan.ANSWER, -1, None, -1, value
            if line in (b"Refuse", b"Ask"):
                kind = reply_scan.REFUSE if line == b"Refuse" else reply_scan.ASK
                return kind, -1, None, -1, -1
        call = None
        if bool(opened) == bool(self.marks.call_open):
            call = self.call(self.tasks[i], inside)
        if call is None:
            return reply_scan.MALFORMED, -1, None, -1, -1
        return reply_scan.CALL, *call, -1

    def call(self, task, data):
        close = self.marks.call_close
        if not data.endswith(close):
            return None
        try:
            name, pairs = read_call(data[: len(data) - len(close)], self.arguments)
        except (TypeError, ValueError, RecursionError):
            return None
        tools = task.tools
        shown = tools.visible.tolist()
        rows = [
            n for n, on in enumerate(shown) if on and self.texts[tools.name[n]] == name
        ]
        if not rows:
            return -1, None, None
        n = rows[0]
        slots = [
            self.texts[tools.arg_name[n, a]]
            if tools.arg_high[n, a] > tools.arg_low[n, a]
            else None
            for a in range(helpers.LIMITS.num_args)
        ]
        keys = [key for key, _ in pairs]
        known = len(set(keys)) == len(keys) and set(keys) <= {*slots, b"code"}
        if not known:
            return n, [types.UNACCEPTABLE] * len(slots), 0
        values = dict(pairs)
        args = [types.MISSING] * len(slots)
        for a, slot in enumerate(slots):
            low, high = tools.arg_low[n, a], tools.arg_high[n, a]
            if slot in values:
                value = self.resolved(values[slot], int(low), int(high))
                args[a] = value if value >= 0 else types.UNACCEPTABLE
        code = max(self.canonical(values[b"code"]), 0) if b"code" in values else -1
        return n, args, code

    def resolved(self, text, low, high):
        """Return the value of a text in a range, or -1."""
        number = number_of(text)
        if low >= scalars.NUMBER:
            ends = (scalars.decimal_of(x) for x in (low, high - 1))
            _, _, least = scalars.decimal_of(low).as_tuple()
            if number is None or not next(ends) <= number <= next(ends):
                return -1
            _, _, exponent = number.normalize().as_tuple()
            return scalars.shortest(number) if exponent >= least or not number else -1
        symbols = (*self.symbols.get(text, ()), *self.numbers.get(number, ()))
        return next((s for s in symbols if low <= s < high), -1)


def number_of(text):
    """Return the number that a text spells in JSON, if the parser can hold it."""
    try:
        text = text.decode()
        return decimal.Decimal(text) if scalars.spells(text) else None
    except UnicodeDecodeError:
        return None


class Bare(bytes):
    """The text of a number, of true, false or null."""


def read_call(data, arguments):
    """Return name and argument pairs of a call, by `json`; raise if it is none."""

    def number(text):
        if len(text) > scalars.MAX_BYTES or not text[-1].isdigit():  # Infinity, NaN
            raise ValueError("no number")
        return Bare(text.encode())

    value = json.loads(
        data.decode(),
        object_pairs_hook=tuple,
        parse_int=number,
        parse_float=number,
        parse_constant=number,
    )
    if type(value) is not tuple:
        raise ValueError("not an object")
    keys = sorted(key for key, _ in value)
    arguments = arguments.decode()
    if keys != sorted(["name", arguments]):
        raise ValueError("not a call")
    call = dict(value)
    one, two = call["name"], call[arguments]
    if type(two) is not tuple or len(two) > MAX_PAIRS:
        raise ValueError("not a call")
    if type(one) is not str:
        raise ValueError("not a call")
    pairs = []
    for key, item in two:
        if item is None or type(item) is bool:
            pairs.append((to_bytes(key), json.dumps(item).encode()))
        elif type(item) is Bare:
            pairs.append((to_bytes(key), bytes(item)))
        elif type(item) is str:
            pairs.append((to_bytes(key), to_bytes(item)))
        else:
            raise ValueError("no such value")
    return to_bytes(one), pairs


def to_bytes(text):
    """Return the bytes of a string; a lone surrogate takes three."""
    return text.encode(errors="surrogatepass")


class Segments:
    """Bytes as tokens: one token for each byte, or cut at random."""

    def __init__(self, lexicon):
        self.bytes = [bytes(b) for b in helpers.ragged(lexicon.token_bytes)]
        added = helpers.chat_tokenizer().get_added_tokens_decoder()
        special = {token for token in added if added[token].special}
        texts = [t for t in range(len(self.bytes)) if t not in special]
        self.tokens = {self.bytes[token]: token for token in texts}
        self.longest = max(map(len, self.tokens))

    def single(self, data):
        """Return a token for each byte."""
        return [self.tokens[data[i : i + 1]] for i in range(len(data))]

    def random(self, data, rng):
        at, tokens = 0, []
        while at < len(data):
            sizes = [
                n
                for n in range(1, self.longest + 1)
                if data[at : at + n] in self.tokens and at + n <= len(data)
            ]
            size = sizes[rng.integers(len(sizes))]
            tokens.append(self.tokens[data[at : at + size]])
            at += size
        return tokens

    def join(self, tokens):
        return b"".join(self.bytes[token] for token in tokens)


@functools.cache
def reference(name):
    return Reference(name)


@functools.cache
def segments():
    return Segments(helpers.lexicon("poi", "hermes"))


def parsed(name, lines, tasks=None):
    """Return the actions of the parser, one for each row of tokens, in batches."""
    lexicon, actions = world(name).tables.lexicon, []
    tasks = sampled(name) if tasks is None else tasks
    for start in range(0, len(lines), helpers.BATCH):
        tokens = np.zeros((helpers.BATCH, ROOM), np.int32)
        length = np.zeros(helpers.BATCH, np.int32)
        for row, line in enumerate(lines[start : start + helpers.BATCH]):
            tokens[row, : len(line)], length[row] = line, len(line)
        actions += helpers.rows(parse_batch(lexicon, tasks, tokens, length))
    return actions[: len(lines)]


def check_agreement(name, lines):
    """Compare parser and reference; line i belongs to task i modulo the batch."""
    expected = []
    for i, line in enumerate(lines):
        data = segments().join(line)
        expected.append(reference(name).parse(i % helpers.BATCH, data))
    for line, got, want in zip(lines, parsed(name, lines), expected, strict=True):
        kind, tool, args, code, value = want
        text = segments().join(line)
        assert (got.kind, got.call.tool, got.value) == (kind, tool, value), text
        if tool >= 0:
            assert got.call.args.tolist() == args, text
            assert got.call.code == code, text
    return expected


def random_actions(name, seed=0):
    """Return well-formed actions of all kinds for the tasks of a world."""
    tasks, rng = reference(name).tasks, np.random.default_rng(seed)
    actions = []
    for task in tasks:
        tools = task.tools
        n = rng.choice(np.flatnonzero(tools.visible))
        low, high = tools.arg_low[n], tools.arg_high[n]
        there = high > low
        args = rng.integers(low, np.maximum(high, low + 1))
        args = np.where(there & (rng.random(3) < 0.9), args, -1)
        code = rng.choice([-1, tools.code[rng.integers(len(tools.code))]])
        kind = rng.choice(
            [reply_scan.CALL, reply_scan.ANSWER, reply_scan.REFUSE, reply_scan.ASK],
            p=[0.7, 0.1, 0.1, 0.1],
        )
        called = kind == reply_scan.CALL
        low, high = tools.result_low[:, 0], tools.result_high[:, 0]
        row = rng.choice(np.flatnonzero(tools.visible & (low > 0)))
        answer = rng.integers(low[row], high[row])
        actions.append(
            types.Action(
                kind=np.int32(kind),
                call=types.ToolCall(
                    tool=np.int32(n if called else -1),
                    args=(args if called else np.full(3, -1)).astype(np.int32),
                    code=np.int32(code if called else -1),
                ),
                value=np.int32(answer if kind == reply_scan.ANSWER else -1),
            )
        )
    return actions


@functools.cache
def written_actions(name):
    """Return `(actions, their bytes, their canonical tokens)`."""
    actions = random_actions(name)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *actions)
    tokens, length = write(world(name).tables.lexicon, sampled(name), batch)
    lines = [row[:n].tolist() for row, n in helpers.rows((tokens, length))]
    return actions, [segments().join(line) for line in lines], lines


def escaped(data, rng):
    """Return a text with some letters as escapes, which mean the same."""
    out = bytearray()
    for byte in data:
        letter = chr(byte).isalnum() and byte < 128
        if letter and rng.random() < 0.1:
            out += b"\\u%04x" % byte if rng.random() < 0.5 else b"\\u%04X" % byte
        elif byte == ord("/") and rng.random() < 0.5:
            out += b"\\/"
        else:
            out.append(byte)
    return bytes(out)
