"""The page that defines the perturbations is made from the catalogues."""

import dataclasses
import re

import pytest
from absl.testing import flagsaver

from launch import perturbations
from launch.pages import perturbation_page, simple_agents_table
from openagent_jax import perturb
from openagent_jax.environments import registry
from tests import helpers, pages

STORED = pages.ROOT / simple_agents_table.STORED


def test_the_stored_page_is_current():
    made = perturbation_page.page(STORED)
    assert pages.page("perturbations.md") == made, f"run {perturbation_page.COMMAND}"


def test_every_entry_has_a_section():
    titles = re.findall(r"^#### (\w+)$", perturbation_page.page(STORED), re.MULTILINE)
    specs = map(registry.spec, perturbation_page.WORLDS.values())
    names = [entry.name for spec in specs for entry in spec.perturbations]
    assert sorted(titles) == sorted(names)
    links = re.findall(r"\]\(#([\w-]+)\)", perturbation_page.page(STORED))
    assert len(links) == len({*links}) == len(names)


def entries(title):
    return registry.spec(perturbation_page.WORLDS[title]).perturbations


@pytest.mark.parametrize("title", perturbation_page.WORLDS)
def test_every_entry_says_what_is_right(title):
    for one in entries(title):
        assert one.response in perturb.RESPONSES, (
            f"the entry {one.name} has no correct behaviour; set its `response` in the "
            f"catalogue to one of {', '.join(perturb.RESPONSES)}"
        )
        assert (one.response == "refuse") == (not one.solvable), one.name
        assert one.response != "ask" or "shown" in one.touches, one.name


# Entries without a public case of their kind. Shorten this list rather than extend it.
NOTHING_ELSEWHERE = {
    "tool": {"spare_withheld", "spare_contradiction"},
    "crafting": {
        "recipe_order",
        "request_rewrite",
        "vague_goal",
        "more_recipes",
        "failing_bench",
        "sold_out",
        "nonstandard_feedback",
        "extra_ingredient",
        "longer_chain",
        "entity_shift",
        "impossible_goal",
        "missing_spare",
    },
}
# Entries that write no texts of their own.
NO_FORMS = {
    "tool": {
        "distractor_tools",
        "tool_order",
        "tool_removal",
        "missing_values",
        "logic_inversion",
        "dependency_rewire",
        "domain_transfer",
    },
    "crafting": {
        "recipe_order",
        "vague_goal",
        "more_recipes",
        "failing_bench",
        "sold_out",
        "sold_out_with_recipe",
        "extra_ingredient",
        "recipe_swap",
        "longer_chain",
        "impossible_goal",
        "missing_spare",
    },
}


@pytest.mark.parametrize("title", perturbation_page.WORLDS)
def test_notes_on_every_entry(title):
    """What the page says besides the catalogue; a new entry is missing until it is
    noted, or listed above."""
    world, file = perturbation_page.world_of(title), perturbation_page.NOTES.name
    notes, names = perturbation_page.notes()[world], [x.name for x in entries(title)]
    assert {*notes} <= {*names}, f"{file} has entries that are not in the catalogue"
    for name in names:
        note, at = notes.get(name, {}), f"[{world}.{name}] of {file}"
        assert {*note} <= {"right", "train", "test", "incident", "source"}, at
        has = ("incident" in note, "source" in note)
        assert has == (name not in NOTHING_ELSEWHERE[world],) * 2, (
            f"the entry {name} has no incident with a source in {at}: add them, or "
            "list it in NOTHING_ELSEWHERE of this test"
        )
        assert note.get("source", "https://").startswith("http"), at
        assert ("test" in note) == (name not in NO_FORMS[world]), (
            f"the forms of the entry {name} are not in {at}: add `train` and `test`, "
            "or list it in NO_FORMS of this test"
        )
        trained = not perturb.catalogue(registry.spec(perturbation_page.WORLDS[title]))[
            name
        ].unseen
        assert ("train" in note) == ("test" in note and trained), at


def test_forms_of_the_splits_differ():
    train, test = map(perturbation_page.forms, ("train", "test"))
    assert train.keys() == test.keys()
    assert not {*train.values()} & {*test.values()}


def test_an_entry_without_right_behaviour_is_named():
    one = dataclasses.replace(helpers.CATALOGUE["tool_order"], response="")
    with pytest.raises(ValueError, match="tool_order has no correct behaviour"):
        [*perturbation_page.section(one, "tool")]


def entry(text, **changes):
    def make(pools):
        raise AssertionError

    make.__doc__ = text
    return dataclasses.replace(helpers.CATALOGUE["tool_order"], make=make, **changes)


def test_docstrings_are_divided():
    """In each of the two ways in which they are written."""
    found = perturbation_page.parts(
        entry(
            """Do it
    well.

    Before: `a.b`
    After:  `c`, then
            `d`

    More. Strength: how much
    of it. Still more.
    """
        )
    )
    assert found.summary == "Do it well."
    assert (found.before, found.after) == ("`a.b`", "`c`, then `d`")
    assert (found.strength, found.more) == ("how much of it", "More. Still more.")
    short = perturbation_page.parts(entry("Do it.\n\nBefore: one. After: two."))
    assert (short.before, short.after, short.strength) == ("one", "two", "")
    with pytest.raises(ValueError, match="of tool_order lacks Before: and After:"):
        perturbation_page.parts(entry("Do it."))
    assert perturbation_page.parts(entry("Do it.", includes=("a",))).summary == "Do it."


