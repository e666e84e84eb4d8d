"""The page of a report: what it shows, of which columns, and from which episodes."""

import base64
import dataclasses
import gzip
import html
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from openagent_jax import report
from openagent_jax.report import viewer
from openagent_jax.report.web import charts, views
from tests.report import builders
from tests.report.builders import TRAP, UNSOLVABLE, make_report, outcomes, page

VOID = {"meta", "link", "br", "dt", "dd", "tr", "th", "td", "li", "p"}  # may stay open
VOID |= {"path", "use", "rect", "input"}


class Reader(HTMLParser):
    """Collects ids, links within the page, and tags that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.open = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids += [found["id"]] if "id" in found else []
        link = found.get("href") or ""
        self.links += [link[1:]] if link.startswith("#") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def words(text):
    """The text of a page without its tags."""
    text = re.sub(
        r"<(style|script|title|desc)\b[^>]*>.*?</\1>", " ", text, flags=re.DOTALL
    )
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())


def refuser():
    """A report of an agent that refuses everything."""
    yes, no = np.ones(8, bool), np.zeros(8, bool)
    clean = outcomes(no, refused=yes)
    gone = dataclasses.replace(clean, success=yes, solvable=no)
    rows = [
        builders.row(None, 0.0, clean, clean),
        builders.row(UNSOLVABLE, 1.0, gone, clean),
        builders.row(TRAP, 1.0, clean, clean),
    ]
    return make_report("refuser", rows=rows)


def test_an_agent_that_refuses_everything_succeeds_in_nothing():
    text = words(page(refuser()))
    assert "On clean tasks it succeeds in 0.0 %" in text
    assert "in 0.0 % of the tasks that can be solved" in text
    assert "It refuses 100.0 % of the tasks that cannot be solved, and 100.0 %" in text
    assert "+" not in text.split("Success by tier")[0].split("open world %")[1]


def test_links_ids_and_tags_are_sound():
    made = make_report('a & "b" <c>', bounds={"oracle": {"semantic_trap": 1.0}})
    for text in (page(made), page(made, other=make_report("x")), page(refuser())):
        found = Reader(text)
        assert found.open == [] and len(found.ids) == len({*found.ids})
        assert {*found.links} <= {*found.ids} and len(found.links) > 20
        assert "http" not in text and "@import" not in text
        assert re.findall("<script.*?>", text) == ["<script>"]


def test_the_same_reports_make_the_same_page():
    assert page(make_report()) == page(make_report())
    made = report.picture({"a": make_report()})
    assert made == report.picture({"a": make_report()}) and "<date" not in made


def test_every_row_has_its_definition():
    meanings = {"semantic_trap": {"summary": "Names mislead.", "right": "Read."}}
    text = page(make_report(glossary=meanings))
    for r in make_report()["rows"]:
        assert f'<a href="#s-{r["scenario"]}">' in text
        assert f'<details id="s-{r["scenario"]}">' in text
    assert "Names mislead. Right: Read." in words(text)


def test_a_scenario_has_its_rate_on_its_line():
    """Of each column; one that was not played leaves its place empty."""
    made, less = make_report(), make_report("less")
    less["rows"] = [r for r in less["rows"] if r["scenario"] != "semantic_trap"]
    for scenario, shown in (
        ("semantic_trap", ["–", "12 %"]),
        ("tool_order", ["no task changed"] * 2),
        ("unsolvable", ["refused 50 %"] * 2),
    ):
        line = page(less, more=made).split(f'<details id="s-{scenario}">')[1]
        line = line.split('<span class="rates">')[1].split("</summary>")[0]
        found = re.findall(r'title="(\w+)">\s*([^<]*)<', line)
        assert found == [*zip(("less", "more"), shown, strict=True)]


def test_a_report_without_clean_tasks_or_without_any():
    made = make_report()
    perturbed = made["rows"][:-1]
    seen = words(page(made | {"rows": perturbed})).split("Clean against")[1]
    assert "In the open world, over 2 scenarios, it succeeds in 50.4 %" in seen
    assert "On clean tasks" not in seen
    none = dict.fromkeys(("mean", "low", "high"))
    for r in made["rows"]:
        rates = {name: None for name in (*report.RATES, "chain_length_ratio")}
        r |= {"n": 0, "success": none, "delta": none, "outcomes": "." * 8, **rates}
    seen = words(page(made)).split("Clean against the open world")[1]
    assert seen.startswith(" No task was played, or none was answered.")
    assert "Success on tasks" not in seen.split("Success by tier")[0]


def test_strengths_are_columns_and_curves():
    text = page(make_report())
    head = text.split('id="scenarios"')[1]
    assert "strength" in head and ">0.5<" in head.replace("\n", "")
    line = re.search(r'<a href="#s-semantic_trap">.*', head)
    assert line and re.findall(r'title="([\d.]+) ', line[0])[:2] == ["75.0", "12.5"]
    assert "Success under semantic_trap" in text
    assert "Success under rule_shift" not in text  # one strength alone


def test_columns_are_compared_with_the_first():
    better = make_report("better")
    clean = outcomes([1] * 8)
    better["rows"][2] = builders.row(TRAP, 1.0, outcomes([1] * 7 + [0]), clean)
    text = words(page(make_report(), better=better))
    part = text.split("Differences from base")[1].split("How episodes end")[0]
    assert "semantic_trap +75.0 [" in part and "semantic_trap at 0.5 +0.0 [" in part
    assert "unsolvable" not in part
    # Other tasks are not paired, and the reader is told.
    other = make_report("other", num_tasks=9)
    text = words(page(make_report(), other=other))
    assert "cannot be compared, since num_tasks is 8 (base), 9 (other)" in text
    part = text.split("Differences from base")[1].split("How episodes end")[0]
    assert "semantic_trap +0.0 " in part and "[" not in part


def test_seeds_are_pooled_and_drawn():
    runs = {str(i): make_report(train_seed=i) for i in range(2)}
    text = page(report.pool(runs))
    assert "mean of 2 seeds" in text and "Small circles are seeds" in text
    assert "fewer than 5 training seeds" in text


def test_endings_count_episodes():
    (view,), _ = views.of({"a": views.Column(make_report())})
    assert views.confusion(view, clean=True)["solvable"] == {
        "refused": 0,
        "solved": 7,
        "failed": 1,
    }
    assert views.confusion(view, clean=False)["unsolvable"] == {
        "refused": 4,
        "solved": 0,
        "failed": 4,
    }
    old = builders.without_outcomes(make_report())
    (view,), _ = views.of({"a": views.Column(old)})
    assert views.confusion(view, clean=True) == {}
    assert "How episodes end" not in page(old)


FIND = {"name": "find", "arguments": {"city": "Rome"}}
LINE = {
    "scenario": "semantic_trap",
    "index": 3,
    "success": False,
    "solvable": True,
    "changed": True,
    "answered": True,
    "failure": "wrong_answer",
    "num_calls": 1,
    "plan": [FIND, {"text": "Answer: 4"}],
    "actions": [FIND | {"arguments": {"city": "Bonn"}}, {"text": "Answer: 5"}],
    "results": ['{"error": "<no such city>"}', None],
    "messages": [{"role": "user", "content": "Find <Rome>."}],
}


@pytest.fixture
def folder(tmp_path):
    """An evaluation with kept episodes: five, of which three failed."""
    lines = [LINE, LINE, LINE | {"index": 4, "actions": [{"text": "Answer: 1"}]}]
    lines += [LINE | {"success": True, "failure": ""}, LINE | {"changed": False}]
    kept = tmp_path / "trajectories"
    kept.mkdir()
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (kept / "semantic_trap.jsonl").write_text(text)
    return tmp_path


def test_causes_and_an_example_of_each(folder):
    made = report.page({"base": report.Column(make_report(), [folder])})
    text = words(made.text)
    assert (
        made.notes == []
        and "Of 4 kept episodes whose task the scenario changed, 3 failed." in text
    )
    card = text.split("Scenarios, one by one")[1].split("semantic_trap ")[1]
    assert "3 of 4 kept episodes failed, without 1 whose task" in card
    assert "2 × wrong values" in card and "1 × gave up" in card
    assert (
        'request Find <Rome>. did find(city="Bonn") was told {"error": "<no such '
        'city>"} oracle find(city="Rome")'
    ) in card
    assert Reader(made.text).open == []
    every = "#scenario=semantic_trap&amp;run=base&amp;outcome=failure"
    assert f'href="{every}"' in made.text
    assert 'href="#episode=semantic_trap/3/base"' in made.text
    one = "#scenario=semantic_trap&amp;run=base&amp;cause=arguments"
    assert f'href="{one}"' in made.text


def kept(tmp_path, name, *lines):
    """A report's page of these episodes of a scenario, as words."""
    folder = tmp_path / "trajectories"
    folder.mkdir()
    text = "".join(json.dumps(LINE | x) + "\n" for x in lines)
    (folder / f"{name}.jsonl").write_text(text)
    made = report.page({"base": report.Column(make_report(), [tmp_path])})
    return words(made.text).split("Why episodes fail")[1]


