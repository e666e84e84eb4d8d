"""Settings that are too small for some tasks are named before a run starts."""

import jax
import numpy as np
import pytest

from launch.common import preflight
from openagent_jax.curriculum import draw
from tests import helpers, tiny

NAMES = ("distractor_tools", "runtime_error")


def config(name="paft", **changes):
    return tiny.full_config(name).replace({"paft.perturbations": NAMES, **changes})


@pytest.fixture(scope="module")
def lengths():
    return preflight.measure(config(), helpers.world("poi"))


def test_lengths_are_those_of_demonstrations(lengths):
    """Of clean tasks and of each perturbation, of the training split."""
    assert [*lengths] == ["clean", *NAMES]
    keys = draw.task_keys(jax.random.key(0), 0, preflight.NUM_TASKS)
    tables = helpers.world("poi").tables
    episodes, _ = helpers.demonstrate(tables, helpers.sample(tables, keys, "train"))
    written = helpers.write(tables, episodes)[3]
    np.testing.assert_array_equal(lengths["clean"]["episode"], written)
    means = {name: np.mean(x["episode"]) for name, x in lengths.items()}
    assert all(means[name] > means["clean"] + 20 for name in NAMES)
    prompts = {name: np.max(x["prompt"]) for name, x in lengths.items()}
    assert prompts["distractor_tools"] > prompts["clean"] == prompts["runtime_error"]


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("paft", {}, None),
        ("sft", {}, None),
        ("sft", {"algorithm.num_tokens": 250}, "algorithm.num_tokens=250"),
        ("paft_grpo", {}, None),
        ("paft_grpo", {"algorithm.num_tokens": 250}, None),  # it has no demonstrations
        ("paft_grpo", {"sandbox.prompt_tokens": 140}, "sandbox.prompt_tokens=140"),
    ],
)
def test_shortfalls(monkeypatch, lengths, name, changes, key):
    def measure(c, source):
        return {x: lengths[x] for x in ("clean", *(NAMES if c.paft.alpha else ()))}

    monkeypatch.setattr(preflight, "measure", measure)
    lines = list(preflight.shortfalls(config(name, **changes), helpers.world("poi")))
    assert len(lines) == (key is not None)
    for line in lines:
        assert line.startswith(f"{key} is too small for ") and "\n" not in line
        assert line.endswith("; raise it")


def test_the_share_of_each_perturbation_is_stated(monkeypatch, lengths):
    monkeypatch.setattr(preflight, "measure", lambda *_: lengths)
    c = config("paft", **{"algorithm.num_tokens": 288})
    (line,) = preflight.shortfalls(c, helpers.world("poi"))
    for name in NAMES:
        share = 100 * np.mean(lengths[name]["episode"] > 288)
        assert 20 < share < 45 and f"{share:.2g} % of {name}" in line
    longest = max(np.max(x["episode"]) for x in lengths.values())
    assert f"(up to {longest} tokens), which are not trained on" in line


def test_default_rows_hold_all_demonstrations(lengths):
    """Of the two perturbations that make the longest ones."""
    for found in lengths.values():
        assert np.max(found["episode"]) <= tiny.full_config("paft").algorithm.num_tokens
