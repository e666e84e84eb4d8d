"""Results are found again only for equal inputs, and by the same code."""

import numpy as np
import pytest

from launch.common import cached


@pytest.fixture
def compute():
    """A function that counts its calls."""
    calls = []

    def count():
        calls.append(1)
        return {"calls": len(calls)}

    return count


def test_equal_inputs_are_computed_once(tmp_path, compute):
    arrays = {"x": np.arange(3)}
    for _ in range(2):
        assert cached.result(str(tmp_path), {"a": 1}, arrays, compute) == {"calls": 1}


@pytest.mark.parametrize(
    ("key", "arrays"),
    [
        ({"a": 2}, {"x": np.arange(3)}),
        ({"a": 1}, {"x": np.arange(3) + 1}),
        ({"a": 1}, {"x": np.arange(3.0)}),
        ({"a": 1}, {"y": np.arange(3)}),
    ],
)
def test_other_inputs_are_computed(tmp_path, compute, key, arrays):
    folder = str(tmp_path)
    cached.result(folder, {"a": 1}, {"x": np.arange(3)}, compute)
    assert cached.result(folder, key, arrays, compute) == {"calls": 2}


def test_other_code_computes_again(tmp_path, compute, monkeypatch):
    cached.result(str(tmp_path), {}, (), compute)
    monkeypatch.setattr(cached, "code_digest", lambda: "other")
    assert cached.result(str(tmp_path), {}, (), compute) == {"calls": 2}


def test_a_damaged_file_is_replaced(tmp_path, compute):
    cached.result(str(tmp_path), {}, (), compute)
    (file,) = tmp_path.glob("results/*")
    file.write_text('{"calls"')
    for _ in range(2):
        assert cached.result(str(tmp_path), {}, (), compute) == {"calls": 2}


def test_without_a_folder_nothing_is_kept(tmp_path, compute):
    for expected in (1, 2):
        assert cached.result("", {}, (), compute) == {"calls": expected}
    (tmp_path / "file").touch()  # and where no folder can be made
    folder = str(tmp_path / "file" / "cache")
    assert cached.result(folder, {}, (), compute) == {"calls": 3}
