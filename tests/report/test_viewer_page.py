"""The viewer of episodes, as people see it: in headless Chromium, opened from disk."""

import pytest

from openagent_jax.report import causes, trajectories, viewer
from tests.report import kept_episodes as kept

EVIL = (
    "</script><script>window.evil = 1</script><img src=x onerror='window.evil = 1'>"
    "<!-- & \u202e \u2028 \ud83d ${evil} `"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    runs = {
        "sft": [kept.evaluation(folder / "sft/eval/10")],
        "paft": [kept.evaluation(folder / "paft/eval/10", fails=lambda index: False)],
    }
    glossary = {"runtime_error": {"summary": "A tool fails.", "right": "try again"}}
    viewer.write(folder / "page.html", runs, glossary)
    return folder / "page.html"


def rows(page):
    return page.locator(".ev-row")


def count(page):
    return page.locator(".ev-count").inner_text()


def text(page, name):
    return " ".join(page.locator(f".ev-{name}").inner_text().split())


def choose(page, name, option):
    page.locator(f"[data-filter={name}] select").select_option(option)


def test_filters(show, file):
    page = show(file)
    assert count(page) == "32 episodes"
    choose(page, "scenario", "runtime_error")
    assert count(page) == "8 of 32 episodes"
    options = page.locator("[data-filter=failure] option").all_inner_texts()
    assert options == ["Any", "wrong answer (2)"]
    assert "paft (4)" in page.locator("[data-filter=run] option").all_inner_texts()
    choose(page, "outcome", "failure")
    assert count(page) == "2 of 32 episodes"
    found = page.locator(".ev-row .ev-why").all_inner_texts()
    assert found == ["ignored feedback"] * 2
    assert "paft (0)" in page.locator("[data-filter=run] option").all_inner_texts()
    assert page.evaluate("location.hash") == "#scenario=runtime_error&outcome=failure"
    page.get_by_role("button", name="Clear filters").click()
    assert (
        count(page) == "32 episodes" and page.evaluate("location.hash") == "#episodes"
    )
    choose(page, "task", "unsolvable")
    assert set(page.locator(".ev-row .ev-why").all_inner_texts()) == {"refused rightly"}


def test_causes_are_a_filter(show, file):
    page = show(file, viewer.link(cause="feedback"))
    assert count(page) == "2 of 32 episodes"
    options = page.locator("[data-filter=cause] option").all_inner_texts()
    assert options == ["Any", "ignored feedback (2)"]
    page = show(file, viewer.link(cause="tool"))
    assert count(page) == "0 of 32 episodes"


def test_search(show, file):
    page = show(file)
    search = page.get_by_role("searchbox")
    page.keyboard.press("/")
    page.keyboard.type("velvet SELL_table")
    assert search.input_value() == "velvet SELL_table"
    assert count(page) == "2 of 32 episodes"
    search.fill("missing tool")  # why a task cannot be solved
    assert count(page) == "8 of 32 episodes"
    search.fill("ignored feedback")
    assert count(page) == "2 of 32 episodes"
    search.fill("failed, try again")
    assert count(page) == "0 of 32 episodes"
    page.get_by_role("button", name="Search whole conversations").click()
    page.wait_for_selector(".ev-row")
    assert count(page) == "2 of 32 episodes"
    search.fill("no such thing")
    assert count(page) == "0 of 32 episodes" and rows(page).count() == 0


def test_keys(show, file):
    page = show(file)
    page.get_by_role("searchbox").focus()
    page.keyboard.press("ArrowDown")
    box = page.get_by_role("listbox")
    for key, place in (
        ("ArrowDown", 1),
        ("ArrowDown", 2),
        ("ArrowUp", 1),
        ("End", 31),
        ("PageUp", None),
        ("Home", 0),
    ):
        page.keyboard.press(key)
        selected = page.locator("[role=option][aria-selected=true]")
        assert box.get_attribute("aria-activedescendant") == selected.get_attribute(
            "id"
        )
        if place is not None:
            assert selected.get_attribute("aria-posinset") == str(place + 1)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.className") == "ev-detail"
    page.keyboard.press("j")
    page.wait_for_function("location.hash.startsWith('#episode=clean/0/paft')")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.className") == "ev-list"


def test_conversation(show, file):
    page = show(file, viewer.link(("runtime_error", 1, "sft")))
    page.wait_for_selector(".ev-talk")
    assert text(page, "head h3") == "Runtime error #1 sft"
    assert text(page, "meaning") == "A tool fails. Right to do: try again"
    assert text(page, "verdict") == (
        "It ended with a wrong answer. 3 calls, 1 error; the oracle needs 2 calls. "
        f"Cause: ignored feedback, in turn 3. {causes.MEANINGS['feedback'][1]}"
    )
    turns = page.locator(".ev-turns > li").all_inner_texts()
    assert len(turns) == 4
    assert 'reserve_table(place: "Velvet Anchor", code: "cuq5")' in turns[1]
    # The same call succeeded on the clean task, and other results are as they were.
    assert 'clean task: {"booking":"78"}' in turns[1] and "error" in turns[1]
    assert page.locator(".ev-result.ev-changed").count() == 1
    assert "Answer: 12" in turns[3]
    signs = page.locator(".ev-plan .ev-sign [aria-hidden]").all_inner_texts()
    assert signs == ["=", "=", "+", "−", "≠"]
    assert "as on the clean task" in page.locator(".ev-detail").inner_text()


def test_differences_from_the_clean_task(show, file):
    page = show(file, viewer.link(("semantic_trap", 1, "sft")))
    page.wait_for_selector(".ev-tools")
    tools = page.locator(".ev-part").first.locator(".ev-tools").first
    assert tools.locator("del").all_inner_texts() == ["reserve_table", "place"]
    assert tools.locator("ins").all_inner_texts() == ["sell_table", "spot"]
    # A renamed tool with renamed arguments gives what the clean call gave, but in #3.
    assert page.locator(".ev-result.ev-changed").count() == 0
    page = show(file, viewer.link(("semantic_trap", 3, "sft")))
    page.wait_for_selector(".ev-talk")
    changed = page.locator(".ev-result.ev-changed")
    assert changed.all_inner_texts() == ['{"booking":"13"}']
    assert text(page, "before") == 'clean task: {"booking":"78"}'
    page = show(file, viewer.link(("unsolvable", 1, "sft")))
    page.wait_for_selector(".ev-tools")
    assert page.locator(".ev-tool.ev-removed").inner_text().count("reserve_table") == 1


def test_side_by_side(show, file):
    page = show(file, viewer.link(("runtime_error", 1, "sft")))
    page.get_by_role("button", name="paft").click()
    page.wait_for_selector(".ev-two")
    assert page.locator(".ev-whose").all_inner_texts() == ["✕sft", "✓paft"]
    left, right = (x.bounding_box() for x in page.locator(".ev-track").all())
    assert left["y"] == right["y"] and left["x"] + left["width"] < right["x"]
    address = page.evaluate("location.hash")
    assert address == "#episode=runtime_error/1/sft&beside=paft"
    again = show(file, address)
    again.wait_for_selector(".ev-two")
    again.get_by_role("button", name="paft").click()
    again.wait_for_selector(".ev-tracks:not(.ev-two)")
    again.get_by_role("button", name="clean task").click()
    again.wait_for_selector(".ev-two")
    assert again.locator(".ev-whose").all_inner_texts()[1] == "✓clean task"


def test_links_of_the_page(show, file):
    page = show(file)
    go = "hash => { location.hash = hash }"
    page.evaluate(go, viewer.link(scenario="runtime_error", outcome="failure"))
    page.wait_for_selector(".ev-talk")  # of the first
    assert count(page) == "2 of 32 episodes"
    page.evaluate(go, viewer.link(scenario="semantic_trap", run="paft"))
    page.wait_for_function(
        "document.querySelector('.ev h3').innerText.includes('paft')"
    )
    assert count(page) == "4 of 32 episodes"
    page.evaluate(go, viewer.link(("clean", 99, "paft")))
    page.wait_for_function(
        "document.querySelector('.ev-count').innerText.includes('not')"
    )
    page.evaluate(go, "#something-else")
    assert "clean #99 of paft is not here" in count(page)


def test_ten_thousand_episodes(show, tmp_path):
    folder = kept.evaluation(tmp_path / "eval/1", num=2500)
    viewer.write(tmp_path / "page.html", {"run": [folder]})
    page = show(tmp_path / "page.html")
    assert count(page) == "10,000 episodes"
    ready = page.evaluate("performance.getEntriesByName('episodes-ready')[0].startTime")
    assert ready < 3000
    page.get_by_role("listbox").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".ev-talk")
    assert rows(page).count() < 60
    last = rows(page).last
    assert (
        "#2499" in last.inner_text() and last.get_attribute("aria-selected") == "true"
    )
    start = "performance.mark('start')"
    took = "performance.measure('typed', 'start').duration"
    page.evaluate(start)
    page.get_by_role("searchbox").fill("#2499")
    assert count(page) == "4 of 10,000 episodes" and page.evaluate(took) < 1000


