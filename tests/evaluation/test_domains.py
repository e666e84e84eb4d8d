"""Reports of several domains: rows of each, and means in which each weighs the same."""

import json

import numpy as np
import pytest

from openagent_jax import report
from openagent_jax.evaluation import claims, evaluate
from openagent_jax.suites.tasks import Suite
from tests import helpers
from tests.environments.tools.worlds.test_mixture import world
from tests.report import builders

TRAINED = claims.Trained(frozenset("a"), frozenset({"semantic_trap"}))
CLAIMS = claims.Claims("test", ("a", "b"), ("c",), TRAINED)
NUM = 48
# 16 tasks of "b" and 32 of "a", so that a mean over tasks would be another one.
NAMES = np.array(["b", "a", "a"] * 16)
ENTRIES = {x.name: x for x in (builders.UNSOLVABLE, builders.TRAP, builders.TOOL_ORDER)}


def played(seed, changed=True):
    """Random outcomes; the tasks of "b" are solved more often."""
    rng = np.random.default_rng(seed)
    success = rng.random(NUM) < np.where(NAMES == "b", 0.9, 0.3)
    solvable = rng.random(NUM) < 0.8
    refused = rng.random(NUM) < 0.4
    calls = rng.integers(1, 5, NUM)
    changed = np.full(NUM, True) if changed else rng.random(NUM) < 0.6
    columns = success & ~(refused & solvable), solvable, refused, calls
    columns = *columns, rng.integers(0, calls + 1), calls, changed
    return builders.episodes(np.stack(columns, axis=1))


def scored(seed=0, domains=NAMES):
    # The scenarios are not in alphabetical order.
    names = (evaluate.CLEAN, *ENTRIES)
    episodes = {name: played(seed + i, changed=i == 0) for i, name in enumerate(names)}
    bounds = {"oracle": {name: x.success for name, x in episodes.items()}}
    return evaluate.Scored(episodes, bounds, domains)


def results(given, repeats=1):
    return evaluate.results(ENTRIES, given, 1.0, CLAIMS, repeats)


def whole(made, **more):
    return {"suite": "a,b", "policy": "p", "checkpoint_step": 0, **more, **made}


def test_one_domain_gives_the_same_report_as_none():
    plain = results(scored(domains=None))
    assert json.dumps(results(scored(domains=np.full(NUM, "a")))) == json.dumps(plain)
    assert "domains" not in plain and "domains" not in plain["rows"][0]
    assert {row["domain"] for row in plain["rows"]} == {"a,b"}


def test_claims_are_of_each_domain():
    """Only "a" was trained on, so the means over both claim nothing."""
    made = results(scored())
    assert {row["claim"] for row in made["rows"]} == {None}
    other, own = ([r["claim"] for r in part["rows"]] for part in made["domains"])
    assert other == ["held_out_domain"] * 4
    assert own == ["unseen_forms", "unseen_kind", "unseen_forms", "unseen_kind"]


def test_the_rows_of_a_domain_are_those_of_its_tasks_alone():
    given = scored()
    made = results(given)
    assert [part["domain"] for part in made["domains"]] == ["b", "a"]
    for part in made["domains"]:
        alone = results(
            evaluate._among(given, NAMES == part["domain"])._replace(domains=None)
        )
        for row, other in zip(part["rows"], alone["rows"], strict=True):
            same = {key: row[key] for key in ("domain", "claim")}
            assert row == other | same and row["domain"] == part["domain"]
            assert row["n"] <= np.sum(NAMES == part["domain"])
        assert part["bounds"] == alone["bounds"]


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_means_over_domains(seed):
    made = results(scored(10 * seed))
    names = [row["scenario"] for row in made["rows"]]
    assert names == [evaluate.CLEAN, *ENTRIES]
    for i, row in enumerate(made["rows"]):
        theirs = [part["rows"][i] for part in made["domains"]]
        assert {x["scenario"] for x in theirs} == {row["scenario"]}
        assert row["n"] == sum(x["n"] for x in theirs)
        for key in ("success", "delta"):
            means = [x[key]["mean"] for x in theirs]
            assert row[key]["mean"] == pytest.approx(np.mean(means))
            assert row[key]["low"] <= row[key]["mean"] <= row[key]["high"]
        for key in ("tool_error_rate", "false_refusal_rate", "chain_length_ratio"):
            means = [x[key] for x in theirs if x[key] is not None]
            assert row[key] == pytest.approx(np.mean(means))
        agents = [x["bounds"]["oracle"][row["scenario"]] for x in made["domains"]]
        assert made["bounds"]["oracle"][row["scenario"]] == pytest.approx(
            np.mean(agents)
        )


