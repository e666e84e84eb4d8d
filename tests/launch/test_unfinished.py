"""An evaluation that was stopped goes on, and nothing of it can be told afterwards."""

import functools
import json

import jax
import numpy as np
import pytest

from launch.common import backbones, cached, scoring
from openagent_jax.curriculum import draw
from openagent_jax.evaluation import bounds, evaluate
from openagent_jax.evaluation.unfinished import FOLDER
from openagent_jax.types import Outcome
from tests import tiny

NAMES = (draw.CLEAN, "identity_erasure")
NUM = 8


@functools.cache
def evaluation():
    """A scorer, and parameters that it evaluates."""
    # At a temperature the outcomes differ between episodes.
    c = tiny.config("sft", eval__temperature=1.0)
    model = backbones.backbone(c)
    return scoring.Scorer(c, model, c.seed), backbones.first_params(c, model)


def at_random(_tables, _params, scenario, _key, _start, _strength, _refused):
    """Episodes as a player returns them, without playing any."""
    rng = np.random.default_rng(int(scenario))
    bits = {x: rng.integers(2, size=NUM) > 0 for x in ("success", "solvable")}
    counts = {x: rng.integers(9, size=NUM) for x in Outcome._fields if x[:3] == "num"}
    outcome = Outcome(
        **bits, **counts, refused=~bits["success"], fewest_calls=np.ones(NUM, int)
    )
    numbers = rng.integers(9, size=(4, NUM))
    no = np.zeros(NUM, bool)
    agents = dict.fromkeys(bounds.AGENTS, outcome)
    task, phrasing, read, written = numbers
    return evaluate.Played(
        outcome, agents, task, phrasing, ~no, no, no, read, written, recording=None
    )


def played(folder, monkeypatch, stop_at=None, params=None, play=at_random):
    """Evaluate into a folder; return the report and the rows that were played."""
    scorer, shipped = evaluation()
    calls = []

    def counted(*args):
        name = NAMES[int(args[2])]
        if name == stop_at:
            raise KeyboardInterrupt
        calls.append(name)
        return play(*args)

    with monkeypatch.context() as patched:
        patched.setattr(scorer, "_play", counted)
        if play is at_random:  # no agent has to learn when to refuse
            patched.setattr(scorer, "_refused", 0)
        try:
            made = scorer(shipped if params is None else params, 3, folder)
        except KeyboardInterrupt:
            made = None
    return made, calls


def stored(folder):
    files = (folder / "eval/3").rglob("*")
    return {x.relative_to(folder): x.read_bytes() for x in files if x.is_file()}


def rows_of(folder):
    """What the evaluation of `played` has stored in a folder."""
    scorer, shipped = evaluation()
    return scorer._unfinished(shipped, 3, folder)


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """The folder of an evaluation that was stopped in its second row."""
    made, calls = played(tmp_path / "stopped", monkeypatch, stop_at=NAMES[1])
    assert made is None and calls == [NAMES[0]]
    return tmp_path / "stopped"


def check_continued(stopped, unbroken, monkeypatch, **how):
    """What is continued gives the same report and files as what was never stopped."""
    expected, calls = played(unbroken, monkeypatch, **how)
    assert calls == [*NAMES]
    resumed, calls = played(stopped, monkeypatch, **how)
    assert calls == [NAMES[1]]
    assert resumed == expected
    assert resumed["bounds"] and resumed["cost"]["episodes"] == 2 * NUM
    for folder in stopped, unbroken:
        assert (folder / "eval/3" / FOLDER).exists()
        scoring.write_report(folder, json.loads(json.dumps(resumed)))
        assert not (folder / "eval/3" / FOLDER).exists()
    assert stored(stopped) == stored(unbroken)


def test_it_goes_on(stopped, tmp_path, monkeypatch):
    check_continued(stopped, tmp_path / "unbroken", monkeypatch)


@pytest.mark.slow
def test_kept_episodes_are_continued(tmp_path, monkeypatch):
    play, folder = evaluation()[0]._play, tmp_path / "stopped"
    played(folder, monkeypatch, stop_at=NAMES[1], play=play)
    check_continued(folder, tmp_path / "unbroken", monkeypatch, play=play)
    kept = [x.name for x in stored(folder) if x.match("trajectories/*.jsonl")]
    assert sorted(kept) == sorted(f"{name}.jsonl" for name in NAMES)


def test_other_parameters_play_all(stopped, monkeypatch):
    other = jax.tree.map(lambda x: x + 0.1, evaluation()[1])
    _, calls = played(stopped, monkeypatch, params=other)
    assert calls == [*NAMES]


@pytest.mark.parametrize("suffix", ["npz", "jsonl"])
@pytest.mark.parametrize("damage", ["cut", "removed", "pickled", "emptied"])
def test_damaged_rows_are_played_again(stopped, monkeypatch, suffix, damage):
    file = stopped / "eval/3" / FOLDER / f"{NAMES[0]}.{suffix}"
    if damage == "removed":
        file.unlink()
    elif damage == "emptied" and suffix == "npz":  # as after a power loss
        file.write_bytes(b"")
    elif damage == "emptied":
        rows = rows_of(stopped)
        outcomes, _ = rows.load(NAMES[0])
        rows.save(NAMES[0], outcomes, [{"index": 0}])
        file.write_bytes(b"")
    elif damage == "pickled":
        with file.open("wb") as opened:
            np.save(opened, np.array([print], dtype=object))
    elif suffix == "npz":
        file.write_bytes(file.read_bytes()[:-40])
    else:
        file.write_bytes(b'{"index": ')
    made, calls = played(stopped, monkeypatch)
    assert calls == [*NAMES] and len(made["rows"]) == 2


def test_no_damage_raises_an_error(stopped):
    """Whatever of a file is damaged; zlib and NumPy raise errors of many kinds."""
    file = stopped / "eval/3" / FOLDER / f"{NAMES[0]}.npz"
    whole, rows = file.read_bytes(), rows_of(stopped)
    assert rows.load(NAMES[0]) is not None
    rng = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        start = rng.integers(len(whole))
        changed[start : start + 20] = rng.bytes(len(changed[start : start + 20]))
        file.write_bytes(changed)
        rows.load(NAMES[0])  # raises nothing


def test_other_code_plays_all(stopped, monkeypatch):
    """Code that was edited, even if the edit was not committed."""
    monkeypatch.setattr(cached, "code_digest", lambda: "edited")
    _, calls = played(stopped, monkeypatch)
    assert calls == [*NAMES]


def test_of_several_processes_all_play_all(stopped, monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    _, calls = played(stopped, monkeypatch)
    assert calls == [*NAMES]
