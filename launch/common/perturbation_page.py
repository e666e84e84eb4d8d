"""The page that defines the perturbations, made from the catalogues.

What an entry does and its example are in its docstring: a summary, lines that begin
with `Before:` and `After:`, and further text, with what strength means after
`Strength:`.
"""

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from openagent_jax import perturb
from openagent_jax.environments import registry
from openagent_jax.perturb import Entry
from openagent_jax.text import error_texts, result_forms

COMMAND = "python -m launch.perturbations"
WORLDS = {"Tool worlds": "poi", "Crafting worlds": "crafting"}
INTRODUCTION = f"""\
# Perturbations

Every perturbation of the catalogue: what changes, before and after, and its labels.
This page is made from the code by `{COMMAND}`.
`python -m launch.domain show poi --perturbation=NAME` prints episodes of the oracle,
clean and perturbed side by side.

The *tier* says how deep a change goes, and the *shift* what changes: the query, the
actions, the observations or the domain. The *part* is that of the decision process
that changes. A change is *explicit* if the documents or the feedback reveal it, and
*transient* if it goes away within the episode. Strength 0 changes nothing; if an entry
does not say otherwise, strength is the probability of the change, or of each one where
there are several, such as names, documents or results.

PAFT trains on every entry in surface forms of the training split, and an evaluation
draws other forms. An entry that is "not trained on" takes its tasks from what
evaluation holds out ([claims](how_it_works.md#what-a-row-claims)). An unsolvable entry
names a counterpart, whose tasks can be solved and look the same."""
# What the forms of training and of an evaluation are, by the fields that change.
POOLS = {
    "phrase": "phrasings of requests, in separate pools",
    "tools.name": "synonyms of names in the domain file, or names without meaning, in "
    "separate pools",
    "tools.arg_name": "synonyms of arguments in the domain file, in separate pools",
    "tools.description": "descriptions in the domain file, in separate pools",
    "items.name": "names of items, in separate pools",
}
_NEW = "names and descriptions of new tools, in separate pools"


class Parts(NamedTuple):
    """The parts of a docstring."""

    summary: str
    before: str
    after: str
    more: str  # what follows the example, without what strength means
    strength: str


def page() -> str:
    """Return the page in Markdown."""
    lines, seen = [INTRODUCTION, ""], set[str]()
    for title, domain in WORLDS.items():
        entries = registry.spec(domain).perturbations
        lines += [f"## {title}", "", "| tier | perturbations |", "| --- | --- |"]
        lines += _overview(entries, seen)
        seen |= {entry.name for entry in entries}
        for tier in perturb.TIERS:
            lines += ["", f"### {tier.capitalize()}, {title.lower()}", ""]
            sections = (section(entry) for entry in entries if entry.tier == tier)
            lines.append("\n\n".join("\n".join(lines) for lines in sections))
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _end(text: str) -> str:
    """Return the period that a sentence lacks."""
    return "" if text.rstrip("`)").endswith((".", "?")) else "."


def section(entry: Entry) -> Iterator[str]:
    """Yield the lines of one entry."""
    text = parts(entry)
    yield f"#### {entry.name}"
    yield ""
    yield text.summary
    yield ""
    yield f"* Labels: {', '.join(labels(entry))}."
    if text.before:
        for when, example in (("Before", text.before), ("After", text.after)):
            yield f"* {when}: {example}{_end(example)}"
    if text.strength:
        yield f"* Strength: {text.strength}."
    if found := forms(entry):
        yield f"* Forms: {found}."
    if entry.counterpart:
        yield f"* Counterpart: {entry.counterpart}."
    if entry.includes:
        yield f"* One of {', '.join(entry.includes)}."
    if text.more:
        yield ""
        yield text.more


def labels(entry: Entry) -> Iterator[str]:
    """Yield what the catalogue says of an entry, in words."""
    yield f"shift of the {entry.shift}"
    yield f"part: {entry.part}"
    yield "explicit" if entry.explicit else "implicit"
    yield "transient" if entry.transient else "permanent"
    yield (
        "from the start" if entry.position == "start" else f"position: {entry.position}"
    )
    yield "stays solvable" if entry.solvable else "cannot be solved: refuse"
    if entry.unseen:
        yield "not trained on"


def forms(entry: Entry) -> str:
    """Say which surface forms are for training, and which for evaluation."""
    found = [text for path, text in POOLS.items() if path in entry.touches]
    if "tools" in entry.touches:
        found.append(_NEW)
    if "faults.form" in entry.touches and entry in registry.spec("poi").perturbations:
        found.append(
            f"forms of results: for training {_listed(result_forms.TRAIN)}; for "
            f"evaluation {_listed(result_forms.TEST)}"
        )
    if "faults.wording" in entry.touches:
        found.append(
            f"wordings of errors: for training {_counted(error_texts.TRAIN)}; for "
            f"evaluation {_counted(error_texts.TEST)}"
        )
    return ". ".join(x[0].upper() + x[1:] if i else x for i, x in enumerate(found))


def parts(entry: Entry) -> Parts:
    """Divide the docstring of an entry.

    Raises:
      ValueError: it has no example.
    """
    text = inspect.cleandoc(entry.make.__doc__ or "")
    example = r"(.*?)\bBefore:(.*?)\bAfter:(.*?)(?:\n\n(.*)|$)"
    if entry.includes:  # which have examples of their own
        example = r"(.*?)()()(?:\n\n(.*)|$)"
    found = re.match(example, text, re.DOTALL)
    if not found:
        raise ValueError(f"the docstring of {entry.name} lacks Before: and After:")
    summary, before, after, rest = map(_flat, found.groups("")[:4])
    rest, _, strength = rest.partition("Strength:")
    strength, _, more = strength.strip().partition(". ")
    if mark := re.search(r"\bStrength:", summary):
        raise ValueError(
            f"{entry.name}: Strength: belongs after the example ({mark[0]})"
        )
    more = f"{rest.strip()} {more}".strip()
    before, after, strength = (x.rstrip(".") for x in (before, after, strength))
    return Parts(summary, before, after, more, strength)


def _overview(entries: Sequence[Entry], seen: Collection[str]) -> Iterator[str]:
    """Yield a row of links for each tier; `seen` names have a section before."""
    for tier in perturb.TIERS:
        names = [entry.name for entry in entries if entry.tier == tier]
        anchors = [f"{name}-1" if name in seen else name for name in names]
        pairs = zip(names, anchors, strict=True)
        links = ", ".join(f"[{name}](#{anchor})" for name, anchor in pairs)
        yield f"| {tier.capitalize()} | {links} |"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _listed(names: Iterable[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


def _counted(families: dict) -> str:
    every = (f"{name.replace('_', ' ')} ({len(x)})" for name, x in families.items())
    return ", ".join(every)
