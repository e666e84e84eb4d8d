"""Each step appears once in metrics.jsonl, however an earlier run was killed."""

import io
import json
import math
import os

import numpy as np
import pytest
from tensorboardX.proto import event_pb2

from openagent_jax import metrics


def read(folder):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    text = (folder / "metrics.jsonl").read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def steps(folder):
    return [line["step"] for line in read(folder)]


def write(folder, steps, resume_step=None):
    with metrics.Writer(folder, resume_step) as writer:
        for step in steps:
            writer.write(step, {"train/loss": 1 / (step + 1)})


def events(folder):
    """Return all events of TensorBoard, in the order in which it reads them."""
    read_events = []
    for path in sorted((folder / "tensorboard").iterdir()):
        stream = io.BytesIO(path.read_bytes())
        while head := stream.read(12):  # length and its checksum
            data = stream.read(int.from_bytes(head[:8], "little"))
            read_events.append(event_pb2.Event.FromString(data))
            stream.read(4)
    return read_events


def test_one_flat_object_per_line(tmp_path):
    with metrics.Writer(tmp_path / "new" / "run") as writer:
        writer.write(np.int32(3), {"train/loss": np.float32(0.5), "reward": 1})
        # A reader sees the line while the file is still open.
        line = {"step": 3, "train/loss": 0.5, "reward": 1.0}
        assert read(tmp_path / "new" / "run") == [line]


def test_numbers_that_json_lacks(tmp_path):
    with metrics.Writer(tmp_path) as writer:
        writer.write(0, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.0})
    assert read(tmp_path) == [{"step": 0, "a": "nan", "b": "inf", "c": "-inf", "d": 0}]


@pytest.mark.parametrize("scalars", [{"step": 1}, {"a": np.zeros(3)}, {"a": "text"}])
def test_bad_scalars_leave_no_line(tmp_path, scalars):
    with metrics.Writer(tmp_path) as writer:
        with pytest.raises((ValueError, TypeError)):
            writer.write(0, scalars)
        writer.write(1, {"a": 1})
    assert steps(tmp_path) == [1]


def test_resumed_run_has_each_step_once(tmp_path):
    write(tmp_path, range(8))
    write(tmp_path, range(5, 10), resume_step=4)
    assert steps(tmp_path) == list(range(10))


def test_resume_keeps_the_step_of_the_checkpoint(tmp_path):
    write(tmp_path, range(8))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    write(tmp_path, [], resume_step=7)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    write(tmp_path, [], resume_step=-1)
    assert steps(tmp_path) == []


def test_without_resume_lines_are_only_added(tmp_path):
    write(tmp_path, [5, 6])
    write(tmp_path, [6])
    assert steps(tmp_path) == [5, 6, 6]


@pytest.mark.parametrize("resume_step", [None, 2])
@pytest.mark.parametrize(
    "half", [b'{"step": 2, "train/lo', b"\xff\x00", b'{"step": 2}', b"7\n", b"{}\n"]
)
def test_half_written_line_is_dropped(tmp_path, caplog, half, resume_step):
    write(tmp_path, [0, 1])
    with (tmp_path / "metrics.jsonl").open("ab") as file:
        file.write(half)
    write(tmp_path, [2, 3], resume_step)
    assert steps(tmp_path) == [0, 1, 2, 3]
    assert "dropped 1 damaged lines" in caplog.text


def test_a_killed_rewrite_loses_nothing(tmp_path, monkeypatch):
    write(tmp_path, range(4))
    before = (tmp_path / "metrics.jsonl").read_bytes()

    def die(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", die)
    with pytest.raises(KeyboardInterrupt):
        metrics.Writer(tmp_path, resume_step=1)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before
    monkeypatch.undo()
    write(tmp_path, [2], resume_step=1)
    assert steps(tmp_path) == [0, 1, 2]


def test_tensorboard_has_the_same_steps(tmp_path):
    write(tmp_path, range(4))
    write(tmp_path, [2, 3], resume_step=1)  # within the same second, yet another file
    assert len(list((tmp_path / "tensorboard").iterdir())) == 2
    # TensorBoard drops events at or after the step of a START event.
    kept = []
    for event in events(tmp_path):
        if event.session_log.status == event_pb2.SessionLog.START:
            kept = [e for e in kept if e.step < event.step]
        kept += [event] if event.summary.value else []
    assert [event.step for event in kept] == [0, 1, 2, 3]
    (value,) = kept[3].summary.value
    assert value.tag == "train/loss"
    assert value.simple_value == 0.25


def test_lines_of_progress(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: clock[0])
    with metrics.Progress(110, start=10, every_s=30) as progress:
        clock[0] = 100.0  # compilation
        progress.update(11, {"train/loss": 2.0, "perf/tokens_per_s": 12345.6})
        for step in range(12, 111):
            clock[0] += 2
            progress.update(step, {"train/loss": 1.5})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 11/110, loss 2, tokens/s 1.23e+04"
    assert lines[1] == "step 26/110, loss 1.5, 02:48 left"
    assert lines[-1] == "step 110/110, loss 1.5, 00:00 left"
    assert len(lines) == 8


def test_total_steps_can_change(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: clock[0])
    with metrics.Progress(1000, every_s=0) as progress:
        for step, total in ((1, 20), (2, 22)):
            clock[0] += 3
            progress.set_total_steps(total)
            progress.update(step, {"reward": 0.5})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 1/20, reward 0.500"
    assert lines[1] == "step 2/22, reward 0.500, 01:00 left"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_of_progress(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    with metrics.Progress(20, start=10) as progress:
        for step in (11, 15, 20):
            progress.update(step, {"train/loss": 0.25, "perf/tokens_per_s": 99.0})
    last = terminal.getvalue().split("\r")[-1]
    assert "20/20" in last
    assert "loss=0.25, tokens/s=99" in last
    assert last.endswith("\n")  # later output starts on a new line
