"""A reference for nested arguments in plain Python with `json`, and texts to compare.

It shares the limits of the parser: at most so many leaves, and so many levels.
"""

import json

import jax
import numpy as np

from openagent_jax.environments.tools import types
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import nesting, reply_scan, scalars
from tests import helpers
from tests.environments.tools import parsing

ROOM = 320  # bytes of a reply


class Object(tuple):
    """The pairs of an object, in the order written."""


class Reference:
    """The parser of calls of one world, in the compact style."""

    def __init__(self, made, tasks):
        self.texts = [x.encode() for x in lexicons.texts(made.tables.lexicon)]
        self.symbols, self.numbers = {}, {}
        for symbol, text in enumerate(self.texts):
            if len(text) <= lexicons.MAX_TEXT:
                self.symbols.setdefault(text, []).append(symbol)
            if (number := parsing.number_of(text)) is not None:
                self.numbers.setdefault(number, []).append(symbol)
        self.tasks = tasks
        _, self.num_args, levels = tasks[0].tools.arg_path.shape
        self.depth = levels + 1

    def parse(self, i, data):
        """Return `(kind, tool, args, code)`; the last two are None for no tool."""
        try:
            name, arguments = read_call(data.strip(parsing.BLANKS))
            leaves = list(self._leaves(arguments, ()))
            if len(leaves) > self.num_args + 1:
                raise ValueError("too many")
        except (TypeError, ValueError, RecursionError):
            return reply_scan.MALFORMED, -1, None, None
        tools = self.tasks[i].tools
        if name != self.texts[tools.name[0]]:
            return reply_scan.CALL, -1, None, None
        paths = [self._path(tools, a) for a in range(self.num_args)]
        refused = reply_scan.CALL, 0, [types.UNACCEPTABLE] * self.num_args, 0
        values = {}
        for path, kind, text in leaves:
            if path in paths or path == (b"code",):
                values[path] = kind, text
            elif not any(_covers(path, kind, other) for other in paths):
                return refused
        if _repeats(arguments):
            return refused
        args = [types.MISSING] * self.num_args
        for a, path in enumerate(paths):
            if path in values:
                args[a] = self._value(tools, a, *values[path])
        code = -1
        if (b"code",) in values:
            kind, text = values[(b"code",)]
            known = self.symbols.get(text, [-1])[0] if text is not None else -1
            code = max(known, 0)
        return reply_scan.CALL, 0, args, code

    def _path(self, tools, a):
        keys = [int(key) for key in (*tools.arg_path[0, a], tools.arg_name[0, a])]
        return tuple(
            int(scalars.decimal_of(key)) if key >= scalars.NUMBER else self.texts[key]
            for key in keys
            if key
        )

    def _leaves(self, value, path):
        is_object = type(value) is Object
        if (is_object or type(value) is list) and len(path) >= self.depth:
            raise ValueError("too deep")
        if is_object and (value or not path):
            for key, item in value:
                yield from self._leaves(item, (*path, parsing.to_bytes(key)))
        elif type(value) is list and value:
            for index, item in enumerate(value):
                yield from self._leaves(item, (*path, index))
        elif is_object or type(value) is list:
            yield path, type(value), None
        elif value is None or type(value) is bool:
            yield path, value, json.dumps(value).encode()
        elif type(value) is parsing.Bare:
            yield path, str, bytes(value)
        else:
            yield path, str, parsing.to_bytes(value)

    def _value(self, tools, a, kind, text):
        for low, high in _ranges(tools, a) if text is not None else ():
            shift = scalars.UNQUOTED if scalars.UNQUOTED <= low < scalars.NUMBER else 0
            if (value := self._resolved(text, low - shift, high - shift)) >= 0:
                return value
        is_absent = kind is None and tools.arg_default[0, a] >= 0
        return types.MISSING if is_absent else types.UNACCEPTABLE

    def _resolved(self, text, low, high):
        number = parsing.number_of(text)
        if low >= scalars.NUMBER:
            least, most = (scalars.decimal_of(x) for x in (low, high - 1))
            if number is None or not least <= number <= most:
                return -1
            step = scalars.decimal_of(low).as_tuple().exponent
            fits = number.normalize().as_tuple().exponent >= step or not number
            return scalars.shortest(number) if fits else -1
        symbols = (*self.symbols.get(text, ()), *self.numbers.get(number, ()))
        return next((s for s in symbols if low <= s < high), -1)


def _ranges(tools, a):
    first = int(tools.arg_low[0, a]), int(tools.arg_high[0, a])
    return [first, *(x for x in tools.arg_also[0, a].tolist() if x[1] > x[0])]


def _covers(path, kind, other):
    """Tell whether null or an empty container stands for one that a leaf is in."""
    if len(path) >= len(other) or other[: len(path)] != path:
        return False
    return kind is None or kind is (list if type(other[len(path)]) is int else Object)


def _repeats(value):
    if type(value) is Object:
        keys = [key for key, _ in value]
        if len(set(keys)) < len(keys):
            return True
    inner = [x for _, x in value] if type(value) is Object else value
    return type(value) in (Object, list) and any(map(_repeats, inner))


