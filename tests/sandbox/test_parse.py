"""The parser against `json`: rendered, mutated and random bytes, any segmentation.

Known limits, for which the reference below stands too: values are strings or digits,
and there are at most as many arguments as a tool can have, and the code.
"""

import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import types
from openagent_jax.sandbox import lexicon as lexicons
from openagent_jax.sandbox import parse, render
from tests import helpers

WORLDS = ("poi", "medical", "random", "poi hermes", "medical llama3")  # and the form
ROOM = 160  # tokens of an action
BLANKS = b" \t\n\r"
MAX_PAIRS = helpers.LIMITS.num_args + 1


@jax.jit
@helpers.traced
def read(lexicon, tasks, tokens, length):
    return jax.vmap(parse.parse, (None, 0, 0, 0))(lexicon, tasks, tokens, length)


@jax.jit
def speak(lexicon, tasks, actions):
    """Tokens of actions, the end mark left out, and their number."""

    def one(task, action):
        pieces = render.action(lexicon.style, task, action)
        return lexicons.write(lexicon, pieces, ROOM)

    tokens, _, length = jax.vmap(one)(tasks, actions)
    return tokens, length - 1


def world(name):
    return helpers.world(*name.split())


@functools.cache
def sampled(name):
    name = name.split()[0]  # whatever the form, the same
    if name != "random":
        return helpers.tasks(name)
    source = helpers.world(name)
    return jax.jit(jax.vmap(lambda key: source.sample(key, "train")))(helpers.keys())


class Reference:
    """What a text says, in plain Python, for one world."""

    def __init__(self, name):
        self.texts = [text.encode() for text in helpers.texts(*name.split())]
        style = world(name).lexicon.style
        self.marks, self.arguments = style.marks, self.texts[style.key_arguments]
        self.symbols = {}  # text -> its symbols
        for symbol, text in enumerate(self.texts):
            if len(text) <= lexicons.MAX_TEXT:
                self.symbols.setdefault(text, []).append(symbol)
        self.tasks = helpers.rows(sampled(name))

    def canonical(self, text):
        return self.symbols.get(text, [-1])[0]

    def parse(self, i, data):
        """`(kind, tool, args, code, value)` of bytes said in task i."""
        data = data.strip(BLANKS)
        try:
            data.decode()
        except UnicodeDecodeError:
            return types.MALFORMED, -1, None, -1, -1
        opened, inside = b"", data
        if self.marks.call_open:
            _, opened, inside = data.partition(self.marks.call_open)
        if not opened:
            line = re.split(rb"[\n\r]", data)[-1].strip(BLANKS)
            if (line + b" ").startswith(b"Answer: "):
                value = self.canonical(line[8:] or b"?" * 99)
                return types.ANSWER, -1, None, -1, value
            if line in (b"Refuse", b"Ask"):
                kind = types.REFUSE if line == b"Refuse" else types.ASK
                return kind, -1, None, -1, -1
        call = None
        if bool(opened) == bool(self.marks.call_open):
            call = self.call(self.tasks[i], inside)
        if call is None:
            return types.MALFORMED, -1, None, -1, -1
        return types.CALL, *call, -1

    def call(self, task, data):
        close = self.marks.call_close
        if not data.endswith(close):
            return None
        try:
            name, pairs = written(data[: len(data) - len(close)], self.arguments)
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
            return n, [-1] * len(slots), 0
        values = dict(pairs)
        args = [-1] * len(slots)
        for a, slot in enumerate(slots):
            low, high = tools.arg_low[n, a], tools.arg_high[n, a]
            fits = [
                s for s in self.symbols.get(values.get(slot), ()) if low <= s < high
            ]
            if slot in values and fits:
                args[a] = fits[0]
        code = max(self.canonical(values[b"code"]), 0) if b"code" in values else -1
        return n, args, code


class Number(bytes):
    """A number as it was written."""


