"""Rendered text against plain Python: documents, requests, turns and loss masks."""

import collections
import functools
import os

import numpy as np
import pytest

from openagent_jax.text import reply_scan, style
from tests import helpers

GOLDEN = helpers.GOLDEN / "episodes.txt"
UPDATE = "OPENAGENT_UPDATE_GOLDEN"


@functools.cache
def written(name):
    """`(writer, tokens, valid, loss mask, length)` of many episodes."""
    found = []
    split = {"poi": "train", "medical": "test"}[name]
    tables = helpers.world(name).tables
    for entry in helpers.SHOWN:
        tasks = helpers.edited(name, split, entry)
        episodes, _ = helpers.demonstrate(tables, tasks)
        for row in helpers.rows((episodes, *helpers.write(tables, episodes))):
            found.append((helpers.Writer(name, row[0]), *row[1:]))
    return found


@pytest.mark.parametrize("name", helpers.DOMAINS)
class TestTrajectory:
    def test_text(self, name):
        cut = 0
        for writer, tokens, valid, _, length in written(name):
            text = writer.prompt() + "".join(map("".join, writer.turns()))
            assert valid.sum() == min(length, helpers.NUM_TOKENS)
            assert valid[:length].all()
            if length <= helpers.NUM_TOKENS:
                assert helpers.spell(tokens[:length]) == text
            else:  # cut off, as `length` shows
                cut += 1
                spelled = helpers.spell(tokens)
                assert text.startswith(spelled)
                assert len(spelled) < len(text)
        assert 0 < cut < 0.25 * len(written(name))

    def test_loss_mask_covers_the_agents_turns(self, name):
        for writer, tokens, valid, mask, length in written(name):
            said = [said for said, _ in writer.turns()]
            if length <= helpers.NUM_TOKENS:
                assert helpers.spell(tokens[mask]) == "".join(said)
            else:
                assert "".join(said).startswith(helpers.spell(tokens[mask]))
            assert not np.any(mask & ~valid)
            # One run of tokens for each turn, just after the agent's mark.
            starts = np.flatnonzero(mask & ~np.roll(mask, 1))
            assert len(starts) == len(said) or length > helpers.NUM_TOKENS
            assert {helpers.spell([t]) for t in tokens[starts - 1]} == {"<|assistant|>"}

    def test_every_kind_of_turn_was_seen(self, name):
        arguments, kinds, statuses = set(), set(), collections.Counter()
        after = set()
        for writer, *_ in written(name):
            episode = writer.episode
            turns = np.flatnonzero(episode.valid)
            for t in turns:
                action = helpers.row(episode.action, t)
                kinds.add(int(action.kind))
                if action.kind == reply_scan.CALL:
                    num = int(np.sum(action.call.args >= 0))
                    arguments.add((num, bool(action.call.code >= 0)))
                statuses[int(episode.timestep.observation.status[t])] += 1
                if t:
                    after.add(
                        (
                            int(episode.timestep.observation.status[t - 1]),
                            int(action.kind),
                        )
                    )
        assert kinds == {
            reply_scan.CALL,
            reply_scan.ANSWER,
            reply_scan.REFUSE,
            reply_scan.ASK,
        }
        wanted = {(0, False), (1, False), (2, False), (1, True), (2, True)}
        assert arguments >= wanted | ({(3, True)} if name == "medical" else set())
        expected = {style.OK, style.TRANSIENT, style.PERMANENT, style.MOVED}
        expected |= {style.SCHEMA_CHANGED, style.USER_CHANGE}
        assert set(statuses) == expected | {style.USER_REPLY, style.NO_RESULT}
        assert after >= {
            (style.TRANSIENT, reply_scan.CALL),
            (style.PERMANENT, reply_scan.REFUSE),
            (style.MOVED, reply_scan.CALL),
            (style.SCHEMA_CHANGED, reply_scan.CALL),
            (style.USER_CHANGE, reply_scan.CALL),
            (style.USER_REPLY, reply_scan.CALL),
        }

    def test_only_visible_tools_are_documented(self, name):
        count = collections.Counter()
        for writer, *_ in written(name):
            prompt = writer.prompt()  # `test_text` checks that the tokens spell it
            for n in range(len(writer.tools.visible)):
                visible = writer.is_documented(n)
                if writer.tools.name[n]:
                    document = writer.document(n).partition(',"parameters"')[0]
                    assert prompt.count(document + ",") == visible
                    count[bool(visible)] += 1
        assert min(count.values()) > 1000


EPISODES = (
    ("poi", "train", helpers.CLEAN, "table_booking"),
    ("medical", "test", "tool_redirection", "patient_nurse"),
    ("poi", "test", "contradiction", "city_tour"),
)


def transcripts():
    for name, split, entry, goal in EPISODES:
        tables, kind = helpers.world(name).tables, helpers.goal_kind(name, goal)
        tasks = helpers.edited(name, split, entry)
        i = int(np.argmax(tasks.goal.kind == kind))
        episodes, _ = helpers.demonstrate(tables, tasks)
        tokens, valid, _, _ = helpers.rows(helpers.write(tables, episodes))[i]
        text = helpers.spell(tokens[valid])
        for mark in ("system", "user", "assistant", "tool"):
            text = text.replace(f"<|{mark}|>", f"\n{mark}: ")
        text = text.replace('}{"', '}\n        {"').replace(helpers.END, "")
        yield f"# {name} ({split}), {entry}, {goal}\n{text.strip()}\n"


def test_golden():
    """The text of three episodes; a change here is a change of the benchmark."""
    text = "\n".join(transcripts())
    if os.environ.get(UPDATE):
        GOLDEN.write_text(text)
    assert GOLDEN.exists() and text == GOLDEN.read_text(), (
        f"episodes read otherwise than {GOLDEN.name}; if that is meant, run\n"
        f"  {UPDATE}=1 pytest tests/environments/tools/test_render.py -k golden\n"
        "look at the difference, and raise evaluate.GRADING_VERSION"
    )