def test_what_was_told_before_is_shown(tmp_path):
    """Such as the error that the agent should have acted on."""
    plan, other = [FIND, FIND, {"text": "Answer: 4"}], {"name": "x", "arguments": {}}
    again = {"actions": [FIND, other], "results": ["try again", "x is done"]}
    text = kept(tmp_path, "semantic_trap", again | {"plan": plan})
    told = 'had been told try again did x() was told x is done oracle find(city="Rome")'
    assert told in text


def test_examples_of_several_seeds_are_linked(folder, tmp_path):
    """They are named as in the list of episodes, which shows each run on its own."""
    seeds = {f"{i}": make_report(train_seed=i) for i in range(2)}
    none = tmp_path / "none/eval/3"
    column = report.Column(report.pool(seeds), [none, folder])
    text = report.page({"one": report.Column(seeds["0"]), "both": column}).text
    run = f"both%3A%20{folder.name}"
    assert f'href="#episode=semantic_trap/3/{run}"' in text
    names = [x["name"] for x in _index(text)["runs"]]
    assert run in {viewer.link(("", 0, x)).rpartition("/")[2] for x in names}
    # One run is counted beside several, although it has no intervals there.
    ends = words(text).split("How episodes end")[1].split(" Cost ")[0]
    assert ends.count("● one") == ends.count("■ both") == 3