def written(data, arguments):
    """Name and argument pairs of a call, by `json`; raises where there is none."""
    number = lambda text: Number(text.encode())  # noqa: E731
    value = json.loads(
        data.decode(), object_pairs_hook=tuple, parse_int=number, parse_float=float
    )
    if type(value) is not tuple:
        raise ValueError("not an object")
    keys = sorted(key for key, _ in value)
    arguments = arguments.decode()
    if keys not in (sorted(["name", arguments, *more]) for more in ([], ["purpose"])):
        raise ValueError("not a call")
    call = dict(value)
    one, two = call["name"], call[arguments]
    if type(two) is not tuple or len(two) > MAX_PAIRS:
        raise ValueError("not a call")
    if type(one) is not str or type(call.get("purpose", "")) is not str:
        raise ValueError("not a call")
    pairs = []
    for key, item in two:
        if type(item) is Number and not item.startswith(b"-"):
            pairs.append((spelled(key), bytes(item)))
        elif type(item) is str:
            pairs.append((spelled(key), spelled(item)))
        else:
            raise ValueError("no such value")
    return spelled(one), pairs


def spelled(text):
    """Bytes of a string; half a surrogate pair has three of its own."""
    return text.encode(errors="surrogatepass")


class Segments:
    """Bytes as tokens: canonical, one by one, or cut at random."""

    def __init__(self, lexicon):
        self.bytes = [bytes(b) for b in helpers.ragged(lexicon.token_bytes)]
        added = helpers.chat_tokenizer().get_added_tokens_decoder()
        special = {token for token in added if added[token].special}
        texts = [t for t in range(len(self.bytes)) if t not in special]
        self.tokens = {self.bytes[token]: token for token in texts}
        self.longest = max(map(len, self.tokens))

    def single(self, data):
        """A token for each byte."""
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
    return Segments(helpers.world("poi", "hermes").lexicon)


def parsed(name, lines, tasks=None):
    """The parser's actions for one row of tokens a task, in batches."""
    lexicon, found = world(name).lexicon, []
    tasks = sampled(name) if tasks is None else tasks
    for start in range(0, len(lines), helpers.BATCH):
        tokens = np.zeros((helpers.BATCH, ROOM), np.int32)
        length = np.zeros(helpers.BATCH, np.int32)
        for row, line in enumerate(lines[start : start + helpers.BATCH]):
            tokens[row, : len(line)], length[row] = line, len(line)
        found += helpers.rows(read(lexicon, tasks, tokens, length))
    return found[: len(lines)]


def agree(name, lines):
    """Compare parser and reference; line i is said in task i modulo the batch."""
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
    """Well-formed actions of all kinds for the tasks of a world."""
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
            [types.CALL, types.ANSWER, types.REFUSE, types.ASK], p=[0.7, 0.1, 0.1, 0.1]
        )
        called = kind == types.CALL
        told = rng.choice(np.flatnonzero(tools.visible & (tools.result_low[:, 0] > 0)))
        answer = rng.integers(tools.result_low[told, 0], tools.result_high[told, 0])
        actions.append(
            types.Action(
                kind=np.int32(kind),
                call=types.ToolCall(
                    tool=np.int32(n if called else -1),
                    args=(args if called else np.full(3, -1)).astype(np.int32),
                    code=np.int32(code if called else -1),
                ),
                value=np.int32(answer if kind == types.ANSWER else -1),
            )
        )
    return actions


@functools.cache
def said(name):
    """`(actions, their bytes, their canonical tokens)`."""
    actions = random_actions(name)
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *actions)
    tokens, length = speak(world(name).lexicon, sampled(name), batch)
    lines = [row[:n].tolist() for row, n in helpers.rows((tokens, length))]
    return actions, [segments().join(line) for line in lines], lines


