"""Invented domains: valid, different, and without a word of an evaluated domain."""

import re
import string

import jax
import pytest

from openagent_jax import expert
from openagent_jax.domains import domain_file, domain_words, invented, library
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from tests import helpers

SEEDS = (0, 1, 77, 4321)


@pytest.mark.parametrize("seed", SEEDS)
def test_they_are_valid(seed):
    name = f"invented_{seed}"
    assert domain_file.faults(name) == []
    assert domain_file.load(name).name == name


@pytest.mark.slow
def test_all_of_the_group_are_valid():
    assert not any(domain_file.faults(name) for name in library.INVENTED)


def test_a_domain_is_a_function_of_its_seed():
    assert invented.invent(5) == invented.invent(5) != invented.invent(6)


def test_words_to_avoid():
    with_all = {noun for noun in invented.invent(3)["types"]}
    without = {noun for noun in invented.invent(3, with_all)["types"]}
    assert with_all and not with_all & without


@pytest.mark.parametrize("seed", SEEDS)
def test_no_content_word_of_an_evaluated_domain(seed):
    constants = [value for key, value in vars(invented).items() if key.isupper()]
    constructions = set(re.findall(r"[a-z]+", repr(constants).lower()))
    found = domain_words.of(domain_file.load(f"invented_{seed}"))
    single = {*string.ascii_lowercase}  # of identifiers
    parts = {"description", "invented", "find", "get", "look", "up", "read", "search"}
    shared = (found & domain_file.evaluated_words()) - constructions - single - parts
    assert not {word for word in shared if len(word) > 3}


@pytest.mark.parametrize("name", ["invented_", "invented_01", "invented_-1", "invent"])
def test_bad_names(name):
    assert not domain_file.is_builtin(name)
    assert "unknown builtin domain" in domain_file.faults(name)[0]


def test_the_oracle_solves_their_tasks():
    settings = Settings(
        domain="invented_0,invented_1", num_goals=40, transfer="medical"
    )
    world = registry.make(settings, Spelling(helpers.tokenizer()))
    environment = world.environment

    @jax.jit
    def play(tables, keys):
        def one(key):
            task = environment.sample(tables, key, "train")
            episode = expert.demonstrate(environment, tables, task)
            return environment.outcome(tables, task, episode.state)

        return jax.vmap(one)(keys)

    assert play(world.tables, helpers.keys()).success.all()
