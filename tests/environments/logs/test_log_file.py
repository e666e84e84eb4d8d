"""Reading the lines of a log file."""

import pytest

from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.environments.logs import log_file


class TestLines:
    def read(self, tmp_path, data):
        file = tmp_path / "x.jsonl"
        file.write_bytes(data)
        return list(log_file.lines(file))

    def test_valid_lines(self, tmp_path):
        data = b'\xef\xbb\xbf{"a": 1}\n\n  \n{"b": "\xc3\xa9"}'
        assert self.read(tmp_path, data) == [(1, {"a": 1}), (4, {"b": "é"})]

    @pytest.mark.parametrize(
        ("data", "problem"),
        [
            (b'{"a": 1}\n{"b": \n{"c": 2}\n', "line 2, column 7: invalid JSON"),
            (
                b'{"a": 1}\n{"messages": [{"role": "us',
                "line 2, column 24: invalid",
            ),
            (b'{"a": 1}\n{"b": "\xff"}\n', "line 2: byte 7 is not UTF-8"),
            (
                b"{\n",
                "line 1, column 2: invalid JSON (Expecting property name enclosed in "
                "double quotes); write one complete conversation per line",
            ),
            (b"\x1f\x8b\x08\x00", "the file is compressed with gzip; unpack it first"),
            (b"[" * 100_000, "line 1: an array or object is nested too deeply"),
            (b"1" * 5000, "line 1: a number of 5,000 digits; remove it"),
            (b'{"a": {"b": 1, "b": 2}}', "line 1: the key 'b' occurs twice in an"),
        ],
    )
    def test_faults(self, tmp_path, data, problem):
        with pytest.raises(DomainError) as error:
            self.read(tmp_path, data)
        assert str(error.value).startswith(f"{tmp_path / 'x.jsonl'}: {problem}")
        assert "\n" not in str(error.value)

    def test_no_file(self, tmp_path):
        with pytest.raises(DomainError, match="none.jsonl: No such file"):
            list(log_file.lines(tmp_path / "none.jsonl"))