def _index(text):
    """What the viewer of a page lists."""
    part = re.search('<script type="text/plain" data-part="index">(.*?)<', text)
    return json.loads(gzip.decompress(base64.b64decode(part[1])))


def test_missed_refusals_by_the_reason_why_a_task_cannot_be_solved(tmp_path):
    never = {"solvable": False, "plan": [{"text": "Refuse"}]}
    missing = never | {"unsolvable": "missing_tool", "failure": "missed_refusal"}
    right = {"success": True, "failure": "", "refused": True}
    broken = never | {"unsolvable": "out_of_service"} | right
    text = kept(tmp_path, "unsolvable", missing, missing, missing | right, broken)
    assert "2 × did not refuse : 2 of 3 missing tool, 0 of 1 out of service" in text


def test_the_example_is_of_the_commonest_kind(tmp_path):
    rare = {"results": ["nothing of the kind", None]}
    often = ({"results": [f"there is no such city {i}", None]} for i in (2, 7))
    text = kept(tmp_path, "semantic_trap", rare, *often)
    assert "3 × wrong values" in text and "was told there is no such city 2" in text
    assert "nothing of the kind" not in text


def test_odd_episodes_do_not_hide_the_others(tmp_path):
    odd = {"messages": [3]}, {"plan": 3, "num_calls": "x"}, {"failure": [1]}
    text = kept(tmp_path, "semantic_trap", *odd, {"actions": {}}, {})
    assert "4 of 5 kept episodes failed" in text and "2 × wrong values" in text


