"""The twenty real tool lists: whole, listed with their licences, and drafted or refused
with one line.
"""

import json
import re

import pytest

from openagent_jax.domains import domain_spec
from openagent_jax.drafting import drafting
from tests.drafting import real_lists

IDS = [file.stem for file in real_lists.FILES]
each_list = pytest.mark.parametrize("file", real_lists.FILES, ids=IDS)
FREE = ("MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "MPL-2.0")


REFUSED = ()  # lists that are not drafted whole


def readme_row(file):
    """The cells of the row that the README has for a list, by their headings."""
    text = real_lists.README.read_text(encoding="utf-8")
    section = text.partition("\n## The files\n")[2].partition("\n## ")[0]
    header, _, *rows = [x for x in section.splitlines() if x.startswith("|")]
    cells = [
        [cell.strip() for cell in row.strip("|").split("|")] for row in (header, *rows)
    ]
    (row,) = (row for row in cells[1:] if row[0] == file.name)
    return dict(zip(cells[0], row, strict=True))


def test_there_are_twenty():
    assert len(real_lists.FILES) == 20
    assert sum(file.stat().st_size for file in real_lists.FILES) < 1_000_000


@each_list
def test_it_holds_tools_alone_and_no_name_twice(file):
    document = real_lists.read(file)
    assert list(document) == ["tools"]
    names = real_lists.names(document)
    assert len(set(names)) == len(names) <= 60


@each_list
def test_the_readme_says_what_it_holds(file):
    row, document = readme_row(file), real_lists.read(file)
    assert row["tools"] == str(len(document["tools"]))
    features = ", ".join(real_lists.features(document)) or "required texts alone"
    assert row["schema features"] == features
    assert row["licence"].split()[0] in FREE
    assert all(row.values())


@each_list
def test_its_licence_is_kept(file):
    text = real_lists.LICENSES.read_text(encoding="utf-8")
    (section,) = (
        one for one in text.split("\n## ") if file.name in one.splitlines()[0]
    )
    row = readme_row(file)
    marks = {"MIT": "Permission is hereby granted", "Apache-2.0": "Apache License"}
    assert marks[row["licence"].split()[0]] in section
    if row["copyright"].startswith("Copyright"):
        assert row["copyright"] in section


@each_list
def test_the_outcome_is_a_draft_or_one_line(file):
    one = real_lists.outcome(file)
    assert one.num_tools == len(real_lists.read(file)["tools"])
    assert one.needs_only_values == (file.stem not in REFUSED), one
    if not one.error:
        assert one.num_kept <= one.num_arguments
        return
    assert "\n" not in one.error and one.refused
    # The remedy that the error proposes works.
    assert not real_lists.outcome(file, one.refused).error


def test_each_dated_table_has_all_lists():
    text = real_lists.README.read_text(encoding="utf-8")
    dated = [x for x in text.split("\n## ") if "real_lists` printed it" in x]
    assert len(dated) >= 2
    for section in dated:
        whole = section.partition("\nOf 20 lists ")[0]
        rows = [x for x in whole.splitlines() if x.startswith("| ") and ".json" in x]
        assert [x.split()[1] for x in rows] == [file.name for file in real_lists.FILES]


def test_arguments_are_counted_that_goals_may_give(tmp_path):
    """Those that are only shown to agents are not kept."""
    file = tmp_path / "one.json"
    names = {name: {"type": "integer"} for name in "abcd"} | {"x": {"type": "array"}}
    tool = {"name": "get_size", "inputSchema": {"properties": names, "required": ["a"]}}
    file.write_text(json.dumps({"tools": [tool]}))
    one = real_lists.outcome(file)
    assert (one.num_kept, one.num_arguments) == (3, 5)


def test_holes_are_told_apart(monkeypatch, tmp_path):
    """A value to write is a text of a type; anything else is not only a value."""
    file = tmp_path / "one.json"
    file.write_text('{"tools": [{"name": "get_x"}, {"name": "get_y"}]}')
    values = ["FILL IN: two values"]
    domain = {
        "types": {"x": {"kind": "entity", "train": values}},
        "tools": [],
        "goals": [{"answer": "FILL IN: the answer"}],
    }
    holes = ["types.x.train[0]: two values", "goals[0].answer: the answer"]
    made = drafting.Draft(domain, holes, [])
    monkeypatch.setattr(drafting, "draft", lambda *_: made)
    one = real_lists.outcome(file)
    assert one.value_holes == (holes[0],) and one.other_holes == (holes[1],)
    assert one.faults and not one.is_world


def test_the_table_counts_worlds_and_shows_errors(monkeypatch, tmp_path):
    """A pipe in an error must not end a cell; the second table has the remedies."""
    refusal = "tools[1]: 'b', argument 'x|y': no; leave it out: --skip=b"

    def draft(document, name, skip):
        if "b" in real_lists.names(document) and "b" not in skip:
            raise domain_spec.DomainError(refusal)
        return drafting.Draft({"types": {}, "tools": [], "goals": []}, [], [])

    monkeypatch.setattr(drafting, "draft", draft)
    monkeypatch.setattr(real_lists, "FOLDER", tmp_path)
    monkeypatch.setattr(real_lists.domain_file, "faults", lambda *_: [])
    files = tmp_path / "good.json", tmp_path / "bad.json"
    files[0].write_text('{"tools": [{"name": "a"}]}')
    files[1].write_text('{"tools": [{"name": "a"}, {"name": "b"}]}')
    table = real_lists.table(files)
    assert "| good.json | 1 | 0 | 0 | 0 of 0 |  |" in table
    shown = refusal.replace("|", "\\|")
    assert f"| bad.json | 2 |  |  |  | `{shown}` |" in table
    assert "Of 2 lists 1 became worlds, 1 of them" in table
    assert re.search(r"^\| bad.json \| 1 of 2 \| 0 \| 0 \|", table, re.MULTILINE)
