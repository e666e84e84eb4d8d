"""Reports as tables, in plain text for the terminal or in Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from openagent_jax.report.intervals import PARTS
from openagent_jax.report.multiple import holds
from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import SETUP, beside, differences
from openagent_jax.report.rows import (
    RATES,
    by_claim,
    by_seed,
    by_tier,
    claim_of,
    label,
    means,
    on_solvable,
    perturbations,
    summary,
)

# What `write` adds below the table of a report.
NOTE = """\
Success, and delta from clean on the same tasks, are of tasks that can be solved.
Refusal is of tasks that cannot, and is never part of success; false refusal is of tasks
that can; tool errors are of calls. Intervals are of 95 % over the n distinct tasks that
the scenario changed; tasks whose requests are worded alike are not counted as
independent. Means are over scenarios: "mean of 3 + 1" is of 3 with tasks that can be
solved, and of 1 with tasks that cannot. Deltas with * hold after Holm's correction over
the scenarios of the report (adjusted p at most 5 %; not for means)."""
HOLDS = "*"
# Says what `bounds` of a report are.
BOUNDS_NOTE = """\
Success of scripted agents on the same tasks, in percent. They read the state of the
sandbox instead of tokens. "oracle" plays the expert; "counting" decides whether to
refuse by counts alone, such as the number of documents, as the training tasks suggest,
and otherwise plays the expert; "refuser" always refuses; "asker" asks a question first
and then plays the expert. An agent that refuses no better than "counting" need not have
read its documents."""
# Says what the claims of rows are.
CLAIMS_NOTE = """\
Claims relate a row to what the policy was trained on. Unseen forms: the kind of
perturbation was trained on, its surface forms were not. Unseen kind: the kind was not.
Held out domain: the domain was not. Entities: they are of unfamiliar forms. A row
claims nothing ("-") if its tasks and forms are of the training split, if only some of
its domains were trained on, or if nothing is known of the training."""
# Says what the rows of a report of several domains are.
DOMAINS_NOTE = """\
The rows above are means over these domains, each of which weighs the same. A perturbed
task belongs to the domain of its clean version."""
NUM_SEEDS, NUM_TASKS = 5, 384  # what a comparison needs at least; see `exploratory`
_REFUSALS = (  # the last lines of a comparison: label, group of rows, rate
    ("false refusals, clean", "clean", "false_refusal_rate"),
    ("false refusals, perturbed", "perturbed", "false_refusal_rate"),
    ("refusals, unsolvable", "perturbed", "refusal_rate"),
)


def table(*reports: Json, markdown: bool = False) -> str:
    """Format each report as a table: clean first, then each tier, then the claims.

    >>> row = {"tier": "clean", "scenario": "clean", "strength": 0.0, "n": 10}
    >>> row |= {"shift": "none", "claim": "unseen_forms", **dict.fromkeys(RATES)}
    >>> row["success"] = {"mean": 0.8, "low": 0.49, "high": 0.943}
    >>> row["delta"] = {"mean": 0.0, "low": 0.0, "high": 0.0}
    >>> text = table({"suite": "poi", "policy": "sft", "rows": [row]})
    >>> print("\\n".join(line[:46].rstrip() for line in text.splitlines()))
    Robustness of sft
    <BLANKLINE>
    suite poi
    <BLANKLINE>
    scenario  claim           n          success %
    --------  ------------  ---  -----------------
    clean     unseen forms   10  80.0 [49.0, 94.3]
    """
    parts = []
    for report in map(on_solvable, reports):
        kind = "claim" if has_claims(report) else "family"
        header = ["scenario", kind, "n", "success %", "delta points"]
        header += ["refusal %", "false refusal %", "tool errors %"]
        asks = asks_needlessly(report)
        header += ["needless questions"] * asks
        tiers, lines = by_tier(report["rows"]), []
        which = scenario_set(report)
        for name, averages in means_of(report).items():
            if text := heading(name, averages, tiers, which):
                lines.append([text, "", "", *cells(averages), *[""] * asks])
            for r in tiers.get(name, []):
                line = [label(r), standing(r), str(r["n"]), *cells(r)]
                lines.append(line + [questions(r)] * asks)
        grid = align([header, *lines], 2, markdown)
        title = f"Robustness of {report['policy']}"
        parts.append(f"{title}\n\n{origin(report)}\n\n{grid}")
    return "\n\n".join(parts)


def bounds(report: Json, markdown: bool = False) -> str:
    """Format the success of scripted agents as a table; "" if the report has none.

    >>> print(bounds({"bounds": {"oracle": {"clean": 1.0}, "refuser": {"clean": 0.0}}}))
    scripted agents, success %  oracle  refuser
    --------------------------  ------  -------
    clean                        100.0      0.0
    """
    agents = report.get("bounds")
    if not agents:
        return ""
    lines = [["scripted agents, success %", *agents]]
    for name in dict.fromkeys(name for x in agents.values() for name in x):
        lines.append([name, *(percent(x.get(name)) for x in agents.values())])
    return align(lines, 1, markdown)


def by_domain_table(report: Json, markdown: bool = False) -> str:
    """Format the success in each domain as a table; "" if the report has only one.

    >>> row = {"tier": "clean", "scenario": "clean", "strength": 0.0, "n": 10}
    >>> row |= {"shift": "none", "claim": "unseen_forms"}
    >>> row |= {"success": {"mean": 0.8}, "delta": {"mean": 0.0}}
    >>> row |= dict.fromkeys(RATES)
    >>> print(by_domain_table({"domains": [{"domain": "poi", "rows": [row]}]}))
    success % of domain    n  clean  perturbed
    -------------------  ---  -----  ---------
    poi                   10   80.0          -
    """
    lines = [["success % of domain", "n", "clean", "perturbed"]]
    for name, (num, clean, perturbed) in by_domain(report).items():
        lines.append([name, str(num), percent(clean), percent(perturbed)])
    return align(lines, 1, markdown) if len(lines) > 1 else ""


def by_group_table(report: Json, markdown: bool = False) -> str:
    """Format the means of each group of a suite of scenarios; "" if it has one group.

    Rows that claim different things have a line each.
    """
    lines = [["group", "claim", "rows", "success %", "delta points", "refusal %"]]
    for (group, claim), averages in by_group(report).items():
        number = str(averages["num_scenarios"])
        claim = claim.replace("_", " ") or "-"
        lines.append([group, claim, number, *cells(averages)[:3]])
    return align(lines, 2, markdown) if len({x[0] for x in lines}) > 2 else ""


def by_group(report: Json) -> dict[tuple[str, str], Json]:
    """Return the means of each group and claim of a suite, with some task."""
    clean = [r for r in report["rows"] if r["tier"] == "clean"]
    rows = [r for r in report["rows"] if r["tier"] != "clean"]
    groups = report.get("scenario_groups", {})
    of = [group for group, names in groups.items() for _ in names]
    if len(of) != len(rows):  # some rows were removed
        return {}
    found: dict[tuple[str, str], list[Json]] = {}
    for group, r in zip(of, rows, strict=True):
        found.setdefault((group, claim_of(r)), []).append(r)
    first = clean[0] if clean else None
    made = {k: means(x, first, report.get("phrasings")) for k, x in found.items()}
    return {key: x for key, x in made.items() if x["num_scenarios"]}


def by_domain(report: Json) -> dict[str, tuple[int, Any, Any]]:
    """Return the number of clean tasks of each domain, by name, and the success.

    Returns:
      `(n, clean, perturbed)` of each domain, if there are several. Perturbed success is
      a mean over scenarios.
    """
    found = {}
    for part in report.get("domains", []):
        means = means_of(part)
        num = max(r["n"] for r in part["rows"] if r["tier"] == "clean")
        success = means["clean"]["success"], means["perturbed"]["success"]
        found[part["domain"]] = num, *success
    return found


def side_by_side(
    reports: Mapping[str, Json], markdown: bool = False, page: str = ""
) -> str:
    """Format the success of several reports as one table, with a column for each.

    Only rows that all reports have are shown, and means are over these; a line below
    says which are left out. The last lines compare how often the agents refuse, and in
    each scenario with tasks that cannot be solved. If the
    reports cannot be compared, because their tasks or their grading differ, the first
    line is a warning that says why. Below the table stands what the intervals are. A
    report of one run has no intervals beside one of several seeds.

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
        texts.append(f"{name}: {'; '.join(found) or 'nothing'}")
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
    `NUM_TASKS` distinct tasks.
    """
    texts = []
    few = {x: r.get("num_seeds", 1) for x, r in reports.items()}
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
        return [f"Intervals are of 95 %: {next(iter(kinds))}."]
    texts = [f"{', '.join(names)}: {kind}" for kind, names in kinds.items()]
    return [f"Intervals are of 95 %. {'; '.join(texts)}."]


def column(named: tuple[str, Json]) -> str:
    """Return the heading of a report's column, with its number of seeds."""
    name, report = named
    num = report.get("num_seeds")
    return f"{name} ({num} seeds)" if num else name