def test_tokens(show, tmp_path):
    tokens = {"text": ["<|user|>", "Hi", "Re", "fuse", "\0", "no", "Ask"]}
    tokens |= {"sampled": [0, 0, 1, 1, 1, 0, 1], "log_prob": [-0.1, -0.5, -3.0, 0.0]}
    lines = [kept.unsolvable(0, tokens=tokens), kept.unsolvable(1)]
    folder = tmp_path / "eval/1" / trajectories.FOLDER
    trajectories.write(folder, "clean", lines)
    viewer.write(tmp_path / "page.html", {"run": [folder.parent]})
    page = show(tmp_path / "page.html", viewer.link(("clean", 0, "run")))
    page.locator("summary", has_text="7 tokens, 4 of them sampled").click()
    assert text(page, "tokens") == r"<|user|>Hi1Refuse\x00no2Ask"
    shown = page.locator(".ev-tokens .ev-token")
    levels = [
        x.split("-")[-1] for x in shown.evaluate_all("all => all.map(x => x.className)")
    ]
    assert levels == ["0", "1", "3", "0"]
    assert "log-prob -0.5 (probability 0.607)" in shown.nth(1).get_attribute("title")
    page.get_by_role("button", name="Next episode").click()
    page.wait_for_function("location.hash.includes('/1/')")
    page.wait_for_selector(".ev-tokens", state="detached")


