"""Robustness reports: from episodes to rows, from rows to tables, pages and pictures.

A report is a dict with the keys of `report.json`.
"""

from openagent_jax.report.comparison import (
    NUM_SEEDS,
    NUM_TASKS,
    exploratory,
    seeds,
    side_by_side,
)
from openagent_jax.report.evidence import (
    differences_note,
    differences_table,
    repeats_note,
    repeats_table,
)
from openagent_jax.report.files import columns, load, load_columns, write
from openagent_jax.report.intervals import domain_weights
from openagent_jax.report.multiple import adjust
from openagent_jax.report.outcomes import Json, counted, number
from openagent_jax.report.pool import (
    SET_HASH,
    beside,
    between,
    differences,
    of_different_suites,
    pool,
)
from openagent_jax.report.repeats import pass_at_k, pass_hat_k
from openagent_jax.report.rows import (
    RATES,
    TIERS,
    Episodes,
    Standing,
    average,
    on_solvable,
    row,
    summary,
)
from openagent_jax.report.tables import (
    bounds,
    by_domain,
    by_domain_table,
    by_group_table,
    spent,
    table,
)
from openagent_jax.report.web import Column, Page, page, picture

__all__ = [
    "NUM_SEEDS",
    "NUM_TASKS",
    "RATES",
    "SET_HASH",
    "TIERS",
    "Column",
    "Episodes",
    "Json",
    "Page",
    "Standing",
    "adjust",
    "average",
    "beside",
    "between",
    "bounds",
    "by_domain",
    "by_domain_table",
    "by_group_table",
    "domain_weights",
    "columns",
    "counted",
    "differences",
    "differences_note",
    "differences_table",
    "exploratory",
    "load",
    "load_columns",
    "number",
    "on_solvable",
    "of_different_suites",
    "page",
    "pass_at_k",
    "pass_hat_k",
    "picture",
    "pool",
    "repeats_note",
    "repeats_table",
    "row",
    "seeds",
    "side_by_side",
    "spent",
    "summary",
    "table",
    "write",
]
