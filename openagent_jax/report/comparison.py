"""Several reports side by side, as tables."""

from collections.abc import Mapping, Sequence

from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import beside, differences
from openagent_jax.report.rows import (
    by_claim,
    by_seed,
    by_tier,
    label,
    means,
    on_solvable,
    summary,
)
from openagent_jax.report.tables import (
    align,
    cells,
    heading,
    linked,
    percent,
    scenario_set,
)

NUM_SEEDS, NUM_TASKS = 5, 384  # what a comparison needs at least; see `exploratory`
_REFUSALS = (  # the last lines of a comparison: label, group of rows, rate
    ("false refusals, clean", "clean", "false_refusal_rate"),
    ("false refusals, perturbed", "perturbed", "false_refusal_rate"),
    ("refusals, unsolvable", "perturbed", "refusal_rate"),
)


def side_by_side(
    reports: Mapping[str, Json], markdown: bool = False, page: str = ""
) -> str:
    """Format the success of several reports as one table, with a column for each.

    Only rows that all reports have are shown, and means are over these; a line below
    says which are left out. The last lines compare how often the agents refuse, overall
    and in each scenario with tasks that cannot be solved. If the reports cannot be
    compared, because their tasks or their grading differ, the first line is a warning
    that says why. A note below the table explains the intervals. A report of one run
    has no intervals if another report has several seeds.

    Args:
      reports: the reports, by the heading of their column.
      markdown: whether to write Markdown instead of plain text.
      page: a page with a section for each perturbation, to which rows are linked.
    """
    solvable = {name: on_solvable(x) for name, x in reports.items()}
    shown = beside(solvable)
    single = [name for name in reports if shown[name] is not solvable[name]]
    reports = shown
    labelled = [{label(r): r for r in x["rows"]} for x in reports.values()]
    all_rows = {k: r for x in labelled for k, r in x.items()}
    shared = [k for k in all_rows if all(k in x and x[k]["n"] for x in labelled)]
    rows = [[x[k] for k in shared] for x in labelled]
    summaries = [
        summary(r, x.get("phrasings"))
        for r, x in zip(rows, reports.values(), strict=True)
    ]
    left_out = [k.strip() for k in all_rows if k not in shared]
    sets = {scenario_set(x) for x in reports.values()}
    which = "shared" if left_out else next(iter(sets)) if len(sets) == 1 else ""
    tiers = by_tier(all_rows[k] for k in shared)
    lines, refused = [["success %", *map(column, reports.items())]], []
    claims = [_claims_of(x) for x in rows]
    for name in dict.fromkeys(
        name for x in ({**tiers, **summary([])}, *claims) for name in x
    ):
        if len({x.get(name) for x in claims}) > 1:
            continue  # a mean over other rows in each column
        averages = [x.get(name, means([])) for x in summaries]
        text = heading(name, averages[0], tiers, which)
        if text and any(m["num_solvable"] for m in averages):
            lines.append([text, *(cells(m)[0] for m in averages)])
        for k in map(label, tiers.get(name, [])):
            name = linked(all_rows[k], page) if page else k
            found = [x[k] for x in labelled]
            if any(r["success"]["mean"] is not None for r in found):
                lines.append([name, *(cells(r)[0] for r in found)])
            if any(r["refusal_rate"] is not None for r in found):
                text = f"refusals, {name.strip()}"
                refused.append([text, *(cells(r)[2] for r in found)])
    for text, group, rate in _REFUSALS:
        rates = [x[group][rate] if group in x else None for x in summaries]
        if any(value is not None for value in rates):
            lines.append([text, *map(percent, rates)])
    lines += refused if len(refused) > 1 else []
    warning = differences(reports)
    notes = [f"Warning: not comparable: {warning}."] if warning else []
    notes.append(align(lines, 1, markdown))
    if left_out:
        notes.append(
            "Left out, because not all reports have tasks of it: "
            f"{', '.join(left_out)}."
        )
    if len({*map(str, claims)}) > 1:
        notes.append(_differing_claims(reports, claims))
    return "\n\n".join([*notes, *_about_intervals(reports, single)])


NO_CLAIM = "no claim, since nothing is known of its training"


def _claims_of(rows: Sequence[Json]) -> dict[str, tuple[str, ...]]:
    """Return the labels of the perturbed rows of each claim that has any."""
    groups = by_claim(r for r in rows if r["tier"] != "clean")
    return {
        name: tuple(label(r).strip() for r in found)
        for name, found in groups.items()
        if found
    }


