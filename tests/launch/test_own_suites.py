"""Suites of a user's own tools or logs."""

import shutil

import pytest

from launch.common import agents, scoring
from openagent_jax.domains import domain_file
from openagent_jax.report import tables
from tests import tiny
from tests.environments.logs.examples import GOOD, chain, weather, write_log

ROOM = {f"sandbox.num_{x}": n for x, n in (("args", 4), ("fields", 4), ("steps", 7))}


def suite(domain, *scenarios):
    names = scenarios or ("default",)
    changes = {"eval.domain": str(domain), "eval.scenarios": names, **ROOM}
    return agents.suite(tiny.full_config().replace(changes))


@pytest.fixture
def own(tmp_path):
    """A user's own copy of a domain."""
    file = tmp_path / "mine.json"
    shutil.copy(domain_file.DOMAINS / "poi.json", file)
    return file


def test_domain_transfer_needs_to_be_named_in_an_own_suite(own, tmp_path):
    """It would play tasks of our medical domain."""
    every = suite("poi").names
    assert "domain_transfer" in every and suite("poi").about() == {
        "scenario_set": "catalogue"
    }
    log = write_log(tmp_path, weather(*GOOD), chain())
    for mine in (own, log):
        made = suite(mine)
        assert {*every} - {*made.names} == {"domain_transfer"}
        left_out = {"scenario_set": "catalogue", "left_out": ["domain_transfer"]}
        assert made.about() == left_out
        line = tables.origin(left_out | {"rows": []})
        assert line == "without domain_transfer (played only if named)"
        for group in ("all", "internalization"):
            assert "domain_transfer" not in suite(mine, group).names
        named = suite(mine, "default", "domain_transfer")
        assert {*named.names} == {*every} and "left_out" not in named.about()
        assert suite(mine, "unsolvable").about() == {"scenario_set": "chosen"}


def test_checkpoints_on_an_own_suite(own):
    c = tiny.config("sft", eval__domain=str(own), eval__scenarios=("default",))
    c = c.replace({f"sandbox.{x}_tokens": n for x, n in (("prompt", 300),)})
    model = tiny.backbones.backbone(c)
    made = scoring.Scorer(c, model, None)
    assert "domain_transfer" not in made._scenarios and len(made._scenarios) > 9
