"""Files that are written as a whole or not at all."""

import pytest

from openagent_jax import files


def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with files.replacing(file) as part:
        part.write_text("new")
        assert file.read_text() == "old"
    assert file.read_text() == "new"
    assert list(tmp_path.iterdir()) == [file]


def test_a_failure_leaves_the_old_file_and_no_other(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("old")
    with pytest.raises(RuntimeError), files.replacing(file) as part:
        part.write_text("half of")
        raise RuntimeError
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