def has_claims(report: Json) -> bool:
    """Return whether the rows say what they claim; see `rows.CLAIMS`."""
    return any("claim" in r for r in report["rows"])


def standing(r: Json) -> str:
    """Format how a row relates to training: its claim, or its family without one."""
    text = claim_of(r) or "-" if "claim" in r else r["family"]
    return text.replace("_", " ")


def claims_note(report: Json) -> str:
    """Say in a paragraph what the claims of a report are; "" if it has none."""
    if not has_claims(report):
        return ""
    stages = report.get("trained_on")
    if stages is None:
        return f"{CLAIMS_NOTE}\nWhat this agent was trained on is not known here."
    return f"{CLAIMS_NOTE}\n{lineage(stages)}"


def lineage(stages: Sequence[Json]) -> str:
    """Describe in a paragraph what a policy was trained on, one run after the other.

    >>> stages = [{"name": "a", "domains": None, "perturbations": None}]
    >>> stages += [{"name": "b", "domains": ["poi"], "perturbations": ["tool_order"]}]
    >>> print(lineage(stages))
    Trained on: a, of which nothing is known; b, on poi, perturbed by tool_order.
    """
    texts = []
    for stage in stages:
        if stage["domains"] is None:
            texts.append(f"{stage['name']}, of which nothing is known")
            continue
        how = ", ".join(stage["perturbations"])
        text = f"{stage['name']}, on {', '.join(stage['domains'])}"
        texts.append(text + (f", perturbed by {how}" if how else ", unperturbed"))
    return f"Trained on: {'; '.join(texts) or 'nothing'}."