@pytest.mark.parametrize("name", WORLDS)
class TestRoundTrip:
    def check(self, name, lines):
        actions, texts, _ = said(name)
        canonical = np.asarray(world(name).lexicon.canonical)
        for want, got, text in zip(actions, parsed(name, lines), texts, strict=True):
            assert got.kind == want.kind, text
            if want.kind == types.CALL:
                assert got.call.tool == want.call.tool, text
                assert got.call.args.tolist() == want.call.args.tolist(), text
                assert got.call.code == want.call.code, text
            if want.kind == types.ANSWER:
                assert got.value == canonical[want.value], text

    def test_canonical_tokens(self, name):
        actions, texts, lines = said(name)
        assert {int(action.kind) for action in actions} == set(range(4))
        for text, line in zip(texts, lines, strict=True):
            ids = helpers.tokenizer().encode(text.decode(), add_special_tokens=False)
            assert text.decode() == helpers.spell(line) == helpers.spell(ids.ids)
        self.check(name, lines)

    def test_any_segmentation(self, name):
        _, texts, _ = said(name)
        rng = np.random.default_rng(0)
        singles = [segments().single(text) for text in texts]
        assert np.mean([len(line) <= ROOM for line in singles]) > 0.9
        self.check(
            name,
            [
                line if len(line) <= ROOM else segments().random(text, rng)
                for line, text in zip(singles, texts, strict=True)
            ],
        )
        self.check(name, [segments().random(text, rng) for text in texts])

    def test_reference_agrees(self, name):
        _, texts, lines = said(name)
        kinds = [want[0] for want in agree(name, lines)]
        assert kinds.count(types.MALFORMED) == 0

    def test_blanks_order_and_bare_numbers(self, name):
        rng = np.random.default_rng(0)
        actions, texts, _ = said(name)
        free = []
        for action, text in zip(actions, texts, strict=True):
            if action.kind == types.CALL:
                marks = reference(name).marks
                text = text.removeprefix(marks.call_open).removesuffix(marks.call_close)
                call, key = json.loads(text), reference(name).arguments.decode()
                pairs = list(call[key].items())
                rng.shuffle(pairs)
                arguments = {
                    key: int(v) if str(v).isdigit() and rng.random() < 0.7 else str(v)
                    for key, v in pairs
                }
                call[key] = arguments
                if rng.random() < 0.5:
                    call.pop("purpose", None)
                call = {key: call[key] for key in rng.permutation([*call])}
                indent = rng.choice([None, 0, 1])
                text = json.dumps(call, indent=indent, ensure_ascii=False).encode()
                text = text.replace(b"\n", rng.choice([b"\n", b"\r\n", b" \t"]))
                other = re.sub(rb'"[^"]*"', lambda m: escaped(m[0], rng), text)
                text = other if len(other) <= ROOM - 40 else text
                text = marks.call_open + text + marks.call_close
                if marks.call_open and rng.random() < 0.5:
                    text = b"Sure. " + text
            blank = bytes(rng.choice(list(BLANKS), rng.integers(4)).tolist())
            free.append(blank + text + blank)
        self.check(name, [segments().random(text, rng) for text in free])


CHARS = [*b'"{}:, \\0179aez_-+.eu\n\t[]', 0, 31, 127, 128, 195, 237, 255]
# Escapes, sound and not, and characters of two to four bytes, whole and broken.
PIECES = [
    b"\\n", b"\\/", b'\\"', b"\\\\", b"\\x", b"\\u", b"\\u12", b"\\u0000", b"\\u00e9",
    b"\\uD83D\\uDE00", b"\\ud83d", b"\\ude00", b"\\ud83d\\ud83d\\ude00", b"\\u20AC",
    "é".encode(), "€".encode(), "😀".encode(), "😀".encode()[:3], b"\xc0\xaf",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\x80",
]  # fmt: skip


def escaped(data, rng):
    """Some letters of a text as escapes; what it means stays."""
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


