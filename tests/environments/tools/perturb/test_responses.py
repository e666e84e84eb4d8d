"""The expert does what the catalogue calls right."""

import numpy as np
import pytest

from openagent_jax import perturb
from tests import helpers
from tests.environments.tools.perturb.playing import pair

WITHOUT_ERRORS = {"proceed", "understand", "read", "ask", "revise"}
AFTER_ERRORS = {"follow", "switch"}


@pytest.mark.parametrize("name", helpers.CATALOGUE)
def test_the_expert_does_what_is_right(name):
    entry = helpers.CATALOGUE[name]
    _, new, hit = pair("poi", name)
    episodes, _ = helpers.demonstrate(helpers.world("poi").tables, new)
    state = helpers.host(episodes.state)
    assert hit.any() and entry.response in perturb.RESPONSES
    assert np.all((state.num_questions > 0)[hit] == (entry.response == "ask"))
    assert np.all(state.refused[hit] == (entry.response == "refuse"))
    if entry.response in WITHOUT_ERRORS and not entry.includes:
        assert not state.num_errors[hit].any()
    if entry.response in AFTER_ERRORS:
        assert state.num_errors[hit].all()