def means_of(report: Json) -> dict[str, Json]:
    """Return the means of a report; see `rows.summary`."""
    return summary(report["rows"], report.get("phrasings"))


def scenario_set(report: Json) -> str:
    """Return what the scenarios of a report are, such as "suite"; "" if unknown."""
    return report.get("scenario_set", "")


def linked(r: Json, page: str) -> str:
    """Return the label of a row in Markdown, linked to the sections of a page.

    >>> linked({"tier": "reasoning", "scenario": "rule_shift", "strength": 0.5}, "a.md")
    '[rule_shift](a.md#rule_shift) at 0.5'
    """
    text = label(r).strip()
    if r["tier"] == "clean":
        return text
    links = "+".join(f"[{name}]({page}#{name})" for name in perturbations(r))
    return links + text.removeprefix(r["scenario"])


def meaning(report: Json, r: Json) -> str:
    """Say what the perturbations of a row do, and what is right to do then.

    The text is "" if the report does not say, as those of earlier versions.
    """
    known = report.get("glossary", {})
    found = [known[name] for name in perturbations(r) if name in known]
    return " ".join(f"{x['summary']} Right: {x['right']}".strip() for x in found)


def glossary(report: Json) -> str:
    """Return a list of what the perturbations of a report do, in Markdown.

    The text is "" if the report does not say.

    >>> meanings = {"tool_order": {"summary": "Shuffle them.", "right": "Go on."}}
    >>> print(glossary({"glossary": meanings}))
    What the scenarios change, and what is right to do then:
    <BLANKLINE>
    * `tool_order`: Shuffle them. Right: Go on.
    """
    known = report.get("glossary", {})
    lines = [f"* `{k}`: {x['summary']} Right: {x['right']}" for k, x in known.items()]
    title = "What the scenarios change, and what is right to do then:"
    return "\n".join([title, "", *lines]) if lines else ""


def asks_needlessly(report: Json) -> bool:
    """Return whether an agent asked a question whose answer it had."""
    return any(r.get("needless_questions") for r in report["rows"])


def questions(r: Json) -> str:
    """Format the number of needless questions in an episode."""
    value = r.get("needless_questions")
    return "-" if value is None else f"{value:.2f}"


