"""Robustness reports: from episodes to rows, from rows to tables, pages and pictures.

A report is a dict with the keys of `report.json`.
"""

from openagent_jax.report.files import load, load_columns, write
from openagent_jax.report.intervals import pass_hat_k
from openagent_jax.report.outcomes import Json, counted, number
from openagent_jax.report.picture import page, picture
from openagent_jax.report.pool import differences, pool
from openagent_jax.report.rows import TIERS, Episodes, row, summary
from openagent_jax.report.tables import (
    NUM_SEEDS,
    NUM_TASKS,
    bounds,
    exploratory,
    seeds,
    side_by_side,
    spent,
    table,
)

__all__ = [
    "NUM_SEEDS",
    "NUM_TASKS",
    "TIERS",
    "Episodes",
    "Json",
    "bounds",
    "counted",
    "differences",
    "exploratory",
    "load",
    "load_columns",
    "number",
    "page",
    "pass_hat_k",
    "picture",
    "pool",
    "row",
    "seeds",
    "side_by_side",
    "spent",
    "summary",
    "table",
    "write",
]