def test_means_over_scenarios_weigh_domains_alike_too():
    """Means are made from rows, their intervals from the outcomes of tasks."""
    made = results(scored())
    found = report.summary(made["rows"], made["phrasings"])["perturbed"]
    rows = [row for row in made["rows"] if row["tier"] != "clean"]
    solvable = report.on_solvable(made)["rows"]
    of_each = [r["success"]["mean"] for r in solvable if r["tier"] != "clean"]
    assert found["success"]["mean"] == pytest.approx(report.average(of_each))
    unweighed = [{k: x for k, x in row.items() if k != "domains"} for row in rows]
    other = report.summary(unweighed, made["phrasings"])["perturbed"]
    # The tasks of "b", which are solved more often, weigh more than others.
    for end in ("low", "high"):
        assert found["success"][end] > other["success"][end]


def test_seeds_are_joined_domain_by_domain(tmp_path):
    reports = {}
    for seed in range(3):
        given = scored()
        flipped = {
            name: builders.dataclasses.replace(
                x, success=np.roll(x.success, 3 * seed), solvable=np.full(NUM, True)
            )
            for name, x in given.episodes.items()
        }
        made = results(given._replace(episodes=flipped))
        reports[str(seed)] = whole(made, train_seed=seed)
    joined = report.pool(reports)
    assert [part["domain"] for part in joined["domains"]] == ["b", "a"]
    for i, row in enumerate(joined["rows"]):
        theirs = [part["rows"][i] for part in joined["domains"]]
        assert {x["domain"] for x in theirs} == {"a", "b"}
        means = [x["success"]["mean"] for x in theirs]
        assert row["success"]["mean"] == pytest.approx(np.mean(means))


def test_pages_show_each_domain(tmp_path):
    made = whole(results(scored()))
    file = report.write(tmp_path, made)
    assert report.load(file) == made
    for name in ("report.md", "report.html"):
        text = " ".join((tmp_path / name).read_text().split())
        assert "each of which weighs the same" in text
    lines = report.by_domain_table(made).splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["b", "16"], ["a", "32"]]
    alone = results(scored(domains=None))
    report.write(tmp_path, whole(alone))
    assert "of domain" not in (tmp_path / "report.md").read_text()


def test_weights_leave_out_domains_without_a_counted_task():
    cells = np.array([[True, True, False, False], [True, True, True, False]])
    weights = report.domain_weights(np.array([0, 0, 1, 1]), cells)
    assert weights.tolist() == [[0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0]]


def test_the_tasks_of_a_suite_take_turns():
    """Agents that take messages play as many tasks of each domain."""
    suite = Suite(world(), (), seed=3, num_tasks=5, strength=1.0, split="test")
    domains = suite.domains()
    assert domains is not None
    assert domains.tolist() == ["poi", "medical", "poi", "medical", "poi"]
    goals = [
        suite.world.transcriber.goal(task) for _, _, task, _, _ in suite._drawn(())
    ]
    assert [goal.partition(".")[0] for goal in goals] == domains.tolist()
    alone = Suite(helpers.world("poi"), (), 3, 5, 1.0, "test")
    assert alone.domains() is None


def test_repeats_of_a_task_are_of_one_domain():
    suite = Suite(
        world(), (), seed=3, num_tasks=3, strength=1.0, split="test", repeats=2
    )
    domains = suite.domains()
    assert domains is not None
    assert domains.tolist() == ["poi", "poi", "medical", "medical", "poi", "poi"]
