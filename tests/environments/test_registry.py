"""Environments by name, and the errors for unknown or incomplete ones."""

import re

import pytest

from openagent_jax.environments import registry
from openagent_jax.environments.logs import make as logs
from openagent_jax.environments.tools import conversation
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import EnvironmentSpec, Settings, Spelling
from openagent_jax.types import Environment
from tests import helpers

NEEDED = [
    name
    for name in Environment._fields
    if name not in ("name", "sizes", *Environment._field_defaults)
]


@pytest.mark.parametrize("domain", ["poi", "some/file.json"])
def test_any_other_name_is_a_domain_of_tools(domain):
    assert registry.spec(domain) is tools.DOMAINS


@pytest.mark.parametrize("domain", ["log.jsonl", "some/log.jsonl", "log.jsonl:dev"])
def test_a_log_is_known_by_its_suffix(domain):
    assert registry.spec(domain) is logs.SPEC


@pytest.mark.parametrize("name", registry.SPECS)
def test_environments_by_name(name):
    spec = registry.spec(name)
    assert spec is registry.SPECS[name] is not tools.DOMAINS


@pytest.mark.parametrize("name", [*registry.SPECS, "poi"])
def test_specs_match_their_environments(name):
    """A config is checked against the spec before the environment is made."""
    spec, world = registry.spec(name), helpers.world(name)
    environment = world.environment
    for field in ("perturbations", "training_mix", "suite", "rewards"):
        assert getattr(spec, field) == getattr(environment, field), field
    assert environment.reasons[0] == ""
    assert environment.sizes.max_turns == helpers.MAX_TURNS
    known = {entry.name for entry in environment.perturbations}
    assert known >= {*environment.training_mix, *environment.suite}
    for split in ("train", "test"):
        world.check(split)
    registry.check(world)


def test_an_unknown_environment():
    with pytest.raises(ValueError) as caught:
        registry.make(Settings(domain="crafing"), Spelling(helpers.tokenizer()))
    (line,) = str(caught.value).splitlines()
    assert 'no environment "crafing"; did you mean "crafting"?' in line
    for name in (*registry.SPECS, "poi", "medical", ".json", ".jsonl"):
        assert name in line


def incomplete_world(**fields):
    world = helpers.world("poi")
    return world._replace(environment=world.environment._replace(name="maze", **fields))


@pytest.mark.parametrize("lacks", NEEDED)
def test_an_incomplete_environment(lacks):
    with pytest.raises(ValueError) as caught:
        registry.check(incomplete_world(**{lacks: None}))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f'environment "maze" lacks {lacks};')
    assert "openagent_jax.types.Environment" in line


def test_all_missing_fields_are_named_at_once():
    with pytest.raises(ValueError, match=re.escape('"maze" lacks step, expert;')):
        registry.check(incomplete_world(step=None, expert=()))


def test_an_incomplete_transcriber():
    class Silent(conversation.Transcriber):
        opening = shown = None

    silent = object.__new__(Silent)
    with pytest.raises(ValueError) as caught:
        registry.check(incomplete_world()._replace(transcriber=silent))
    (line,) = str(caught.value).splitlines()
    assert 'transcriber of environment "maze" lacks opening, shown;' in line
    assert "openagent_jax.environments.world.Transcriber" in line


def test_make_checks_the_world(monkeypatch):
    world = helpers.world("poi")
    broken = world._replace(environment=world.environment._replace(outcome=None))
    spec = EnvironmentSpec(lambda settings, spelling: broken)
    monkeypatch.setattr(registry, "SPECS", {"maze": spec})
    with pytest.raises(ValueError, match='environment "tools" lacks outcome;'):
        registry.make(Settings(domain="maze"), Spelling(helpers.tokenizer()))