def mutated(text, rng):
    """A text with one to three small injuries."""
    data = bytearray(text)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(max(len(data), 1)))
        char = int(rng.choice(CHARS))
        match rng.integers(15):
            case 12:
                strings = re.sub(
                    rb'"[^"\\\\]*"', lambda m: escaped(m[0], rng), bytes(data)
                )
                data = bytearray(strings)
            case 13:
                data[at:at] = PIECES[rng.integers(len(PIECES))]
            case 14:  # the marks of a call
                mark = [b"<tool_call>", b"</tool_call>", b"Sure. ", b"\n", b"So\n"]
                mark = mark[rng.integers(len(mark))]
                if rng.random() < 0.5:
                    data = data.replace(mark, b"", 1)
                else:
                    data[at:at] = mark
            case 0:
                data[at : at + 1] = b""
            case 1:
                data[at:at] = bytes([char])
            case 2:
                data[at : at + 1] = bytes([char])
            case 3:
                data[at : at + 2] = data[at : at + 2][::-1]
            case 4:  # cut the end, or the start
                data = data[:at] if rng.random() < 0.7 else data[at:]
            case 5:  # a quote is missing
                quotes = [i for i, byte in enumerate(data) if byte == ord('"')]
                if quotes:
                    del data[rng.choice(quotes)]
            case 6:  # a pair is written twice, the same or not
                pairs = re.findall(rb'"[^"]*": ?"[^"]*"', data)
                if pairs:
                    pair = pairs[rng.integers(len(pairs))]
                    data = data.replace(pair, pair + b"," + pair, 1)
            case 7:  # a number without quotes
                data = bytearray(re.sub(rb'"(\d+)"', rb"\1", data))
            case 8:  # blanks around the marks
                data = data.replace(b":", b" : ").replace(b",", b"\n,")
            case 9:
                words = [b"name", b"arguments", b"parameters", b"code", b"purpose"]
                word = rng.choice(words)
                data = data.replace(word, rng.choice([word.title(), b"x", word[:-1]]))
            case 10:  # another argument
                pair = rng.choice(
                    [b'"x":"1",', b'"code":"bab2",', b'"a":-1,', b'"":[],']
                )
                data = data.replace(b'"arguments":{', b'"arguments":{' + pair)
            case 11:
                bad = [b"{}", b"null", b"1", b'"', b"\\u0041", b" ", b"}", b"Refuse"]
                data += bad[rng.integers(len(bad))]
    return bytes(data)[: ROOM - 1]


def soup(rng):
    """Pieces of the grammar in any order."""
    pieces = [
        b'{"name":"', b'{"purpose":"', b'","name":"', b'","arguments":{"', b'":"',
        b'","', b'"}}', b'","arguments":{}}',
        b"{", b"}", b'"', b":", b",", b"name", b"arguments", b"17", b"007", b" ",
        b"Answer: ", b"Refuse", b"Ask", b"\n", b"code", b"\\", b"-1", b"1.5", b"2e3",
        b"true", b"<tool_call>", b"</tool_call>", *PIECES,
    ]  # fmt: skip
    text = b"".join(pieces[i] for i in rng.integers(len(pieces), size=rng.integers(14)))
    return text[: ROOM - 1]


def fuzz(name, num, seed):
    """Mutated calls, soup, random bytes and random tokens, in equal parts and more."""
    rng = np.random.default_rng(seed)
    _, texts, _ = said(name)
    lines = []
    for i in range(num):
        lot = rng.random()
        if lot < 0.8:
            line = segments().single(mutated(texts[i % helpers.BATCH], rng))
        elif lot < 0.9:
            line = segments().single(soup(rng))
        elif lot < 0.95:
            line = segments().single(rng.bytes(rng.integers(ROOM)))
        else:
            vocab = len(segments().bytes)
            line = rng.integers(vocab, size=rng.integers(ROOM)).tolist()
        lines.append(line)
    return lines