def _differing_claims(
    reports: Mapping[str, Json], claims: Sequence[Mapping[str, tuple[str, ...]]]
) -> str:
    """Say what each column claims, where the same row claims other things in others."""
    texts = []
    for name, groups in zip(reports, claims, strict=True):
        found = (f"{k.replace('_', ' ')}: {', '.join(x)}" for k, x in groups.items())
        texts.append(f"{name}: {'; '.join(found) or NO_CLAIM}")
    return f"Columns were trained on different things, and claim: {'. '.join(texts)}."


def seeds(reports: Mapping[str, Json], markdown: bool = False) -> str:
    """Format the means of every training run as a table, with a column for each report.

    Means are over the scenarios that all of the reports have.
    """
    labelled = [{label(r): r for r in on_solvable(x)["rows"]} for x in reports.values()]
    shared = [k for k in labelled[0] if all(k in x and x[k]["n"] for x in labelled)]
    rows = [[x[k] for k in shared] for x in labelled]
    lines = [["each seed, %", *reports]]
    for text, group, rate in (
        ("clean", "clean", "success"),
        ("perturbed", "perturbed", "success"),
        *_REFUSALS,
    ):
        clean = group == "clean"
        of = ([r for r in x if (r["tier"] == "clean") == clean] for x in rows)
        found = [by_seed(x, rate) for x in of]
        if any(found):
            lines.append([text, *(", ".join(map(percent, x)) or "-" for x in found)])
    return align(lines, 1, markdown)


def exploratory(reports: Mapping[str, Json]) -> str:
    """Say why a comparison is exploratory; "" if it is not.

    A comparison from which conclusions are drawn needs `NUM_SEEDS` training seeds and
    `NUM_TASKS` distinct tasks. A model that was not trained here has no training seeds.
    """
    texts = []
    few = {x: r.get("num_seeds", 1) for x, r in reports.items() if _is_trained(r)}
    if few := {name: num for name, num in few.items() if num < NUM_SEEDS}:
        counts = ", ".join(f"{name} {num}" for name, num in few.items())
        texts.append(f"fewer than {NUM_SEEDS} training seeds ({counts})")
    sizes = [r["n"] for x in reports.values() for r in x["rows"] if r["n"]]
    if sizes and max(sizes) < NUM_TASKS:
        among = (
            f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else max(sizes)
        )
        texts.append(f"n = {among} tasks in a row, where {NUM_TASKS} are asked for")
    return f"Exploratory: {'; '.join(texts)}." if texts else ""


def _is_trained(report: Json) -> bool:
    """Tell whether a report is of a run, or of several.

    A run that is evaluated by itself has step 0, like a model as it is shipped, but a
    training seed.
    """
    steps = report["checkpoint_step"] > 0
    return steps or "train_seed" in report or report.get("num_seeds", 1) > 1


def _about_intervals(reports: Mapping[str, Json], single: Sequence[str]) -> list[str]:
    """Return paragraphs that say what the intervals of a comparison are.

    Args:
      reports: the reports, by the heading of their column.
      single: those whose intervals are not shown; see `pool.beside`.
    """
    kinds: dict[str, list[str]] = {}
    for name, report in reports.items():
        if name in single:
            kind = (
                "none, because one run beside several seeds cannot tell what another "
                "seed gives"
            )
            kinds.setdefault(kind, []).append(name)
            continue
        num = report.get("num_seeds", 1)
        known = all("outcomes" in r for r in report["rows"])
        over = "over tasks as if all were independent"
        if known:
            over = "over tasks, those that are worded alike taken together"
        if num == 1:
            kind = f"{over}, for this one run: another seed may give other numbers"
        elif known:
            kind = f"{over}, and over {num} seeds"
        else:
            kind = (
                f"over {num} seeds alone (Student's t), because these reports do not "
                "have the outcomes of their tasks"
            )
        kinds.setdefault(kind, []).append(name)
    if len(kinds) == 1:
        return [f"Intervals are 95 % confidence intervals: {next(iter(kinds))}."]
    texts = [f"{', '.join(names)}: {kind}" for kind, names in kinds.items()]
    return [f"Intervals are 95 % confidence intervals. {'; '.join(texts)}."]


def column(named: tuple[str, Json]) -> str:
    """Return the heading of a report's column, with its number of seeds."""
    name, report = named
    num = report.get("num_seeds")
    return f"{name} ({num} seeds)" if num else name
