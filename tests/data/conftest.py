"""A dataset of demonstrations, built once for all tests that read it."""

import pytest

from openagent_jax.data import demonstrations
from openagent_jax.environments.tools import make as tools
from openagent_jax.environments.world import Settings
from tests import helpers
from tests.data import datasets


@pytest.fixture(scope="session")
def recipe():
    sizes = Settings(max_turns=datasets.MAX_TURNS).sizes
    environment = tools.functions(sizes, helpers.NUM_VISIBLE)
    return demonstrations.Recipe(
        world=helpers.world("poi")._replace(environment=environment),
        domain="poi",
        num_tokens=datasets.NUM_TOKENS,
        seed=datasets.SEED,
        alpha=datasets.ALPHA,
        perturbations=datasets.NAMES,
        about={"code_version": "that of the test"},
    )


@pytest.fixture(scope="session")
def stored(recipe, tmp_path_factory):
    from openagent_jax.data import store  # needs the extra `data`

    folder = tmp_path_factory.mktemp("data") / "poi"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demonstrations, "maker", datasets.cached_maker)
        return store.write(
            folder, recipe, helpers.tokenizer().to_str(), datasets.NUM_TASKS
        )