def test_hostile_episodes(show, tmp_path):
    turn = kept.call(EVIL, **{EVIL: EVIL, "__proto__": "x"}), EVIL
    one = kept.line(0, [turn], EVIL, failure=EVIL, unsolvable=EVIL, request=EVIL)
    one |= {"tools": [kept.tool(EVIL, EVIL, **{EVIL: EVIL})], "rewards": {EVIL: [1, 1]}}
    one |= {EVIL: EVIL, "tokens": EVIL}
    odd = [
        {
            "index": 1,
            "messages": [{"role": 3}, {"role": "assistant", "tool_calls": [0]}],
        },
        {
            "index": 2,
            "tools": [{}, {"function": 3}],
            "plan": [{}, {"name": 3, "arguments": None}],
            "rewards": {"x": [{}]},
        },
        {"index": 3, "messages": [{}], "tools": [{"function": {"parameters": []}}]},
        {"index": 4, "task_key": EVIL, "failure": {}, "tokens": {"text": 3}},
    ]
    folder = tmp_path / "eval/1" / trajectories.FOLDER
    for name in ("clean", "constructor", "a<b> & c"):
        trajectories.write(folder, name, [one, *odd])
    file = tmp_path / "page.html"
    viewer.write(file, {EVIL: [folder.parent], "b": [folder.parent]}, {EVIL: {}})
    page = show(file)
    assert count(page) == "30 episodes"
    page.get_by_role("listbox").focus()
    for i in range(30):
        page.keyboard.press("ArrowDown" if i else "Home")
        page.wait_for_selector(".ev-detail[aria-busy=false]")
        assert page.locator(".ev-part", has_text="cannot be shown").count() == 0
    page.evaluate("hash => { location.hash = hash }", viewer.link(("clean", 0, EVIL)))
    page.wait_for_selector(".ev-talk")
    assert "<img src=x onerror" in page.locator(".ev-turns").inner_text()
    page.evaluate("""() => {
      const input = document.querySelector(".ev-search input");
      input.value = "\\ud83d";
      input.dispatchEvent(new Event("input"));
    }""")
    assert page.evaluate("location.hash").endswith("q=%3F")
    assert page.evaluate("window.evil") is None
    assert page.locator("img").count() == 0 and page.locator("script").count() == 3


