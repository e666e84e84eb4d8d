"""The page of the diagnosis, from the reports and manifests that are stored.

What no report says, why a number is as it is, is written by hand into READING, and
becomes the end of the page.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from openagent_jax import report

READING = "reading.md"
# What the paper (arXiv 2607.01084) reports, and the scenarios and numbers here that
# speak of it. "(r)": told by readers of the full text, which we have not seen.
REPORTED = (
    ("near-perfect success where test is like training", "success", ["clean"]),
    (
        "SFT falls by 67.7 points under misleading and erased names together (r)",
        "delta",
        ["identity_erasure", "semantic_trap"],
    ),
    ("all collapse under logic inversion", "success", ["logic_inversion"]),
    (
        "about 0 % of the unsolvable tasks are refused after SFT and RL (r), 97.8 to "
        "99.6 % after PAFT at alpha 0.3 (r), and PAFT does not cure RL",
        "refusal_rate",
        ["unsolvable"],
    ),
    ("false refusals: not reported", "false_refusal_rate", ["clean"]),
    (
        "RL reads guidance better, and adapts better where little changes",
        "success",
        ["runtime_error", "tool_redirection", "nonstandard_feedback"],
    ),
)


def page(results: Path, methods: dict[str, str]) -> str:
    """Markdown.

    Args:
      results: folders of runs, NAME or NAME_SEED.
      methods: their titles by name, in the order of columns.

    Raises:
      ValueError: there is no report, or they are not of the same tasks.
    """
    folders = {name: _folders(results, name) for name in methods}
    missing = [title for name, title in methods.items() if not folders[name]]
    reports = {
        methods[name]: report.median([report.load(folder) for folder in found])
        for name, found in folders.items()
        if found
    }
    if not reports:
        raise ValueError(f"{results} has no reports; run python -m launch.diagnose")
    lines = [
        "# Diagnosis",
        "",
        "How ways of training fare, at the same cost, when the world changes. Made by "
        "`python -m launch.diagnose`, which runs what is missing, from the reports in "
        f"`{results.as_posix()}`.",
        "",
        "## Runs",
        "",
        *_table(
            ["method", "runs", "tokens, mean", "commits", "machine"],
            (
                [methods[name], *_runs(found)]
                for name, found in folders.items()
                if found
            ),
        ),
        "",
        "Tokens are those trained on and those sampled; where one method goes on from "
        "another, those of both.",
    ]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    lines += [
        "",
        "## Success",
        "",
        "In percent, with 95 % Wilson intervals; each is the median of the runs.",
        "",
        report.side_by_side(reports, markdown=True).strip(),
        "",
        "## What the paper reports, and what is here",
        "",
        "*Can Agents Generalize to the Open World?* (arXiv 2607.01084), on another "
        "backbone and sandbox: alike in kind is what can be asked. (r): as told by "
        "readers of its full text. Deltas are points from clean.",
        "",
        *_table(
            ["reported", "here", *reports],
            (
                [
                    said if i == 0 else "",
                    f"{key.replace('_', ' ')}, {name}",
                    *_numbers(reports, key, name),
                ]
                for said, key, scenarios in REPORTED
                for i, name in enumerate(scenarios)
            ),
        ),
    ]
    reading = results / READING
    if reading.exists():
        lines += ["", reading.read_text("utf-8").strip()]
    return "\n".join(lines) + "\n"


def _folders(results: Path, name: str) -> list[Path]:
    found = [file.parent for file in results.glob(f"{name}*/report.json")]
    seeds = {folder: folder.name.removeprefix(name) for folder in found}
    return sorted(f for f, seed in seeds.items() if re.fullmatch(r"(_\d+)?", seed))


def _runs(folders: list[Path]) -> list[str]:
    """Their number, tokens, commits and machines."""
    files = [folder / "manifest.json" for folder in folders]
    manifests = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
    if not manifests:
        return [str(len(folders)), "0", "", ""]
    chains = [_chain(manifest) for manifest in manifests]
    tokens = [sum(m["ended"]["num_tokens"] for m in chain) for chain in chains]
    every = [manifest for chain in chains for manifest in chain]
    commits = sorted({m["git_commit"][:7] for m in every if m["git_commit"]})
    machines = {
        f"{m['num_devices']} x {m['device_kind']}, {m['cpu_count']} cores, "
        f"JAX {m['versions']['jax']}"
        for m in every
    }
    mean = sum(tokens) / len(tokens)
    return [str(len(folders)), f"{mean:,.0f}", ", ".join(commits), "; ".join(machines)]


def _chain(manifest: dict) -> list[dict]:
    """A run and those it goes on from."""
    before = manifest.get("after")
    return [manifest, *(_chain(before) if before else [])]


def _numbers(reports: dict, key: str, scenario: str) -> Iterable[str]:
    for one in reports.values():
        rows = {row["scenario"]: row for row in one["rows"]}
        value = rows[scenario][key] if scenario in rows else None
        value = value["mean"] if isinstance(value, dict) else value
        yield "" if value is None else f"{100 * value:.1f}"


def _table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
