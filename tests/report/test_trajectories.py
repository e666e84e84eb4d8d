"""Files of kept episodes, whole and half-written."""

import gzip
import json

from openagent_jax.report import trajectories

LINES = [{"index": i, "text": "x" * 50} for i in range(4)]
TEXT = "".join(json.dumps(line) + "\n" for line in LINES).encode()


def test_what_is_whole_is_still_read(tmp_path):
    file = tmp_path / "clean.jsonl"
    file.write_bytes(TEXT)
    assert trajectories.whole(tmp_path, "clean") == (LINES, None)
    file.write_bytes(TEXT[:-20])
    found, dropped = trajectories.whole(tmp_path, "clean")
    assert found == LINES[:3] and dropped is not None
    assert dropped.file == file and dropped.num_whole == 3
    text = str(dropped)
    assert text.startswith(f"{file} is damaged behind line 3 (") and "\n" not in text
    packed = tmp_path / "other.jsonl.gz"
    packed.write_bytes(gzip.compress(TEXT)[:-12])
    found, dropped = trajectories.whole(tmp_path, "other")
    assert found == LINES[: len(found)] and dropped is not None
    (tmp_path / "empty.jsonl").write_bytes(b"")
    assert trajectories.whole(tmp_path, "empty") == ([], None)
