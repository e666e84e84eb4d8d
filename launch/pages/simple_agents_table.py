"""Where simple agents land under each perturbation: declared, measured, and as a table.

The declarations are in NOTES of `perturbation_page`, under `agents`. What was measured
is stored in `STORED`, which `measure` makes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.evaluation import simple_agents
from openagent_jax.perturb import Entry
from openagent_jax.report import intervals, tables

STORED = "docs/results/simple_agents.json"
DOMAINS = {"poi": "medical", "medical": "poi", "crafting": "poi"}  # and `transfer`
WORDS = ("solves", "fails", "partly")
SETUP = {"split": "test", "seed": 0, "num_tasks": 256, "max_turns": 12}
Json = dict[str, Any]


def measure(tokenizer: Any, scenarios: Sequence[str] = ()) -> Json:
    """Play tasks of all domains, and return how many the agents solve.

    Args:
      tokenizer: the tokenizer with which worlds are spelled.
      scenarios: names of perturbations; default: the catalogue of each domain.
    """
    found: Json = {**SETUP, "domains": {}}
    for domain, transfer in DOMAINS.items():
        settings = Settings(domain, transfer=transfer, max_turns=SETUP["max_turns"])
        world = registry.make(settings, Spelling(tokenizer))
        names = [entry.name for entry in world.environment.perturbations]
        names = [name for name in names if name in scenarios or not scenarios]
        played = simple_agents.successes(
            world,
            names,
            split=SETUP["split"],
            seed=SETUP["seed"],
            num_tasks=SETUP["num_tasks"],
        )
        found["domains"][domain] = {k: _row(x) for k, x in played.items()}
    return found


def _row(solved: simple_agents.Solved) -> Json:
    """Return the number of tasks, and the success of each agent with an interval."""
    num = len(solved.phrasing)
    row: Json = {"n": num}
    for agent, success in solved.success.items():
        rate = dict.fromkeys(intervals.PARTS)
        if num:
            rate = intervals.rate(intervals.of_one(success, [solved.phrasing]))
            rate = {key: round(float(x), 4) for key, x in rate.items()}
            rate["mean"] = round(float(success.mean()), 4)
        row[agent] = rate
    return row


def word(rates: Sequence[Json]) -> str:
    """Return where an agent has landed in all domains: one of WORDS; "" if nowhere."""
    means = {x["mean"] for x in rates if x["mean"] is not None}
    if not means:
        return ""
    return {(1.0,): "solves", (0.0,): "fails"}.get((*means,), "partly")


def declared(declarations: Mapping[str, Sequence[str]], entry: Entry) -> dict[str, str]:
    """Return where an entry says that each agent should land.

    Args:
      declarations: those of its kind of worlds, in NOTES.
      entry: the entry.

    Raises:
      ValueError: it does not say.
    """
    found = declarations.get(entry.name, ())
    if len(found) != len(simple_agents.AGENTS) - 1 or not {*found} <= {*WORDS}:
        raise ValueError(
            f"the entry {entry.name} does not declare the expected results of "
            f"{len(simple_agents.AGENTS) - 1} simple agents; add them under "
            "`agents` of perturbation_notes.toml"
        )
    words = [*found, "fails" if entry.solvable else "solves"]
    return dict(zip(simple_agents.AGENTS, words, strict=True))


def table(
    stored: Json,
    domains: Sequence[str],
    entries: Sequence[Entry],
    declarations: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield the lines of a table in Markdown.

    Args:
      stored: what `measure` returned.
      domains: the domains that it shows.
      entries: the catalogue of these domains.
      declarations: those of its kind of worlds, in NOTES.
    """
    agents = simple_agents.AGENTS
    yield f"| perturbation | {' | '.join(agents)} |"
    yield f"| --- |{' --- |' * len(agents)}"
    of_clean = [stored["domains"][domain][draw.CLEAN] for domain in domains]
    cells = [_cell(domains, [x[agent] for x in of_clean], "") for agent in agents]
    yield f"| {draw.CLEAN} | {' | '.join(cells)} |"
    for entry in entries:
        rows = [stored["domains"][domain].get(entry.name) for domain in domains]
        if None in rows:
            yield f"| {entry.name} | {' | '.join(['not measured'] * len(agents))} |"
            continue
        wanted = declared(declarations, entry)
        cells = [
            _cell(domains, [row[agent] for row in rows if row], wanted[agent])
            for agent in agents
        ]
        yield f"| {entry.name} | {' | '.join(cells)} |"


def _cell(domains: Sequence[str], rates: Sequence[Json], wanted: str) -> str:
    """Format where an agent has landed, and what was declared if that is otherwise."""
    landed = word(rates)
    text = landed or "no task changed"
    if landed == "partly":
        parts = zip(domains, rates, strict=True)
        text = ", ".join(f"{name} {tables.percent(rate)}" for name, rate in parts)
    differs = wanted and landed and wanted != landed
    return f"{text} (declared: {wanted})" if differs else text


def sizes(stored: Json, domains: Sequence[str]) -> str:
    """Return the least and the most tasks of a row, such as "40 to 256"."""
    of = [row["n"] for domain in domains for row in stored["domains"][domain].values()]
    nums = [num for num in of if num]
    return f"{min(nums)} to {max(nums)}"


def load(path: Path) -> Json:
    """Return what is stored; without any row if there is no such file."""
    if not path.exists():
        return {**SETUP, "domains": {}}
    return json.loads(path.read_text("utf-8"))
