"""Reports are written atomically, and are checked when they are read."""

import contextlib
import json
import os
import re

import pytest

from openagent_jax import report
from tests.report.builders import make_report


def test_write_then_load(tmp_path):
    made = make_report('<script>"x"</script>|')
    path = report.write(tmp_path / "eval" / "12", made)
    report.write(tmp_path / "eval" / "9", make_report("older"))
    (tmp_path / "eval" / "100").mkdir()  # an evaluation that has not finished
    report.write(tmp_path / "eval" / "notes", make_report("no step"))
    for place in (path, path.parent, tmp_path):
        assert report.load(place) == made
    names = {"report.json", "report.md", "report.html"}
    assert {*os.listdir(path.parent)} == names
    html = (path.parent / "report.html").read_text()
    assert re.findall("<script.*?>", html) == ["<script>"]  # ours
    assert "://" not in html  # loads nothing from the network
    assert "&lt;script&gt;" in html and html.count('title="no task changed"') == 2


def test_a_killed_write_keeps_the_old_report(tmp_path, monkeypatch):
    path = report.write(tmp_path, make_report("old"))
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        report.write(tmp_path, make_report("new"))
    assert report.load(path)["policy"] == "old"


def test_write_refuses_invalid_reports(tmp_path):
    made = make_report()
    made["rows"][0]["success"].pop("low")
    with pytest.raises(ValueError, match=r"lacks rows\[0\]\.success\.low"):
        report.write(tmp_path / "new", made)
    assert not (tmp_path / "new").exists()


def test_write_refuses_nan(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        report.write(tmp_path / "new", make_report(seed=float("nan")))
    assert not (tmp_path / "new").exists()


def without(key, row_key=None):
    made = make_report()
    del (made["rows"][1] if row_key else made)[row_key or key]
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"suite": ', "not JSON"),
        ("", "not JSON"),
        ("\x00\xff", "not JSON"),
        (
            "{}",
            "it lacks suite; it lacks policy; it lacks checkpoint_step; it lacks rows",
        ),
        ("[]", "not a report: it should be an object$"),
        ("null", "not a report: it should be an object$"),
        ("3", "not a report: it should be an object$"),
        (without("policy"), "lacks policy$"),
        (without("rows", "delta"), r"lacks rows\[1\]\.delta$"),
        (json.dumps(make_report(rows=[3])), r"rows\[0\] should be an object$"),
        (json.dumps(make_report(rows=3)), "rows should be a valid list$"),
    ],
)
def test_load_errors(tmp_path, text, message):
    path = tmp_path / "report.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=message) as error:
        report.load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_load_names_all_problems_in_one_line(tmp_path):
    made = make_report()
    del made["suite"], made["rows"][1]["tier"]
    made["rows"][0] |= {"n": "8", "family": "unseen"}
    made["rows"][1]["delta"]["low"] = float("inf")
    made["rows"][2]["success"]["high"] = None
    made["rows"][4]["success"]["mean"] = 57.1  # percent instead of a fraction
    made["rows"][5]["success"] = dict.fromkeys(("mean", "low", "high"))
    path = tmp_path / "report.json"
    path.write_text(json.dumps(made))
    with pytest.raises(ValueError) as error:
        report.load(path)
    assert str(error.value).removeprefix(f"{path}: not a report: ").split("; ") == [
        "it lacks suite",
        "it lacks rows[1].tier",
        "rows[0].family should be 'train' or 'held_out'",
        "rows[0].n should be a valid integer",
        "rows[1].delta.low should be a finite number",
        "rows[2].success is null in part",
        "rows[4].success.mean should be less than or equal to 1",
        "rows[5] has tasks, but null success",
    ]


def test_many_problems_are_counted(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(make_report(rows=[3] * 50)))
    with pytest.raises(ValueError, match="; and 30 more problems$") as error:
        report.load(path)
    assert str(error.value).count("should be an object") == 20


