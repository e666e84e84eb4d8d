"""The parser of nested arguments compared with `json`."""

import jax
import pytest

from openagent_jax.text import reply_scan
from tests import helpers
from tests.environments.tools import nested_parsing
from tests.environments.tools.worlds import test_nested_arguments as nested

BATCH = 256


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    made = nested.make(tmp_path_factory.mktemp("parsed"))
    environment, tables = made.environment, made.tables

    @jax.jit
    @jax.vmap
    def sample(key):
        task = environment.sample(tables, key, "train")
        (renaming,) = (
            x for x in environment.perturbations if x.name == "argument_renaming"
        )
        return renaming.make(environment.pools(tables, task, "train"))(key, task, 0.3)

    tasks = sample(helpers.keys(num=BATCH))

    @jax.jit
    def read(rows, lengths):
        one = jax.vmap(lambda *x: environment.parse(tables, *x))
        return one(tasks, rows, lengths)

    rows = helpers.rows(jax.device_get(tasks))
    return read, nested_parsing.Reference(made, rows)


def test_agrees_with_json(compared):
    kinds = nested_parsing.check(*compared, seed=1, num=20, batch=BATCH)
    num = len(kinds)
    assert kinds.count((reply_scan.CALL, True)) > 0.2 * num
    assert kinds.count((reply_scan.CALL, False)) > 0.05 * num
    assert kinds.count((reply_scan.MALFORMED, False)) > 0.2 * num


@pytest.mark.hours
def test_agrees_with_json_on_many(compared):
    for seed in range(100):  # 1,024,000
        nested_parsing.check(*compared, seed=100 + seed, num=40, batch=BATCH)
