"""The page that defines the perturbations is made from the catalogues."""

import dataclasses
import re

import pytest
from absl.testing import flagsaver

from launch import perturbations
from launch.common import perturbation_page
from openagent_jax.environments import registry
from tests import helpers, pages


def test_the_stored_page_is_current():
    made = perturbation_page.page()
    assert pages.page("perturbations.md") == made, f"run {perturbation_page.COMMAND}"


def test_every_entry_has_a_section():
    titles = re.findall(r"^#### (\w+)$", perturbation_page.page(), re.MULTILINE)
    specs = map(registry.spec, perturbation_page.WORLDS.values())
    names = [entry.name for spec in specs for entry in spec.perturbations]
    assert sorted(titles) == sorted(names)
    links = re.findall(r"\]\(#([\w-]+)\)", perturbation_page.page())
    assert len(links) == len({*links}) == len(names)


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


def test_a_section():
    text = "\n".join(perturbation_page.section(helpers.CATALOGUE["unsolvable"]))
    assert "cannot be solved: refuse" in text
    assert "* Counterpart: still_solvable." in text
    assert "* One of tool_withheld, fatal_error, contradiction." in text
    text = "\n".join(
        perturbation_page.section(helpers.CATALOGUE["nonstandard_feedback"])
    )
    assert "for training json, pairs, separated" in text
    assert "for evaluation markup, ruled, prose, code" in text
    text = "\n".join(perturbation_page.section(helpers.CATALOGUE["entity_shift"]))
    assert "not trained on" in text


def test_the_command_writes_the_page(tmp_path):
    if not perturbations.flags.FLAGS.is_parsed():
        perturbations.flags.FLAGS(["perturbations"])
    file = tmp_path / "page.md"
    with flagsaver.flagsaver(out=str(file)):
        perturbations.main()
    assert file.read_text("utf-8") == perturbation_page.page()