def test_an_episode_without_an_end_is_one_of_turns_or_of_context(tmp_path):
    late = ({"failure": x} for x in ("out_of_turns", "out_of_context", "wrong_answer"))
    text = kept(tmp_path, "semantic_trap", *late)
    line = text.split("no end ")[1].split("Episodes by cause")[0]
    assert line.split() == ["semantic_trap", "3", "of", "3", "3", "2"]


def test_a_half_written_file_is_shown_as_far_as_it_is_whole(folder):
    file = folder / "trajectories/semantic_trap.jsonl"
    file.write_text(file.read_text()[:-20])
    made = report.page({"base": report.Column(make_report(), [folder])})
    (note,) = made.notes
    assert str(file) in note and "1 of 5 lines" in note
    text = words(made.text)
    assert f"Dropped: {note}" in text and "Of 4 kept episodes, 3 failed." in text


def test_a_remote_agent_has_no_steps_of_training():
    about = {"agent": "openai", "model": "m-1", "base_url": "http://host/v1"}
    about |= {"request": {"temperature": 0.0}, "checkpoint_step": 0}
    cost = {"episodes": 6, "requests": 9, "retries": 2, "prompt_tokens": 4200}
    made = make_report("m-1", **about, cost=cost, unanswered_reasons={"time-out": 3})
    for r in made["rows"]:
        r |= {"claim": None, "family": "held_out"}
    made["rows"][1]["unanswered"] = 3
    text = page(made).replace("http://host/v1", "HOST")
    seen = words(text)
    assert "m-1 at HOST" in seen and "temperature 0.0" in seen
    assert "9 requests (2 of them retries), 4,200 prompt tokens" in seen
    assert "3 episodes, which do not count as failures 3 × time-out" in seen
    for wrong in ("checkpoint", "step 0", "held out", "claim", "trained"):
        assert wrong not in seen.lower(), wrong
    assert "step 3" in words(page(make_report()))


def test_a_checkpoint_has_its_tokens(tmp_path):
    cost = {"episodes": 6, "prompt_tokens": 4200, "completion_tokens": 99}
    seen = words(page(make_report(cost=cost)))
    said = "6 episodes, 4,200 prompt tokens, 99 completion tokens, in all."
    assert said in seen and "The agent" not in seen
    text = kept(tmp_path, "clean", *({"completion_tokens": x} for x in (20, 31)))
    line = text.split("tokens written ● ")[1].split(" ● ")[0].split()
    assert line[:2] == ["base", "clean"] and line[-1] == "26"


def test_dots_are_where_their_rates_are():
    rates = (0.0, 0.25, 1.0)
    rows = [charts.Row(f"r{x}", [charts.Point(x, x / 2, x)]) for x in rates]
    made = charts.dots("Rates & more", rows)
    assert "<title>Rates &amp; more</title>" in made and "r0.25: 25.0 %" in made
    places = [float(x) for x in re.findall(r'<use href="#\w+" x="([\d.]+)"', made)]
    assert places[1] - places[0] == pytest.approx((places[2] - places[0]) / 4)
    assert not re.findall(r"#[0-9a-f]{6}", made)  # all colours are variables
    assert "font-family" not in made and "<text" in made
    odd = [charts.Row("a $x_{$ b", [charts.Point(0.5)])]  # no formula
    assert "a $x_{$ b" in charts.dots("Rates", odd)


def test_picture_has_every_seed_and_only_shared_rows():
    """Rows that a report lacks, and those of unsolvable tasks alone, are left out."""
    runs = {str(i): make_report(train_seed=i) for i in range(2)}
    paft = make_report("paft")
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    made = report.picture({"<base>": report.pool(runs), "paft": paft})
    shown = re.findall(r">([^<>\n]+)</text>", made)
    assert {"<base> (2 seeds)", "paft"} <= {*map(html.unescape, shown)}
    assert {"clean", "Perception", "semantic_trap"} <= {*shown}
    assert not {"Reasoning", "rule_shift", "unsolvable"} & {*shown}
    assert made.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    # Two seeds and a mean for the first, a mean alone for the second, and its name.
    assert made.count("<use ") == 3 * (2 + 1 + 1) + 2
