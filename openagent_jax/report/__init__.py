"""Robustness reports: from episodes to rows, from rows to tables, pages and pictures.

A report is a dict with the keys of `report.json`.
"""

from openagent_jax.report.files import load, load_columns, write
from openagent_jax.report.intervals import newcombe, pass_hat_k, wilson
from openagent_jax.report.picture import page, picture
from openagent_jax.report.rows import TIERS, Episodes, Json, median, row, summary
from openagent_jax.report.tables import side_by_side, table

__all__ = [
    "TIERS",
    "Episodes",
    "Json",
    "load",
    "load_columns",
    "median",
    "newcombe",
    "page",
    "pass_hat_k",
    "picture",
    "row",
    "side_by_side",
    "summary",
    "table",
    "wilson",
    "write",
]
