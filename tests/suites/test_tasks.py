"""The tasks of an environment as a suite for agents elsewhere."""

import dataclasses

import jax
import numpy as np
import pytest

from openagent_jax.suites import tasks as suites
from tests.agents.endpoints import suite


@pytest.mark.slow
def test_digest_of_a_suite_depends_on_seed_and_all_tasks():
    other = dataclasses.replace(suite(), seed=4)
    assert suite().digest() == suite().digest() != other.digest()
    later = dataclasses.replace(suite())
    order = np.array([0, 2, 1, *range(3, suites.BLOCK)])
    drawn = jax.tree.map(lambda x: x[order], suite()._draw(0, 0))
    vars(later)["_draw"] = lambda *_: drawn
    assert later.digest() != suite().digest()  # only the later tasks differ
