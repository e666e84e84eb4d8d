"""Actions that are rendered and then parsed, in any segmentation, stay the same."""

import json
import re

import numpy as np
import pytest

from openagent_jax.text import reply_scan, scalars
from tests import helpers
from tests.environments.tools.parsing import (
    BLANKS,
    ROOM,
    WORLDS,
    check_agreement,
    escaped,
    parsed,
    reference,
    segments,
    world,
    written_actions,
)


@pytest.mark.parametrize("name", WORLDS)
class TestRoundTrip:
    def check(self, name, lines):
        actions, texts, _ = written_actions(name)
        canonical = world(name).tables.lexicon.canonical.tolist()
        for want, got, text in zip(actions, parsed(name, lines), texts, strict=True):
            assert got.kind == want.kind, text
            if want.kind == reply_scan.CALL:
                assert got.call.tool == want.call.tool, text
                assert got.call.args.tolist() == want.call.args.tolist(), text
                assert got.call.code == want.call.code, text
            if want.kind == reply_scan.ANSWER:
                is_number = want.value >= scalars.NUMBER
                expected = want.value if is_number else canonical[want.value]
                assert got.value == expected, text

    def test_canonical_tokens(self, name):
        actions, texts, lines = written_actions(name)
        assert {int(action.kind) for action in actions} == set(range(4))
        for text, line in zip(texts, lines, strict=True):
            ids = helpers.tokenizer().encode(text.decode(), add_special_tokens=False)
            assert text.decode() == helpers.spell(line) == helpers.spell(ids.ids)
        self.check(name, lines)

    def test_any_segmentation(self, name):
        _, texts, _ = written_actions(name)
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
        _, texts, lines = written_actions(name)
        kinds = [want[0] for want in check_agreement(name, lines)]
        assert kinds.count(reply_scan.MALFORMED) == 0

    def test_blanks_order_and_bare_numbers(self, name):
        rng = np.random.default_rng(0)
        actions, texts, _ = written_actions(name)
        free = []
        for action, text in zip(actions, texts, strict=True):
            if action.kind == reply_scan.CALL:
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