def test_damaged_files(show, tmp_path):
    folder = kept.evaluation(tmp_path / "eval/1")
    file = folder / trajectories.FOLDER / "clean.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    viewer.write(tmp_path / "page.html", {"run": [folder]})
    page = show(tmp_path / "page.html")
    assert count(page) == "15 episodes"
    assert text(page, "notes summary") == "1 note on damaged or missing files"
    page.locator(".ev-notes summary").click()
    assert "1 of 4 lines cannot be read" in text(page, "notes ul")


def test_no_episodes(show, tmp_path):
    viewer.write(tmp_path / "page.html", {"run": [tmp_path]})
    page = show(tmp_path / "page.html")
    assert count(page) == "0 episodes"
    assert "eval.keep" in page.locator(".ev-notes ul").text_content()
    assert page.locator(".ev-panes").is_hidden()


WIDTH = "[document.documentElement.scrollWidth, window.innerWidth]"


@pytest.mark.parametrize("width", [320, 390, 800])
def test_no_horizontal_scrolling(show, file, width):
    page = show(file, width=width, height=844)
    scroll, window = page.evaluate(WIDTH)
    assert scroll == window
    page.evaluate("location.hash = '#episode=semantic_trap/1/sft&beside=paft'")
    page.wait_for_selector(".ev-two")
    scroll, window = page.evaluate(WIDTH)
    assert scroll == window
    assert not page.locator(".ev-detail").evaluate("""(pane) => {
      const edge = pane.getBoundingClientRect().right + 2;
      const parts = [...pane.querySelectorAll("*")];
      return parts.filter((x) => x.getBoundingClientRect().right > edge).length;
    }""")


def test_phone(show, file):
    page = show(file, width=390, height=844, has_touch=True)
    assert page.locator(".ev-detail").is_hidden()
    rows(page).nth(2).tap()
    page.wait_for_selector(".ev-talk")
    assert page.locator(".ev-list").is_hidden()
    page.get_by_role("button", name="All episodes").tap()
    assert page.locator(".ev-list").is_visible()
    assert page.locator(".ev-detail").is_hidden()


def test_a_link_from_an_episode_leads_to_the_top_of_a_list(show, tmp_path):
    folder = kept.evaluation(tmp_path / "run/eval/10", num=40)
    viewer.write(tmp_path / "page.html", {"run": [folder]})
    page = show(tmp_path / "page.html", "#scenario=semantic_trap", width=390)
    page.get_by_role("listbox").focus()
    page.keyboard.press("End")
    page.wait_for_selector(".ev-talk")
    page.evaluate("() => { location.hash = '#scenario=semantic_trap&outcome=success' }")
    page.wait_for_selector(".ev-row")
    assert page.locator(".ev-list").evaluate("x => x.scrollTop") == 0


def luminance(page, selector, of):
    script = """([selector, of]) => {
      const canvas = document.createElement("canvas").getContext("2d");
      canvas.fillStyle = getComputedStyle(document.querySelector(selector))[of];
      canvas.fillRect(0, 0, 1, 1);
      return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }"""
    parts = [x / 255 for x in page.evaluate(script, [selector, of])]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
    ]
    return sum(x * y for x, y in zip(linear, (0.2126, 0.7152, 0.0722)))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast(show, file, scheme):
    hash = viewer.link(("runtime_error", 1, "sft"))
    page = show(file, hash, color_scheme=scheme)
    page.wait_for_selector(".ev-talk")
    page_is = luminance(page, "body", "backgroundColor")
    assert (page_is > 0.5) == (scheme == "light")
    for name in ("verdict span", "why.ev-bad", "why.ev-good", "who", "tag", "count"):
        one, two = sorted([page_is, luminance(page, f".ev-{name}", "color")])
        assert (two + 0.05) / (one + 0.05) > 4.5, name
    for name in ("search input", "bar select", "beside button"):
        pair = [luminance(page, f".ev-{name}", x) for x in ("color", "backgroundColor")]
        assert (max(pair) + 0.05) / (min(pair) + 0.05) > 4.5, name
