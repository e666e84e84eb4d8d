"""Environments by name, and the errors for unknown or incomplete ones."""

import re

import pytest

from openagent_jax.environments import registry
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import EnvironmentSpec, Settings, Spelling
from openagent_jax.types import Environment
from tests import helpers

NEEDED = [
    name
    for name in Environment._fields
    if name not in ("name", "sizes", *Environment._field_defaults)
]


@pytest.mark.parametrize("domain", ["poi", "some/file.json", "log.jsonl"])
def test_any_other_name_is_a_domain_of_tools(domain):
    assert registry.spec(domain) is tools.DOMAINS


@pytest.mark.parametrize("name", registry.SPECS)
def test_families_by_name(name):
    family = registry.spec(name)
    assert family is registry.SPECS[name] is not tools.DOMAINS


@pytest.mark.parametrize("name", [*registry.SPECS, "poi"])
def test_what_a_family_offers_is_what_its_environment_has(name):
    """A config is checked against the family before the environment is made."""
    family, world = registry.spec(name), helpers.world(name)
    environment = world.environment
    for field in ("perturbations", "training_mix", "suite", "rewards"):
        assert getattr(family, field) == getattr(environment, field), field
    assert environment.reasons[0] == ""
    assert environment.sizes.max_turns == helpers.MAX_TURNS
    known = {entry.name for entry in environment.perturbations}
    assert known >= {*environment.training_mix, *environment.suite}
    for split in ("train", "test"):
        world.check(split)
    registry.check(environment)


def test_an_unknown_environment():
    with pytest.raises(ValueError) as caught:
        registry.make(Settings(domain="crafing"), Spelling(helpers.tokenizer()))
    (line,) = str(caught.value).splitlines()
    assert 'no environment "crafing"; did you mean "crafting"?' in line
    for name in (*registry.SPECS, "poi", "medical", ".json", ".jsonl"):
        assert name in line


@pytest.mark.parametrize("lacks", NEEDED)
def test_an_incomplete_environment(lacks):
    broken = helpers.ENVIRONMENT._replace(name="maze", **{lacks: None})
    with pytest.raises(ValueError) as caught:
        registry.check(broken)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f'environment "maze" lacks {lacks};')


def test_all_that_is_lacking_is_named_at_once():
    broken = helpers.ENVIRONMENT._replace(name="maze", step=None, expert=())
    with pytest.raises(ValueError, match=re.escape('"maze" lacks step, expert;')):
        registry.check(broken)


def test_make_checks_what_was_made(monkeypatch):
    world = helpers.world("poi")
    broken = world._replace(environment=world.environment._replace(outcome=None))
    family = EnvironmentSpec(lambda settings, spelling: broken)
    monkeypatch.setattr(registry, "SPECS", {"maze": family})
    with pytest.raises(ValueError, match='environment "tools" lacks outcome;'):
        registry.make(Settings(domain="maze"), Spelling(helpers.tokenizer()))
