"""The page of `launch.diagnose`, made from stored reports and manifests.

The discussion of the numbers is written by hand in the file READING, which is appended
to the page.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from openagent_jax import report
from openagent_jax.curriculum import draw
from openagent_jax.evaluation import evaluate

READING = "reading.md"
PERTURBATIONS = "perturbations.md"  # the page that rows are linked to
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


def page(results: Path, methods: Mapping[str, str], seeds: Sequence[int]) -> str:
    """Return the page in Markdown.

    Args:
      results: holds a folder for each run, NAME or NAME_SEED.
      methods: the titles of the methods by name, in the order of the columns.
      seeds: the training seeds that the page covers.

    Raises:
      ValueError: there is no report, a method lacks a seed, or the reports have
        different settings; the message names them.
    """
    folders = {name: _folders(results, name, seeds) for name in methods}
    missing = [title for name, title in methods.items() if not folders[name]]
    for name, runs in folders.items():
        lacks = [s for s in seeds if results / f"{name}_{s}" not in runs]
        if runs and results / name not in runs and lacks:
            raise ValueError(
                f"the page covers seeds {_listed(seeds)}, but {results.as_posix()} has "
                f"no report of {_listed(f'{name}_{s}' for s in lacks)}; run what is "
                "missing, or name the seeds with --seeds"
            )
    every = {
        run.as_posix(): report.load(run) for runs in folders.values() for run in runs
    }
    if not every:
        raise ValueError(f"{results} has no reports; run python -m launch.diagnose")
    if found := report.differences(every):
        raise ValueError(f"the page needs reports with the same settings, but {found}")
    reports = {
        methods[name]: report.pool({x.as_posix(): every[x.as_posix()] for x in runs})
        for name, runs in folders.items()
        if runs
    }
    lines = [
        "# Results: training methods of equal cost",
        "",
        "Training methods of equal cost, compared when the world changes. "
        "`python -m launch.diagnose --show` makes this page from the reports in "
        f"`{results.as_posix()}` (`--results`), here of seeds {_listed(seeds)} "
        "(`--seeds`), and writes it to `--page`.",
        "",
        *_cautions(reports),
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
        lines += [
            "",
            "Not in this table, because there is no report of these seeds: "
            f"{', '.join(missing)}.",
        ]
    lines += [
        "",
        "## Success",
        "",
        "In percent. Each number is the mean of the seeds; means over rows are taken "
        "for each seed first.",
        "",
        report.side_by_side(reports, markdown=True, page=PERTURBATIONS).strip(),
        "",
        "Each seed, in the order of the seeds:",
        "",
        report.seeds(reports, markdown=True),
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
                    f"{key.replace('_', ' ')}, {_linked(name)}",
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


def check_stored(
    results: Path, methods: Iterable[str], seeds: Sequence[int], num_tasks: int
) -> None:
    """Check that new reports can stand beside those that are stored.

    Args:
      results: holds a folder for each run, NAME or NAME_SEED.
      methods: the names of the methods.
      seeds: the training seeds of the runs.
      num_tasks: the number of tasks that a new run is evaluated on.

    Raises:
      ValueError: a stored report has another grading version or number of tasks.
    """
    ours = {"grading_version": evaluate.GRADING_VERSION, "num_tasks": num_tasks}
    for folder in (x for name in methods for x in _folders(results, name, seeds)):
        stored = report.load(folder)
        for key, value in ours.items():
            if stored.get(key) != value:
                raise ValueError(
                    f"{folder.as_posix()} has {key} {stored.get(key)}, and new runs "
                    f"have {value}; give another folder by --results"
                )


def _cautions(reports: Mapping[str, report.Json]) -> list[str]:
    """Return paragraphs that say what the numbers of the page cannot show."""
    found = []
    if why := report.exploratory(reports):
        found += [f"**{why.replace(':', '**:', 1)}", ""]
    version = next(iter(reports.values())).get("grading_version")
    if version != evaluate.GRADING_VERSION:
        found += [
            f"**Earlier grading**: these reports are of grading version {version}. The "
            f"code is of version {evaluate.GRADING_VERSION}, and would give some other "
            "numbers.",
            "",
        ]
    return found


def _folders(results: Path, name: str, seeds: Sequence[int]) -> list[Path]:
    """Return the folders with the reports of a method: one, or one for each seed."""
    folders = [results / f"{name}_{seed}" for seed in seeds]
    return [x for x in (results / name, *folders) if (x / "report.json").exists()]


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


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


def _linked(scenario: str) -> str:
    """Return the name of a scenario, linked to its definition."""
    if scenario == draw.CLEAN:
        return scenario
    return f"[{scenario}]({PERTURBATIONS}#{scenario})"


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