class TestFuzz:
    @pytest.mark.parametrize("name", WORLDS)
    def test_agrees_with_json(self, name):
        expected = agree(name, fuzz(name, 5 * helpers.BATCH, seed=1))
        kinds = [want[0] for want in expected]
        calls = [want for want in expected if want[0] == types.CALL and want[1] >= 0]
        good = [args for _, _, args, _, _ in calls if max(args) >= 0]
        assert set(kinds) == set(range(5))
        assert len(calls) > 0.05 * len(kinds) < kinds.count(types.MALFORMED)
        assert 0 < len(good) < len(calls)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", WORLDS)
    def test_agrees_with_json_on_many(self, name):
        for seed in range(50):  # 1,024,000 in all worlds together
            agree(name, fuzz(name, 4096, seed=100 + seed))

    def test_one_trace_for_both_domains(self):
        for name in helpers.DOMAINS:
            parsed(name, said(name)[2])
        before = helpers.TRACES["read"]
        for name in helpers.DOMAINS:
            parsed(name, said(name)[2][:7])
        assert helpers.TRACES["read"] == before <= 4  # of `random`, and of two forms


# Said of `table_booking` in poi; `N` and `P` stand for the tool and a place.
CASES = {
    '{"name":"N","arguments":{"place":"P","hour":"17"}}': (0, 17),
    '{"arguments":{"hour":17,"place":"P"},"name":"N"}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":"017"}}': (0, -1),
    '{"name":"N","arguments":{"place":"P","hour":017}}': None,
    '{"name":"N","arguments":{"place":"P","hour":-1}}': None,
    '{"name":"N","arguments":{"place":"P","hour":1e1}}': None,
    '{"name":"N","arguments":{"place":"P","hour":1 7}}': None,
    '{"name":"N","arguments":{"place":"P","hour":"999"}}': (0, -1),
    '{"name":"N","arguments":{"place":" P","hour":"17"}}': (-1, 17),
    '{"name":"N","arguments":{"place":"17","hour":"17"}}': (-1, 17),
    '{"name":"N","arguments":{"place":"P","place":"P","hour":"17"}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P","hour":"17","x":"y"}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P"}}': (0, -1),
    '{"name":"N","arguments":{}}': (-1, -1),
    '{"name":"N","arguments":{"place":"P",}}': None,
    '{"name":"N","arguments":{"place":"P" "hour":"17"}}': None,
    '{"name":"N","arguments":{"place":"P","hour":"17"}': None,
    '{"name":"N","arguments":{"place":"P","hour":"17"}}}': None,
    '{"name":"N","arguments":{"place":"P","hour":["17"]}}': None,
    '{"name":"N","arguments":{"place":"P","hour":null}}': None,
    '{"name":"N","arguments":"place"}': None,
    '{"name":"N"}': None,
    '{"purpose":"x","name":"N","arguments":{}}': (-1, -1),
    '{"arguments":{},"name":"N","purpose":"name"}': (-1, -1),
    '{"purpose":"\\"","arguments":{},"name":"N"}': (-1, -1),
    '{"purpose":"N","arguments":{}}': None,
    '{"purpose":"x","purpose":"N","arguments":{}}': None,
    '{"purpose":7,"name":"N","arguments":{}}': None,
    '{"purpose":{},"name":"N","arguments":{}}': None,
    '{"purpose":"x","name":"N","arguments":{},"name":"N"}': None,
    '{"arguments":{}}': None,
    '{"name":"N","name":"N"}': None,
    '{"name":"N","parameters":{}}': None,
    '{"name":"N","arguments":{},"id":"1"}': None,
    "{'name':'N','arguments':{}}": None,
    '{"name":"N\\"","arguments":{}}': "unknown",
    '{"name":"n","arguments":{}}': "unknown",
    '{"\\u006eame":"N","arguments":{"place":"P","\\u0068our":"1\\u0037"}}': (0, 17),
    '{"name":"N","arguments":{"place":"P","hour":"17\\u0000"}}': (0, -1),
    '{"name":"N","arguments":{"place":"P\\ud83d","hour":"17"}}': (-1, 17),
    '{"name":"N\\ud83d\\ude00","arguments":{}}': "unknown",
    '{"name":"N😀","arguments":{}}': "unknown",
    '{"name":"N\\x","arguments":{}}': None,
    '{"name":"N\\u12","arguments":{}}': None,
    '{"name":"N\\u12"}","arguments":{}}': None,
    '{"name":"N\t","arguments":{}}': None,
    '{"name":\\u0022N\\u0022,"arguments":{}}': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call>': None,
    '```{"name":"N","arguments":{}}```': None,
    "": None,
    "refuse": None,
    "Refuse now": None,
}  # fmt: skip


