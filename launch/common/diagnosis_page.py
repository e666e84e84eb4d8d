"""The page of `launch.diagnose`, made from stored reports and manifests.

The discussion of the numbers is written by hand in the file READING, which is appended
to the page.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from openagent_jax import report

READING = "reading.md"
# Each entry is a claim of the paper (arXiv 2607.01084), with the number and the
# scenarios that are compared with it. "(r)" marks claims that we know from readers of
# the full text, which we have not seen.
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
    """Return the page in Markdown.

    Args:
      results: holds a folder for each run, NAME or NAME_SEED.
      methods: the titles of the methods by name, in the order of the columns.

    Raises:
      ValueError: there is no report, or the reports are not of the same tasks.
    """
    folders = {name: _folders(results, name) for name in methods}
    missing = [title for name, title in methods.items() if not folders[name]]
    reports = {
        methods[name]: report.median([report.load(folder) for folder in runs])
        for name, runs in folders.items()
        if runs
    }
    if not reports:
        raise ValueError(f"{results} has no reports; run python -m launch.diagnose")
    lines = [
        "# Diagnosis",
        "",
        "Training methods of equal cost, compared when the world changes. "
        "`python -m launch.diagnose` runs what is missing, and makes this page from "
        f"the reports in `{results.as_posix()}`.",
        "",
        "## Runs",
        "",
        *_table(
            ["method", "runs", "tokens, mean", "commits", "machine"],
            (
                [methods[name], *_describe(runs)]
                for name, runs in folders.items()
                if runs
            ),
        ),
        "",
        "Tokens are those that are trained on and those that are sampled. Where a "
        "method starts from another one, the tokens of both are counted.",
    ]
    if missing:
        lines += ["", f"Not run yet: {', '.join(missing)}."]
    lines += [
        "",
        "## Success",
        "",
        "In percent, with 95 % Wilson intervals. Each is the median of the runs.",
        "",
        report.side_by_side(reports, markdown=True).strip(),
        "",
        "## Compared with the paper",
        "",
        "The paper is *Can Agents Generalize to the Open World?* (arXiv 2607.01084). "
        "Its backbone and sandbox differ, so only kinds of effects can be compared. "
        "(r) marks what is known from readers of its full text. Deltas are percentage "
        "points from clean.",
        "",
        *_table(
            ["reported", "here", *reports],
            (
                [
                    claim if i == 0 else "",
                    f"{key.replace('_', ' ')}, {name}",
                    *_numbers(reports, key, name),
                ]
                for claim, key, scenarios in REPORTED
                for i, name in enumerate(scenarios)
            ),
        ),
    ]
    reading = results / READING
    if reading.exists():
        lines += ["", reading.read_text("utf-8").strip()]
    return "\n".join(lines) + "\n"


def _folders(results: Path, name: str) -> list[Path]:
    """Return the folders of a method's runs; `sft_grpo_0` does not belong to `sft`."""
    folders = [file.parent for file in results.glob(f"{name}*/report.json")]
    seeds = {folder: folder.name.removeprefix(name) for folder in folders}
    return sorted(f for f, seed in seeds.items() if re.fullmatch(r"(_\d+)?", seed))


def _describe(folders: list[Path]) -> list[str]:
    """Return the number of runs, their tokens, commits and machines."""
    files = [folder / "manifest.json" for folder in folders]
    manifests = [json.loads(file.read_text("utf-8")) for file in files if file.exists()]
    if not manifests:
        return [str(len(folders)), "0", "", ""]
    chains = [_chain(manifest) for manifest in manifests]
    tokens = [sum(m["ended"]["num_tokens"] for m in chain) for chain in chains]
    flat = [manifest for chain in chains for manifest in chain]
    commits = sorted({m["git_commit"][:7] for m in flat if m["git_commit"]})
    machines = {
        f"{m['num_devices']} x {m['device_kind']}, {m['cpu_count']} cores, "
        f"JAX {m['versions']['jax']}"
        for m in flat
    }
    mean = sum(tokens) / len(tokens)
    return [str(len(folders)), f"{mean:,.0f}", ", ".join(commits), "; ".join(machines)]


def _chain(manifest: dict) -> list[dict]:
    """Return the manifests of a run and of those it starts from."""
    start = manifest.get("after")
    return [manifest, *(_chain(start) if start else [])]


def _numbers(reports: dict, key: str, scenario: str) -> Iterable[str]:
    """Yield the number `key` of a scenario for each report, in percent."""
    for one in reports.values():
        rows = {row["scenario"]: row for row in one["rows"]}
        value = rows[scenario][key] if scenario in rows else None
        value = value["mean"] if isinstance(value, dict) else value
        yield "" if value is None else f"{100 * value:.1f}"


def _table(header: list[str], rows: Iterable[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
