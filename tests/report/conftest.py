"""A headless Chromium for the tests of pages, which are opened from disk."""

import shutil

import pytest

FLAGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync --disable-quic"


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    if (path := shutil.which("chromium")) is None:
        pytest.skip("there is no chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield made
        made.close()


@pytest.fixture
def show(browser):
    """A function that opens a file; errors of the page and requests fail the test."""
    contexts, problems = [], []

    def show(file, hash="", width=1280, height=900, **settings):
        viewport = {"width": width, "height": height}
        contexts.append(browser.new_context(viewport=viewport, **settings))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text))
        page.on(
            "request", lambda x: problems.append(x.url) if "file:" not in x.url else 0
        )
        page.goto(f"{file.as_uri()}{hash}")
        page.wait_for_selector(".ev[data-ready]")
        return page

    yield show
    for context in contexts:
        context.close()
    assert not problems
