"""Broken logs: each is one clear line that names the place, and never a traceback."""

import json
import random

import pytest

from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.logs import logged_worlds, logs
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import style
from tests.environments.logs.examples import TOOLS, chain, failing, weather
from tests.environments.logs.test_logged_values import TOOLS as TYPED
from tests.environments.logs.test_logged_values import order

LIMITS = Limits(num_args=12, num_fields=16, num_constants=12, depth=5)
DEEP = "[" * 2000 + "]" * 2000
# Texts of JSON that are put in place of a value.
JUNK = [
    *("null", "true", "[]", "{}", "0", "-1", "1e400", "-0.0", "0.1234567891", "NaN"),
    *("9" * 40, "9" * 5000, '""', '"x"', '"\\ud83d"', '"a\\u0000b"', '"\\"\\\\\\n"'),
    *('{"a": 1, "a": 2}', '{"": 1}', '{"a.b": {"0": 1}}', "[[[1]], {}]", DEEP),
    *('"' + "y" * 3000 + '"', '[{"type": "image"}]', '{"type": "tool_use"}'),
    *('{"type": "object", "properties": {"a": 7}, "required": 3}', '{"$ref": "#"}'),
    *('"error"', '"Refuse"', '"Answer: L-4"', '"code"', '{"code": 7}', '"{\\"a\\": "'),
]


def rows():
    anthropic = [
        {"role": "user", "content": [{"type": "text", "text": "Weather in Rome?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "tool_use", "id": "1", "name": "get_weather", "input": {}}
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "1", "content": "x"}],
        },
    ]
    made = [(x, TOOLS) for x in (chain(), failing(), weather(last="Refuse"), anthropic)]
    made += [(order(i), TYPED) for i in range(2)]
    return [{"messages": messages, "tools": tools} for messages, tools in made]


ROWS = rows()
HOLE = "\N{OBJECT REPLACEMENT CHARACTER}"


def places(value, path=()):
    """The path of each part of a JSON value."""
    yield path
    inner = value if isinstance(value, dict | list) else ()
    for key, item in inner.items() if isinstance(inner, dict) else enumerate(inner):
        yield from places(item, (*path, key))


def mutated(line, rng):
    """A line of a log with a few faults."""
    row = json.loads(line)
    for _ in range(rng.randint(1, 3)):
        *outer, key = rng.choice(list(places(row))[1:])
        holder = row
        for step in outer:
            holder = holder[step]
        if rng.random() < 0.3:
            del holder[key]
        elif isinstance(holder, list) and rng.random() < 0.3:
            holder.insert(key, holder[key])
        else:
            holder[key] = HOLE
        if not row:
            break
    parts = json.dumps(row, ensure_ascii=False).split(f'"{HOLE}"')
    text = "".join(part + rng.choice(JUNK) for part in parts[:-1]) + parts[-1]
    data = bytearray(text.encode(errors="surrogatepass"))
    if rng.random() < 0.2:  # broken bytes
        at = rng.randrange(len(data))
        kind = rng.randrange(3)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at : at + rng.randint(1, 9)]
        else:
            data = data[:at]
    return bytes(data).replace(b"\n", b" ")


def read(file):
    """What is said of a log: its report, or its fault."""
    try:
        log = logs.load(file, logs.max_sizes(LIMITS))
    except DomainError as error:
        assert str(error).startswith(f"{file}: line ")
        return [str(error)]
    for skipped in log.skipped:
        assert skipped.reason and skipped.line > 0
    # All that is mapped can be turned into arrays.
    tasks, symbols = [task for _, task in log.tasks], ToolSymbols()
    if tasks:
        limits = logged_worlds.fitted(LIMITS, tasks)
        made = Documents(style.with_nesting(style.compact(limits.num_args)))
        logged_worlds.compile(tasks, symbols, limits, made)
        made.table(symbols, limits)
        "".join(symbols.texts).encode()
    return [log.summary(), *log.report()]


def check(folder, num, seed):
    rng, file = random.Random(seed), folder / "x.jsonl"
    said = set()
    for _ in range(num):
        lines = [json.dumps(row).encode() for row in rng.sample(ROWS, 2)]
        file.write_bytes(b"\n".join([lines[0], mutated(lines[1], rng)]))
        for text in read(file):
            assert len(text) < 400 and text.isprintable(), text
            said.add(text.partition("(")[0])
    return said


def test_broken_logs(tmp_path):
    assert len(check(tmp_path, 300, 0)) > 20  # many different faults are met


@pytest.mark.hours
@pytest.mark.parametrize("seed", range(1, 9))
def test_many_broken_logs(tmp_path, seed):
    check(tmp_path, 2000, seed)