def test_unknown_keys_are_kept(tmp_path):
    made = make_report(log="mapped 2 of 3 conversations")
    made["rows"][0] |= {"claim": "unseen_forms", "domain": "poi"}
    assert report.load(report.write(tmp_path, made)) == made


def test_load_without_a_report(tmp_path):
    for place in (tmp_path, tmp_path / "absent", tmp_path / "absent.json"):
        with pytest.raises(ValueError, match="no report to read"):
            report.load(place)
    remedy = f"nor in {tmp_path}/eval; python -m launch.evaluate makes one"
    with pytest.raises(ValueError, match=remedy):
        report.load(tmp_path)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("rows", [], "rows is empty"),
        ("trained_on", "x", "trained_on should be"),
        ("trained_on", [{"name": "x"}], r"lacks trained_on\[0\].domains"),
        ("scenario_groups", 3, "scenario_groups should be"),
        ("domains", [{}], r"lacks domains\[0\].rows"),
    ],
)
def test_what_a_page_needs_is_checked(tmp_path, key, value, problem):
    (tmp_path / "report.json").write_text(json.dumps(make_report() | {key: value}))
    with pytest.raises(ValueError, match=problem):
        report.load(tmp_path)


def test_null_is_as_good_as_missing(tmp_path):
    made = make_report()
    for r in made["rows"]:
        r |= {"p": None, "retention": None, "claim": None, "unanswered": 0}
    made |= {"trained_on": None, "cost": None}
    assert report.load(report.write(tmp_path, made)) == made


def test_columns(tmp_path):
    """Names, means of runs, and existing paths that contain "=" or "+"."""
    for i, name in enumerate(("a", "b", "x=y+z")):
        report.write(tmp_path / name, make_report(name, train_seed=i))
    a, b, odd = (str(tmp_path / name) for name in ("a", "b", "x=y+z"))
    columns = report.load_columns([a, f"Both={a}+{b}", odd, f"Odd={odd}"])
    assert list(columns) == ["a", "Both", "x=y+z", "Odd"]
    assert [x["policy"] for x in columns.values()] == ["a", "a", "x=y+z", "x=y+z"]
    with pytest.raises(ValueError, match="no report to read"):
        report.load_columns([f"Both={a}+{tmp_path}/c"])
    assert columns["Both"]["num_seeds"] == 2
    with contextlib.chdir(tmp_path):
        assert list(report.load_columns(["./a", ".//b"])) == ["a", "b"]
    with pytest.raises(ValueError, match="Twice: .*/a is named twice"):
        report.load_columns([f"Twice={a}+{a}"])
    with pytest.raises(ValueError, match='two columns are called "A"'):
        report.load_columns([f"A={a}", f"A={b}"])


MEANINGS = {
    "semantic_trap": {"summary": "Give `a` & b other names.", "right": "Read on."},
    "tool_order": {"summary": "Shuffle.", "right": "Go on."},
}


def test_scenarios_are_explained(tmp_path):
    """In a list at the end, and in HTML in a section for each."""
    made = make_report(glossary=MEANINGS)
    made["rows"][1]["scenario"] = "semantic_trap+tool_order"
    report.write(tmp_path, made)
    assert report.load(tmp_path) == made
    text = (tmp_path / "report.md").read_text()
    assert text.endswith("* `tool_order`: Shuffle. Right: Go on.\n")
    text = (tmp_path / "report.html").read_text()
    told = "Give a &amp; b other names. Shuffle. <b>Right:</b> Read on. Go on."
    card = text.split('<details id="s-semantic_trap+tool_order">')[1]
    assert told in card.split("</details>")[0]
    made = make_report()
    report.write(tmp_path, made)
    for name in ("report.md", "report.html"):
        assert "Right:" not in (tmp_path / name).read_text()


def test_a_damaged_glossary_is_refused(tmp_path):
    made = make_report(glossary={"tool_order": {"summary": "Shuffle."}})
    with pytest.raises(ValueError, match=r"it lacks glossary\.tool_order\.right"):
        report.write(tmp_path, made)
