"""The figure shows what the table lists, and the HTML page is complete."""

from xml.etree import ElementTree

import numpy as np

from openagent_jax import report
from tests.report import builders
from tests.report.builders import TRAP, make_report, outcomes


def test_picture():
    """A dot for every success rate in the table, in its place, and no other dots."""
    base, paft = make_report(), make_report("paft")
    paft["rows"] = [r for r in paft["rows"] if r["scenario"] != "rule_shift"]
    root = ElementTree.fromstring(report.picture({"<base>": base, "paft": paft}))
    find = "{http://www.w3.org/2000/svg}"
    width, height = map(float, root.get("viewBox").split()[2:])
    words = [node.text for node in root.iter(f"{find}text")]
    assert {"<base>", "paft", "clean", "Perception", "semantic_trap"} <= {*words}
    assert not {"Reasoning", "rule_shift"} & {*words}  # not in both reports
    dots = [c for c in root.iter(f"{find}circle") if c.find(f"{find}title") is not None]
    known = [
        r["success"]["mean"]
        for x in (base, paft)
        for r in x["rows"]
        if r["n"] and r["scenario"] != "rule_shift"
    ]
    assert len(dots) == len(known)
    places = sorted(float(dot.get("cx")) for dot in dots)
    zero, per_one = np.polyfit(sorted(known), places, 1)[::-1]
    np.testing.assert_allclose(places, zero + per_one * np.sort(known), atol=0.1)
    assert 0 < zero < zero + per_one < width
    assert all(0 < float(dot.get("cy")) < height for dot in dots)
    assert {dot.get("class") for dot in dots} == {"c0", "c1"}


def test_every_seed_is_a_dot():
    """Small dots at the success of each run, beside the mean with its interval."""
    runs = {str(i): make_report(train_seed=i) for i in range(2)}
    clean = outcomes([1, 1, 0, 0, 0, 0, 0, 0])
    for r in runs["1"]["rows"]:
        r |= builders.row(None, 0.0, clean, clean) if r["tier"] == "clean" else {}
    root = ElementTree.fromstring(report.picture({"a": report.pool(runs)}))
    circles = [*root.iter("{http://www.w3.org/2000/svg}circle")]
    seeds = [c for c in circles if c.get("class") == "seed c0"]
    means = [c for c in circles if c.get("class") == "c0" and len(c)]
    assert len(seeds) == 2 * len(means) == 10
    clean = [c for c in seeds if c.get("cy") == means[0].get("cy")]
    zero, span = 190, 540
    places = [float(c.get("cx")) for c in (*clean, means[0])]
    rates = np.array([7 / 8, 2 / 8, (7 + 2) / 16])
    np.testing.assert_allclose(places, zero + span * rates, atol=0.06)
    words = [x.text for x in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a (2 seeds)" in words


def test_page_of_a_row_without_pairs():
    """Tasks were answered, but none of them was answered without the perturbation."""
    clean, new = outcomes([1, 1], answered=[0, 1]), outcomes([1, 0], answered=[1, 0])
    rows = [builders.row(None, 0.0, clean, clean), builders.row(TRAP, 1.0, new, clean)]
    assert rows[1]["n"] == 1 and rows[1]["delta"]["mean"] is None
    assert (
        report.page(make_report(rows=rows, phrasings="0 1")).count('class="bar"') == 2
    )
