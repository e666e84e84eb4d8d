"""The data of the viewer of episodes; test_viewer_page.py looks at it in a browser."""

import base64
import gzip
import json
import re

import pytest

from openagent_jax.report import causes, trajectories, viewer
from openagent_jax.report.viewer import pack
from tests.report import kept_episodes as kept


def unpacked(parts):
    return {
        name: json.loads(gzip.decompress(base64.b64decode(text)))
        for name, text in parts.items()
    }


def episodes_of(parts):
    """Put the episodes together again: `(run, scenario, index)`, and the rest."""
    made = unpacked(parts)
    index, table = made["index"], made["index"]["table"]
    for i in range(len(table["run"])):
        chunk = made[str(table["chunk"][i])]
        episode = chunk["episodes"][table["place"][i]]
        for key in ("tools", "messages", "plan"):
            episode[key] = [chunk["shared"][number] for number in episode[key]]
        run, scenario = table["run"][i], index["scenarios"][table["scenario"][i]]
        yield (index["runs"][run]["name"], scenario, table["index"][i]), episode


@pytest.fixture
def folders(tmp_path):
    return {
        "sft": [kept.evaluation(tmp_path / "sft/eval/10")],
        "paft": [kept.evaluation(tmp_path / f"paft{k}/eval/10") for k in (1, 2)],
    }


@pytest.mark.parametrize("chunk_bytes", [1, 10**9])
def test_nothing_is_lost(folders, monkeypatch, chunk_bytes):
    monkeypatch.setattr(pack, "CHUNK_BYTES", chunk_bytes)
    parts = pack.pack(folders)
    assert len(parts) == (1 + 4 if chunk_bytes == 1 else 2)
    found = dict(episodes_of(parts))
    assert len(found) == 3 * 4 * 4
    for (run, scenario, index), episode in found.items():
        assert run in ("sft", "paft: paft1", "paft: paft2")
        folder = folders["sft"][0] / trajectories.FOLDER
        [line] = [x for x in trajectories.read(folder, scenario) if x["index"] == index]
        for key in ("tools", "messages", "plan"):
            assert episode[key] == line[key]
        assert episode["rewards"].keys() == {
            k for k, x in line["rewards"].items() if any(x)
        }


def test_the_index(folders):
    index = unpacked(pack.pack(folders))["index"]
    assert index["scenarios"] == [
        "clean",
        "runtime_error",
        "semantic_trap",
        "unsolvable",
    ]
    assert index["notes"] == []
    table = index["table"]
    assert {len(column) for column in table.values()} == {48}
    # Clean first; then by task, so that equal tasks of all runs are neighbours.
    assert table["index"][:6] == [0, 0, 0, 1, 1, 1] and table["run"][:3] == [0, 1, 2]
    first = index["scenarios"].index("runtime_error") * 12 + 3
    assert index["failures"][table["failure"][first]] == "wrong_answer"
    assert index["causes"][table["cause"][first]] == "feedback"
    assert table["turn"][first] == 3 and not any(table["turn"][:12])
    assert index["meanings"] == {"feedback": list(causes.MEANINGS["feedback"])}
    assert table["request"][first] == "Book a table at Velvet Anchor, hour 1."
    assert table["said"][first] == "count_seats reserve_table Answer: 12"
    # Equal tasks have equal numbers.
    assert len(set(table["task"])) == 4


def test_equal_episodes_give_equal_pages(folders):
    assert viewer.embed(folders) == viewer.embed(folders)


def test_runs_have_different_names(tmp_path):
    same = [tmp_path / "a/x/eval/1", tmp_path / "b/x/eval/1", tmp_path / "eval"]
    columns = {"x": same, "y": same[:1], "x: x": same[:1]}
    names = [x["name"] for x in unpacked(pack.pack(columns))["index"]["runs"]]
    assert names == ["x: x", "x: x (2)", "x: eval", "y", "x: x (1)"]


def test_what_is_damaged_is_left_out_and_said(tmp_path):
    folder = kept.evaluation(tmp_path / "run/eval/1")
    file = folder / trajectories.FOLDER / "clean.jsonl"
    strange = [[1], {"index": -1}, {"index": 0, "messages": [3]}, {"index": 1e999}]
    texts = [*map(json.dumps, strange), '{"index": 9, "x": NaN}', '{"index": "0"}']
    file.write_text(file.read_text()[:-9] + "\n" + "\n".join(texts) + "\n")
    found = unpacked(pack.pack({"run": [folder], "none": [tmp_path / "none"]}))["index"]
    assert len(found["table"]["run"]) == 4 * 4 - 1
    torn, foreign, missing = found["notes"]
    assert torn == f"{file}: 2 of 10 lines cannot be read"
    assert foreign == f"{file.parent}: lines of clean that are not episodes: 5"
    assert missing.endswith("none: it has no episodes; eval.keep says how many to keep")


def test_an_episode_of_few_fields_is_shown(tmp_path):
    trajectories.write(tmp_path / trajectories.FOLDER, "clean", [{"index": 3}])
    [(key, episode)] = episodes_of(pack.pack({"run": [tmp_path]}))
    assert key == ("run", "clean", 3) and episode["messages"] == []


def test_the_glossary_is_that_of_the_reports(folders):
    entry = {"summary": "A tool fails.", "right": "try again"}
    report = {"glossary": {"runtime_error": entry, "x": 3}}
    (folders["sft"][0] / "report.json").write_text(json.dumps(report))
    (folders["paft"][0] / "report.json").write_text("{")
    index = unpacked(pack.pack(folders))["index"]
    assert index["glossary"] == {"runtime_error": entry}
    given = unpacked(pack.pack(folders, {"clean": {"summary": "as it is"}}))["index"]
    assert given["glossary"] == {"clean": {"summary": "as it is", "right": ""}}


def test_data_cannot_leave_its_element(tmp_path):
    evil = "</script><img src=x onerror=alert(1)>"
    lines = [kept.solved(0, request=evil) | {"failure": evil}]
    trajectories.write(tmp_path / trajectories.FOLDER, "a", lines)
    page = viewer.embed({evil: [tmp_path]}, {evil: {"summary": evil}})
    assert "onerror" not in page
    parts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    assert len(parts) == 3 and page.count("<script") == page.count("</script") == 3
    assert all(re.fullmatch(r"[A-Za-z0-9+/=]+", part) for part in parts[:2])
    assert "<!--" not in page and "innerHTML" not in page


def test_the_page_asks_no_network(folders):
    page = viewer.embed(folders)
    assert not re.search(r"https?:|url\(|@import|\bimport\b|fetch\(|XMLHttp", page)


def test_size(tmp_path):
    folder = kept.evaluation(tmp_path / "eval/1", num=375)
    page = viewer.embed({"run": [folder]})
    assert len(page) < 200_000


def test_links():
    assert viewer.link() == "#episodes"
    assert (
        viewer.link(("a/b", 3, "x&y"), q="50 %") == "#episode=a%2Fb/3/x%26y&q=50%20%25"
    )
