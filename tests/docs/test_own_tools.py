"""The commands of docs/own_tools.md do what the page says."""

import pytest

from openagent_jax import report
from tests import pages

PAGE = pages.page("own_tools.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return pages.checkout(tmp_path_factory.mktemp("checkout"))


@pytest.mark.hours  # ten minutes
def test_commands_of_the_page(folder):
    assert pages.follow(PAGE, folder) > 8
    for name, success in (("my_tools", None), ("my_tools_paft", None), ("my_agent", 1)):
        made = report.load(folder / "runs" / name)
        assert made["suite"] == "my_tools.json"
        rows = {row["scenario"]: row["success"]["mean"] for row in made["rows"]}
        # domain_transfer plays another domain than the user's.
        trained = ["clean", "entity_shift", "unsolvable"]
        assert "domain_transfer" not in rows
        if name == "my_tools_paft":
            assert list(rows) == [*trained, "still_solvable"]
        else:  # all of the tier, not only those of the suite
            assert {*trained, "tool_withheld", "contradiction"} < {*rows}
        assert success is None or rows["unsolvable"] == success


def test_named_files_exist():
    assert not pages.missing(PAGE)