def read_call(data):
    """Return name and arguments of a call, by `json`; raise if it is none."""

    def number(text):
        if len(text) > scalars.MAX_BYTES or not text[-1].isdigit():
            raise ValueError("no number")
        return parsing.Bare(text.encode())

    value = json.loads(
        data.decode(),
        object_pairs_hook=Object,
        parse_int=number,
        parse_float=number,
        parse_constant=number,
    )
    if type(value) is not Object:
        raise ValueError("not an object")
    keys = sorted(key for key, _ in value)
    if keys != ["arguments", "name"]:
        raise ValueError("not a call")
    call = dict(value)
    if type(call["arguments"]) is not Object:
        raise ValueError("not a call")
    if type(call["name"]) is not str:
        raise ValueError("not a call")
    return parsing.to_bytes(call["name"]), call["arguments"]


def random_call(task, texts, rng):
    """Return the text of a call with random arguments, most of which are right."""
    tools, leaves = task.tools, {}
    for a in range(tools.arg_name.shape[1]):
        if rng.random() < 0.4:
            continue
        ranges = _ranges(tools, a)
        low, high = ranges[rng.integers(len(ranges))]
        value = int(rng.integers(low, max(high, low + 1)))
        shown = (
            scalars.python(value)
            if value >= scalars.NUMBER
            else texts[value - scalars.UNQUOTED * (value >= scalars.UNQUOTED)]
        )
        outer, own = tools.arg_path[0, a].tolist(), int(tools.arg_name[0, a])
        leaves[nesting.decoded(outer, own, texts)] = shown
    items = list(leaves.items())
    rng.shuffle(items)
    arguments = nesting.nested(dict(items))
    if rng.random() < 0.3:
        key = str(rng.choice([*arguments, "x", "tags", "stay", "code"]))
        arguments[key] = [None, {}, [], [[]], [{}], {"x": {}}, "sea", 7, True][
            rng.integers(9)
        ]
    call = {"name": texts[tools.name[0]], "arguments": arguments}
    separators = [(",", ":"), (", ", ": "), (" ,\n", "\t:")][rng.integers(3)]
    return json.dumps(call, separators=separators, ensure_ascii=False).encode()


MARKS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"null", b"{}", b"[]", b"[{}]", b"1"]


def mutated(text, rng):
    """Return a text with up to two changes of its brackets, keys and commas."""
    data = bytearray(text)
    for _ in range(rng.integers(3)):
        mark = MARKS[rng.integers(len(MARKS))]
        places = [i for i in range(len(data)) if data[i] in b'{}[],:"']
        at = places[rng.integers(len(places))] if places else 0
        match rng.integers(8):
            case 0:
                data[at : at + 1] = mark
            case 1:
                data[at:at] = mark
            case 2:
                del data[at]
            case 3:
                data = data.replace(b"[", b"{", 1).replace(b"]", b"}", 1)
            case 4:  # a part is written twice
                end = places[rng.integers(len(places))] if places else 0
                part = data[min(at, end) : max(at, end)]
                data[at:at] = part
            case 5:
                data = data.replace(b"}", b",}", 1)
            case 6:
                data = data.replace(b'"city"', rng.choice([b'"tags"', b'""', b'"0"']))
            case 7:
                data[at:at] = b'"filters":' + rng.choice([b"{},", b"null,", b'"x",'])
    return bytes(data)[: ROOM - 1]


def soup(rng):
    """Return a call whose arguments are pieces of JSON in any order."""
    pieces = [*MARKS, b'"filters":', b'"tags":', b'"city":', b'"Ur"', b'"sea"', b" "]
    parts = (pieces[i] for i in rng.integers(len(pieces), size=rng.integers(16)))
    inner = b"".join(parts)
    text = b'{"name":"find_trip","arguments":{' + inner + b"}}"
    return text[: ROOM - 1]


def check(read, reference, seed, num, batch):
    """Compare the parser with the reference on random texts; return the kinds."""
    rng, kinds = np.random.default_rng(seed), []
    texts = [text.decode() for text in reference.texts]
    for _ in range(num):
        rows, lengths = np.zeros((batch, ROOM), np.uint8), np.zeros(batch, np.int32)
        lines = []
        for i in range(batch):
            line = soup(rng) if rng.random() < 0.2 else None
            task = reference.tasks[i]
            line = line or mutated(random_call(task, texts, rng), rng)
            lines.append(line)
            rows[i, : len(line)] = np.frombuffer(line, np.uint8)
            lengths[i] = len(line)
        actions = helpers.rows(jax.device_get(read(rows, lengths)))
        for i, (line, got) in enumerate(zip(lines, actions, strict=True)):
            kind, tool, args, code = reference.parse(i, line)
            assert (got.kind, got.call.tool) == (kind, tool), line
            if tool >= 0:
                assert got.call.args.tolist() == args, line
                assert got.call.code == code, line
            kinds.append((kind, tool >= 0 and max(args) >= 0))
    return kinds