def origin(report: Json) -> str:
    """Describe in one line how a report was made."""
    # An agent that is reached by messages has no steps of training.
    own = ("model", "base_url") if "agent" in report else ("checkpoint_step",)
    keys = dict.fromkeys(("suite", *own, *SETUP))
    facts = [f"{k.replace('_', ' ')} {report[k]}" for k in keys if k in report]
    if version := report.get("scenario_set_version"):
        facts.insert(1, f"scenarios {scenario_set(report)} version {version}")
    if names := report.get("left_out"):
        facts.append(f"without {', '.join(names)}, which needs to be named")
    unanswered = sum(r.get("unanswered", 0) for r in report["rows"])
    if unanswered:
        facts.append(f"{unanswered} episodes never answered, and not counted")
    return ", ".join(facts)


def spent(cost: Json) -> str:
    """Describe in one line what an evaluation by messages costs.

    Args:
      cost: the `cost` of a report, or an estimate of it.

    >>> spent({"episodes": 2, "requests": 5, "retries": 1, "prompt_tokens": 4200})
    '2 episodes, 5 requests (1 of them retries), 4,200 prompt tokens'
    """

    def count(key: str, word: str) -> str:
        number = cost.get(key)
        return "" if number is None else f"{number:,} {word}"

    requests = count("requests", "requests")
    if retries := cost.get("retries"):
        requests += f" ({retries:,} of them retries)"
    parts = [
        count("episodes", "episodes"),
        count("reused", "reused from the clean tasks that a scenario left unchanged"),
        requests,
        count("prompt_tokens", "prompt tokens"),
        count("completion_tokens", "completion tokens"),
    ]
    if cost.get("price") is not None:
        parts.append(f"a price of {cost['price']:,.4g}")
    if cost.get("latency_median") is not None:
        median, tail = cost["latency_median"], cost["latency_p95"]
        parts.append(f"latency {median:.3g} s (median), {tail:.3g} s (p95)")
    return ", ".join(filter(None, parts))


def heading(name: str, averages: Json, tiers: Json, which: str = "") -> str:
    """Return the heading of a line of means, or "" if the group has no such line.

    Args:
      name: the name of the group.
      averages: the means.
      tiers: the rows of each tier.
      which: what set the scenarios are, such as "suite"; "" if it is not known.
    """
    if name == "clean" or not (name in tiers or averages["num_scenarios"]):
        return ""
    of = f" ({which})" if which else ""
    num, refusals = averages["num_solvable"], averages["num_unsolvable"]
    number = f"{num} + {refusals}" if refusals else num
    return f"{name.replace('_', ' ')}, mean of {number}{of}"


def cells(x: Json) -> list[str]:
    """Format success, delta and rates of a row or of means, in percent."""
    success = percent(x["success"])
    if x.get("n") == 0:
        success = "none answered" if x.get("unanswered") else "no task changed"
    delta = percent(x["delta"], "+") + HOLDS * holds(x)
    rates = [x.get("refusal", x["refusal_rate"]), *(x[k] for k in RATES[1:3])]
    return [success, delta, *map(percent, rates)]


def percent(x: Any, sign: str = "") -> str:
    """Format a fraction, or an interval, in percent; "-" if there is no value.

    >>> percent({"mean": 0.8, "low": 0.49, "high": 0.943})
    '80.0 [49.0, 94.3]'
    """
    if isinstance(x, dict) and x["mean"] is not None:
        if x["low"] is None:  # see `pool.beside`
            return percent(x["mean"], sign)
        mean, low, high = (percent(x[k], sign) for k in PARTS)
        return f"{mean} [{low}, {high}]"
    if x is None or isinstance(x, dict):
        return "-"
    return f"{round(100 * x, 1) + 0.0:{sign}.1f}"  # adding 0.0 turns -0.0 into 0.0


def align(lines: Sequence[Sequence[str]], num_left: int, markdown: bool) -> str:
    """Align the cells of lines; the first `num_left` columns are left-aligned."""
    if markdown:
        lines = [[cell.strip().replace("|", "\\|") for cell in x] for x in lines]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    sides = ["<"] * num_left + [">"] * (len(widths) - num_left)
    pairs = list(zip(sides, widths, strict=True))
    rule = ["-" * (w - 1) + "-:"[markdown and side == ">"] for side, w in pairs]
    rows = []
    for line in (lines[0], rule, *lines[1:]):
        aligned = [f"{x:{side}{w}}" for x, (side, w) in zip(line, pairs, strict=True)]
        rows.append(f"| {' | '.join(aligned)} |" if markdown else "  ".join(aligned))
    return "\n".join(rows)
