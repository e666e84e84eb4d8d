"""The files of kept episodes."""

import gzip
import random

import pytest

from openagent_jax.report import trajectories

LINES = [{"index": i, "text": "x" * 100 + "\ud83d…"} for i in range(5)]
READ = [line | {"text": "x" * 100 + "?…"} for line in LINES]


def test_large_files_are_compressed(tmp_path, monkeypatch):
    plain = trajectories.write(tmp_path, "clean", LINES)
    size = plain.stat().st_size
    assert plain.name == "clean.jsonl" and list(
        trajectories.read(tmp_path, "clean")
    ) == (READ)
    assert len(plain.read_text("utf-8").splitlines()) == 5
    monkeypatch.setattr(trajectories, "MAX_BYTES", size)
    assert trajectories.write(tmp_path, "clean", LINES) == plain
    monkeypatch.setattr(trajectories, "MAX_BYTES", size - 1)
    packed = trajectories.write(tmp_path, "clean", LINES)
    assert packed.name == "clean.jsonl.gz" and [*tmp_path.iterdir()] == [packed]
    assert list(trajectories.read(tmp_path, "clean")) == READ
    assert trajectories.scenarios(tmp_path) == ["clean"]
    assert gzip.decompress(packed.read_bytes()).count(b"\n") == 5
    monkeypatch.setattr(trajectories, "MAX_BYTES", size)
    assert trajectories.write(tmp_path, "clean", LINES[:2]) == plain
    assert [*tmp_path.iterdir()] == [plain]
    assert list(trajectories.read(tmp_path, "clean")) == READ[:2]


@pytest.mark.parametrize("max_bytes", [0, 10**6])
def test_a_file_appears_only_when_complete(tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr(trajectories, "MAX_BYTES", max_bytes)
    before = trajectories.write(tmp_path, "clean", LINES)

    def broken():
        yield LINES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trajectories.write(tmp_path, "clean", broken())
    with pytest.raises(KeyboardInterrupt):
        trajectories.write(tmp_path, "other", broken())
    assert trajectories.scenarios(tmp_path) == ["clean"]
    assert list(trajectories.read(tmp_path, "clean")) == READ
    with pytest.raises(ValueError):
        trajectories.write(tmp_path, "other", [{"x": float("nan")}])
    assert trajectories.scenarios(tmp_path) == ["clean"] and before.exists()


@pytest.mark.parametrize("max_bytes", [0, 10**6])
def test_damaged_files_are_reported(tmp_path, monkeypatch, max_bytes):
    monkeypatch.setattr(trajectories, "MAX_BYTES", max_bytes)
    file = trajectories.write(tmp_path, "clean", LINES)
    data = file.read_bytes()
    for damaged in (data[: len(data) // 2], b"[1]\n", b"\xff\xfe"):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged") as error:
            list(trajectories.read(tmp_path, "clean"))
        assert str(file) in str(error.value) and "\n" not in str(error.value)


def test_what_is_whole_is_salvaged(tmp_path):
    file = trajectories.write(tmp_path, "clean", LINES)
    assert trajectories.salvage(tmp_path, "clean") == (READ, [])
    first, second, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(first + b"{broken\n" + b"[1]\n" + b"".join(rest)[:-9])
    whole, notes = trajectories.salvage(tmp_path, "clean")
    assert whole == [READ[0], *READ[2:4]]
    assert notes == [f"{file}: 3 of 6 lines cannot be read"]
    file.write_bytes(b"")
    assert trajectories.salvage(tmp_path, "clean") == ([], [f"{file}: it is empty"])


def test_what_is_whole_is_salvaged_of_a_compressed_file(tmp_path, monkeypatch):
    monkeypatch.setattr(trajectories, "MAX_BYTES", 0)
    lines = [
        {"index": i, "text": random.Random(i).randbytes(500).hex()} for i in range(9)
    ]
    file = trajectories.write(tmp_path, "clean", lines)
    file.write_bytes(file.read_bytes()[:-1000])
    whole, [note] = trajectories.salvage(tmp_path, "clean")
    assert 0 < len(whole) < 9 and whole == lines[: len(whole)]
    assert note.endswith("lines cannot be read; what follows them is lost")


def test_missing_scenarios_are_reported(tmp_path):
    with pytest.raises(FileNotFoundError, match="kept are: none"):
        list(trajectories.read(tmp_path, "clean"))
    trajectories.write(tmp_path, "clean", LINES)
    with pytest.raises(FileNotFoundError, match="kept are: clean"):
        list(trajectories.read(tmp_path, "rule_shift"))


def test_the_newest_evaluation(tmp_path):
    with pytest.raises(FileNotFoundError, match="none: no such folder"):
        trajectories.newest(tmp_path / "none")
    for step in ("9", "10", "best", "11"):
        folder = tmp_path / "eval" / step / trajectories.FOLDER
        folder.mkdir(parents=True)
        with pytest.raises(FileNotFoundError, match="no kept episodes; .* eval.keep"):
            trajectories.newest(tmp_path)
    for step in ("9", "10", "best"):
        trajectories.write(
            tmp_path / "eval" / step / trajectories.FOLDER, "clean", LINES
        )
    assert trajectories.newest(tmp_path) == tmp_path / "eval/10" / trajectories.FOLDER