def section(name):
    return [*perturbation_page.section(helpers.CATALOGUE[name], "tool")]


def test_a_section():
    text = "\n".join(section("unsolvable"))
    assert "cannot be solved" in text
    assert "* Counterpart: still_solvable." in text
    assert "* One of tool_withheld, fatal_error, contradiction." in text
    text = "\n".join(section("nonstandard_feedback"))
    assert "* Forms in training: results as json, pairs, separated; keys in" in text
    assert "* Forms in the test: results as markup, ruled, prose, code; keys in" in text
    text = "\n".join(section("entity_shift"))
    assert "not trained on" in text and "in training" not in text


def test_a_section_says_what_is_right_and_what_happened_elsewhere():
    lines = section("stale_value")
    right = "Do what the feedback says. Read the value again, and use the new one."
    assert f"* Correct behaviour: {right}" in lines
    (elsewhere,) = [x for x in lines if x.startswith("* Elsewhere: ")]
    source = "https://github.com/carvel-dev/kapp/issues/86"
    assert elsewhere.endswith(f"([kapp #86]({source}))")
    assert not any("Elsewhere" in line for line in section("spare_withheld"))


def test_the_command_writes_the_page(tmp_path):
    if not perturbations.flags.FLAGS.is_parsed():
        perturbations.flags.FLAGS(["perturbations"])
    file = tmp_path / "page.md"
    with flagsaver.flagsaver(out=str(file), stored=str(STORED)):
        perturbations.main()
    assert file.read_text("utf-8") == perturbation_page.page(STORED)


def declarations(title):
    return perturbation_page.notes()["agents"][perturbation_page.world_of(title)]


@pytest.mark.parametrize("title", perturbation_page.WORLDS)
def test_simple_agents_land_where_each_entry_says(title):
    """As measured, in each domain; `test_what_is_stored_is_current` plays them."""
    stored = simple_agents_table.load(STORED)
    assert {*declarations(title)} <= {entry.name for entry in entries(title)}
    for domain, rows in stored["domains"].items():
        if registry.spec(domain) is not registry.spec(perturbation_page.WORLDS[title]):
            continue
        for one in entries(title):
            wanted = simple_agents_table.declared(declarations(title), one)
            assert one.name in rows, (
                f"{one.name} was not measured in {domain}; run "
                f"{perturbation_page.COMMAND} --measure"
            )
            for agent, word in wanted.items():
                landed = simple_agents_table.word([rows[one.name][agent]])
                assert landed in (word, ""), f"{agent} {landed} {one.name} in {domain}"
        for agent in ("memoriser", "reader", "retrier"):
            assert rows["clean"][agent]["mean"] == 1
    assert len(stored["domains"]) == 3


# Two of each kind of worlds.
PLAYED = "runtime_error", "unsolvable", "item_renaming", "failing_bench"


@pytest.mark.slow
def test_what_is_stored_is_current():
    made = simple_agents_table.measure(helpers.tokenizer(), PLAYED)
    stored = simple_agents_table.load(STORED)
    for domain, rows in made.pop("domains").items():
        assert len(rows) > 2
        assert rows == {name: stored["domains"][domain][name] for name in rows}
    assert made.items() <= stored.items()


@pytest.mark.hours
def test_everything_that_is_stored_is_current():
    made = simple_agents_table.measure(helpers.tokenizer())
    assert made == simple_agents_table.load(STORED)


def test_an_entry_without_declared_agents_is_named():
    with pytest.raises(ValueError, match="tool_order does not declare the exp"):
        simple_agents_table.declared({}, helpers.CATALOGUE["tool_order"])


def test_table_of_simple_agents():
    """A result that differs from what was declared is marked."""
    agents = ("memoriser", "reader", "retrier", "refuser")

    def row(*means):
        rates = [{"mean": x, "low": x, "high": x} for x in means]
        return {"n": 9} | dict(zip(agents, rates, strict=True))

    stored = {
        "domains": {
            "a": {"clean": row(1, 1, 1, 0), "tool_order": row(1, 0, 0.5, 0)},
            "b": {"clean": row(1, 1, 1, 0), "tool_order": row(1, 0, 1, 0)},
        }
    }
    chosen = [helpers.CATALOGUE[x] for x in ("tool_order", "unsolvable")]
    declared = {"tool_order": ["solves", "partly", "partly"]}
    lines = [*simple_agents_table.table(stored, ["a", "b"], chosen, declared)]
    assert lines[2] == "| clean | solves | solves | solves | fails |"
    partly = "a 50.0 [50.0, 50.0], b 100.0 [100.0, 100.0]"
    assert lines[3] == (
        f"| tool_order | solves | fails (declared: partly) | {partly} | fails |"
    )
    assert lines[4].startswith("| unsolvable | not measured |")
    assert simple_agents_table.sizes(stored, ["a"]) == "9 to 9"