MARKED = {
    '<tool_call>{"name":"N","arguments":{"place":"P","hour":17}}</tool_call>': (0, 17),
    ' <tool_call>\n{"name":"N","arguments":{}}\n</tool_call>\n': (-1, -1),
    'Answer: 17 <tool_call>{"name":"N","arguments":{}}</tool_call>': (-1, -1),
    '{"name":"N","arguments":{}}': None,
    '<tool_call>{"name":"N","arguments":{}}': None,
    '{"name":"N","arguments":{}}</tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call>.': None,
    '<tool_call><tool_call>{"name":"N","arguments":{}}</tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call></tool_call>': None,
    '<tool_call>{"name":"N","arguments":{}}</tool_call><tool_call>{}</tool_call>': None,
    "<tool_call>Refuse</tool_call>": None,
    "Answer: 17 <tool_call>": None,
    "<tool_call></tool_call>": None,
    "<tool_call>": None,
}


@pytest.mark.parametrize(("name", "cases"), [("poi", CASES), ("poi hermes", MARKED)])
def test_cases(name, cases):
    """The finer points, one by one."""
    goal = helpers.family("poi", "table_booking")
    tasks = reference(name).tasks
    i = next(i for i, task in enumerate(tasks) if task.goal.family == goal)
    n = helpers.rows_of("poi")["count_seats"]
    same = jax.tree.map(lambda x: jnp.broadcast_to(x[i], x.shape), sampled(name))
    texts, tools = helpers.texts("poi"), tasks[i].tools
    place, zero = tools.arg_low[n, :2]
    lines = [
        text.replace("N", texts[tools.name[n]]).replace("P", texts[place])
        for text in cases
    ]
    lines = [segments().single(line.encode()) for line in lines]
    found = parsed(name, lines, same)
    for (text, want), got in zip(cases.items(), found, strict=True):
        if want is None:
            assert got.kind == types.MALFORMED, text
        elif want == "unknown":
            assert (got.kind, got.call.tool) == (types.CALL, -1), text
        else:
            args = [
                place if want[0] == 0 else -1,
                zero + want[1] if want[1] >= 0 else -1,
            ]
            assert (got.kind, got.call.tool) == (types.CALL, n), text
            assert got.call.args[:2].tolist() == args, text


LINES = {
    "Answer: 17": types.ANSWER,
    "It opens at five.\n\n  Answer: 17 \n": types.ANSWER,
    "<think>\nRefuse\n</think>\rAnswer: 17": types.ANSWER,
    "No tool does that.\nRefuse": types.REFUSE,
    "Which one?\r\nAsk": types.ASK,
    "Answer:\n": types.ANSWER,  # nothing
    "Answer: 17\nRefuse": types.REFUSE,
    "Answer: 17\n.": types.MALFORMED,
    "It is Answer: 17": types.MALFORMED,
    "Refuse\nI do": types.MALFORMED,
    "Refuse\nto Ask": types.MALFORMED,
    "\n \n": types.MALFORMED,
}


@pytest.mark.parametrize("name", ["poi", "poi hermes"])
def test_the_last_line_counts(name):
    lines = [segments().single(line.encode()) for line in LINES]
    for line, got in zip(LINES, parsed(name, lines, sampled(name)), strict=True):
        assert got.kind == LINES[line], line
        said = helpers.texts("poi")[got.value] if got.value >= 0 else None
        right = got.kind == types.ANSWER and "17" in line
        assert said == ("17" if right else None)
