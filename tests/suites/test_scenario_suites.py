"""Suites of scenarios: the files that are shipped, and faults of a user's own."""

import json

import pytest

from launch.common import scenarios
from launch.common.errors import UsageError
from openagent_jax import perturb
from openagent_jax.environments import registry
from openagent_jax.environments.tools import make as tools
from openagent_jax.suites import scenario_suites

SPEC = tools.DOMAINS
NAMES = {entry.name for entry in SPEC.perturbations}


def chosen(*names, spec=SPEC, exclude=()):
    return scenarios.choose(spec, names, "suite", exclude)


class TestShipped:
    @pytest.mark.parametrize("name", scenario_suites.builtins())
    def test_names_what_exists(self, name):
        suite = scenario_suites.load(name)
        assert (suite.name, suite.version >= 1) == (name, True)
        names, about = chosen(name)
        assert len({*names}) == len(names) >= 5
        made = perturb.entries(SPEC, names)  # raises for a name that is dead
        assert len(made) == len(names)
        groups = about["scenario_groups"]
        assert [x for some in groups.values() for x in some] == [*names]
        assert about["scenario_set"] == name
        assert len(about["scenario_set_hash"]) == 12

    def test_unsolvable_tasks_have_counterparts_beside_them(self):
        for name in scenario_suites.builtins():
            names, _ = chosen(name)
            if name != "maze":  # whose own tasks can all be solved, as a note says
                for entry in perturb.entries(SPEC, names).values():
                    assert entry.solvable or entry.counterpart in names

    def test_full(self):
        assert {*chosen("full").names} == NAMES
        left = chosen("full", exclude=("domain_transfer",))
        assert {*left.names} == NAMES - {"domain_transfer"}
        assert (
            left.about["scenario_set_hash"] != chosen("full").about["scenario_set_hash"]
        )

    def test_paper(self):
        """Its groups are the tiers, and each scenario is of its group's tier."""
        groups = chosen("paper").about["scenario_groups"]
        assert {*groups} == {*perturb.TIERS}
        for tier, names in groups.items():
            assert {perturb.entry(SPEC, name).tier for name in names} == {tier}
        assert "identity_erasure+semantic_trap@0.5" in groups["perception"]

    def test_tc(self):
        """All 22 types, by the number of types of each part of the POMDP."""
        suite = scenario_suites.load("tc")
        theirs = [x for one in suite.scenarios for x in one["theirs"]]
        theirs += [x for one in suite.missing for x in one["theirs"]]
        assert len({*theirs}) == len(theirs) == 4 + 6 + 6 + 6
        parts = {one["group"] for one in suite.scenarios}
        assert parts <= {"observation", "action", "reward", "transition"}

    def test_hazards(self):
        suite = scenario_suites.load("hazards")
        found = {one["group"] for one in suite.scenarios}
        found |= {x for one in suite.missing for x in one["theirs"]}
        assert len(found) == 5
        for name in chosen("hazards").names:
            assert perturb.entry(SPEC, name).solvable  # each has a way to recover

    def test_maze(self):
        """What is called implicit or transient is so by the catalogue."""
        for group, names in chosen("maze").about["scenario_groups"].items():
            explicit, transient = group.split(", ")
            for name in names:
                entry = perturb.entry(SPEC, name)
                assert entry.explicit == (explicit == "explicit")
                assert entry.transient == (transient == "transient")


def test_the_hash_is_of_the_scenarios():
    same = scenario_suites.content_hash(["a", "b"])
    assert same == scenario_suites.content_hash(["b", "a"])
    assert same != scenario_suites.content_hash(["a", "b@0.5"])
    assert chosen("maze").about["scenario_set_hash"] == scenario_suites.content_hash(
        chosen("maze").names
    )


def test_other_choices_have_no_hash():
    names, about = chosen("tool_order", "tool_order", "semantic_trap@0.5")
    assert names == ("tool_order", "semantic_trap@0.5")
    assert about == {"scenario_set": "chosen"}
    assert chosen("default").about == {"scenario_set": "suite"}


def one(scenario, **more):
    return {"scenario": scenario, "group": "g"} | more


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a suite with the given scenarios; returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(*given, **changes):
        made = {"name": "mine", "version": 2, "title": "t", "source": "s"}
        made |= {"scenarios": [*given]} | changes
        made = {key: value for key, value in made.items() if value is not None}
        (tmp_path / "mine.json").write_text(json.dumps(made))
        return "mine.json"

    return write


def test_a_file_of_ones_own(written):
    file = written(one("tool_order"), one("tool_order@0.5"), one("reasoning"))
    names, about = chosen(file)
    assert names[:3] == ("tool_order", "tool_order@0.5", "dependency_extension")
    assert about["scenario_set_version"] == 2


@pytest.mark.parametrize(
    ("given", "changes", "message"),
    [
        ([one("tool_odrer")], {}, 'the suite mine: unknown perturbation "tool_odrer"'),
        (
            [one("tool_order@1.5")],
            {},
            '"tool_order@1.5": the strength "1.5" is no',
        ),
        ([one("tool_order@x")], {}, 'the strength "x" is not a number from 0 to 1'),
        ([one("tool_order+domain_transfer")], {}, "domain_transfer replaces the whole"),
        ([one("tool_order")] * 2, {}, 'the suite mine names "tool_order" twice'),
        ([one("tool_order"), one("all")], {}, 'names "tool_order" twice'),
        ([one("tool_order", grup=1)], {}, r"scenarios\[0\].grup: there is no such key"),
        ([{"scenario": "all"}], {}, r"it lacks scenarios\[0\].group"),
        ([one(3)], {}, r"scenarios\[0\].scenario is not a text"),
        (["all"], {}, r"scenarios\[0\] is not an object"),
        ([one("all")], {"version": "2"}, "not a suite: version is not a whole number"),
        ([one("all")], {"title": None}, "mine.json: not a suite: it lacks title"),
        ([one("all")], {"missing": [{}], "extra": 1}, "extra: there is no such key"),
    ],
)
def test_faults_are_one_clear_line(written, given, changes, message):
    with pytest.raises(UsageError, match=message) as error:
        chosen(written(*given, **changes))
    assert str(error.value).startswith("eval.scenarios: ")
    assert "\n" not in str(error.value)


def test_more_faults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"gone.json: no suite to read \(No such file"):
        chosen("gone.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(UsageError, match=r"bad.json: not JSON \("):
        chosen("bad.json")
    with pytest.raises(UsageError, match="paper is a suite, which is played as it is"):
        chosen("tool_order", "paper")
    with pytest.raises(UsageError, match='no "papre"; did you mean "paper"'):
        chosen("papre")
    with pytest.raises(UsageError, match="suite paper: unknown perturbation"):
        chosen("paper", spec=registry.spec("crafting"))


def test_compositions_that_change_nothing_are_named():
    entries = perturb.entries(SPEC, ("tool_order", "tool_order+semantic_trap"))
    scenarios.check_compositions(entries, {"tool_order+semantic_trap"}, "the tasks")
    message = '"tool_order.semantic_trap" changes none of the tasks: its parts'
    with pytest.raises(UsageError, match=message):
        scenarios.check_compositions(entries, {"tool_order"}, "the tasks")
