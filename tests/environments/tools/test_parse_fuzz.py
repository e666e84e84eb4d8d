"""The parser compared with `json`, on mutated and on random bytes."""

import re

import numpy as np
import pytest

from openagent_jax.text import reply_scan
from tests import helpers
from tests.environments.tools.parsing import (
    ROOM,
    WORLDS,
    check_agreement,
    escaped,
    parsed,
    segments,
    written_actions,
)

CHARS = [*b'"{}:, \\0179aez_-+.eu\n\t[]', 0, 31, 127, 128, 195, 237, 255]
# Escapes, valid and not, and characters of two to four bytes, complete and broken.
PIECES = [
    b"\\n", b"\\/", b'\\"', b"\\\\", b"\\x", b"\\u", b"\\u12", b"\\u0000", b"\\u00e9",
    b"\\uD83D\\uDE00", b"\\ud83d", b"\\ude00", b"\\ud83d\\ud83d\\ude00", b"\\u20AC",
    "é".encode(), "€".encode(), "😀".encode(), "😀".encode()[:3], b"\xc0\xaf",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\x80",
]  # fmt: skip


def mutated(text, rng):
    """Return a text with one to three small changes."""
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
            case 8:  # white space around the punctuation
                data = data.replace(b":", b" : ").replace(b",", b"\n,")
            case 9:
                words = [b"name", b"arguments", b"parameters", b"code"]
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
    """Return pieces of the grammar in any order."""
    pieces = [
        b'{"name":"', b'{"arguments":{"', b'","name":"', b'","arguments":{"', b'":"',
        b'","', b'"}}', b'","arguments":{}}',
        b"{", b"}", b'"', b":", b",", b"name", b"arguments", b"17", b"007", b" ",
        b"Answer: ", b"Refuse", b"Ask", b"\n", b"code", b"\\", b"-1", b"1.5", b"2e3",
        b"true", b"<tool_call>", b"</tool_call>", *PIECES,
    ]  # fmt: skip
    text = b"".join(pieces[i] for i in rng.integers(len(pieces), size=rng.integers(14)))
    return text[: ROOM - 1]


def fuzz(name, num, seed):
    """Return mutated calls (80 %), soup (10 %), random bytes and random tokens."""
    rng = np.random.default_rng(seed)
    _, texts, _ = written_actions(name)
    lines = []
    for i in range(num):
        u = rng.random()
        if u < 0.8:
            line = segments().single(mutated(texts[i % helpers.BATCH], rng))
        elif u < 0.9:
            line = segments().single(soup(rng))
        elif u < 0.95:
            line = segments().single(rng.bytes(rng.integers(ROOM)))
        else:
            vocab = len(segments().bytes)
            line = rng.integers(vocab, size=rng.integers(ROOM)).tolist()
        lines.append(line)
    return lines


class TestFuzz:
    @pytest.mark.parametrize("name", WORLDS)
    def test_agrees_with_json(self, name):
        expected = check_agreement(name, fuzz(name, 5 * helpers.BATCH, seed=1))
        kinds = [want[0] for want in expected]
        calls = [
            want for want in expected if want[0] == reply_scan.CALL and want[1] >= 0
        ]
        good = [args for _, _, args, _, _ in calls if max(args) >= 0]
        assert set(kinds) == set(range(5))
        assert len(calls) > 0.05 * len(kinds) < kinds.count(reply_scan.MALFORMED)
        assert 0 < len(good) < len(calls)

    @pytest.mark.hours
    @pytest.mark.parametrize("name", WORLDS)
    def test_agrees_with_json_on_many(self, name):
        for seed in range(50):  # 1,024,000 in all worlds together
            check_agreement(name, fuzz(name, 4096, seed=100 + seed))

    def test_one_trace_for_both_domains(self):
        for name in helpers.DOMAINS:
            parsed(name, written_actions(name)[2])
        before = helpers.TRACES["parse_batch"]
        for name in helpers.DOMAINS:
            parsed(name, written_actions(name)[2][:7])
        # One for the compact style, one for `random`, and one for each other style.
        assert helpers.TRACES["parse_batch"] == before <= 5
