"""The page of a report, as people see it."""

import pytest

from openagent_jax import report
from tests.report import builders
from tests.report import kept_episodes as kept


@pytest.fixture
def file(tmp_path):
    folder = kept.evaluation(tmp_path / "run/eval/3")
    column = report.Column(builders.make_report(), [folder])
    text = report.page({"base": column}).text
    (tmp_path / "page.html").write_text(text, "utf-8")
    return tmp_path / "page.html"


def opened(page):
    return page.locator(".cards details[open]").evaluate_all("x => x.map(y => y.id)")


def test_a_link_to_a_scenario_opens_it(show, file):
    page = show(file)
    assert opened(page) == []
    page.locator('a[href="#s-semantic_trap"]').first.click()
    assert opened(page) == ["s-semantic_trap"]
    # It was closed by hand, and the address is still the same.
    page.locator("#s-semantic_trap > summary").click()
    assert opened(page) == []
    page.locator('a[href="#s-semantic_trap"]').first.click()
    assert opened(page) == ["s-semantic_trap"]
    assert opened(show(file, "#s-unsolvable")) == ["s-unsolvable"]
    assert opened(show(file, "#episodes")) == opened(show(file, "#%ff")) == []


def test_all_scenarios_are_opened_at_once_and_for_print(show, file):
    page = show(file, "#s-unsolvable")
    num = page.locator(".cards details").count()
    page.evaluate(
        "addEventListener('beforeprint', () => window.printed ="
        " document.querySelectorAll('.cards details[open]').length)"
    )
    page.pdf()
    assert page.evaluate("printed") == num > 3
    assert opened(page) == ["s-unsolvable"]
    page.get_by_role("button", name="Open all").click()
    assert len(opened(page)) == num
    page.get_by_role("button", name="Close all").click()
    assert opened(page) == []


def test_an_empty_list_of_episodes_is_not_printed(show, file):
    page = show(file)
    page.emulate_media(media="print")
    assert not page.locator("#episodes").is_visible()
    page = show(file, "#episode=clean/0/base")
    page.wait_for_selector(".ev-talk")
    page.emulate_media(media="print")
    assert page.locator("#episodes .ev-talk").first.is_visible()


@pytest.mark.parametrize("width", [390, 1280])
def test_no_horizontal_scrolling(show, tmp_path, width):
    folder = kept.evaluation(tmp_path / "run/eval/3")
    columns = {
        name: report.Column(builders.make_report(), [folder]) for name in "ABCDE"
    }
    (tmp_path / "page.html").write_text(report.page(columns).text, "utf-8")
    page = show(tmp_path / "page.html", "#s-semantic_trap", width=width)
    page.get_by_role("button", name="Open all").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_long_tables_have_heads_that_are_printed_on_each_page(show, file):
    heads = (
        show(file)
        .locator("table")
        .evaluate_all("x => x.map(y => [y.rows.length, y.tHead !== null])")
    )
    assert len(heads) > 4 and all(head for rows, head in heads if rows > 5)
