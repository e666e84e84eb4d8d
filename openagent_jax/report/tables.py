"""Reports as tables, in plain text for the terminal or in Markdown."""

from collections.abc import Sequence
from typing import Any

from openagent_jax.report.intervals import PARTS
from openagent_jax.report.multiple import holds
from openagent_jax.report.outcomes import Json
from openagent_jax.report.pool import SETUP
from openagent_jax.report.rows import (
    RATES,
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
that can; tool errors are of calls. Intervals are 95 % confidence intervals over the n
distinct tasks that the scenario changed; tasks whose requests are worded alike are not
counted as independent. Means are over scenarios: "mean of 3 + 1" is of 3 with tasks
that can be solved, and of 1 with tasks that cannot. Deltas marked * are significant
after Holm's correction over the scenarios of the report (adjusted p at most 5 %; means
are never marked)."""
HOLDS = "*"
# Says what `bounds` of a report are.
BOUNDS_NOTE = """\
Success of scripted agents on the same tasks, in percent. They read the state of the
sandbox instead of tokens. "oracle" acts as the expert does; "counting" decides by
counts alone whether to refuse, such as the number of documents, as the training tasks
suggest, and is otherwise an oracle; "refuser" always refuses; "asker" asks a question
first and is then an oracle. An agent that refuses no better than "counting" need not
have read its documents. "memoriser" (if it played) makes the calls that it would have
made before the perturbation; "reader" goes by the documents and reads no feedback;
"retrier" does so too, but repeats a call that returns an error."""
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
    """Return the means of each group and claim of a suite that has any tasks."""
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
        facts.append(f"without {', '.join(names)} (played only if named)")
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
