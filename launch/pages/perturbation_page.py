"""The page that defines the perturbations, made from the catalogues.

What an entry does and its example are in its docstring: a summary, lines that begin
with `Before:` and `After:`, and further text, with what strength means after
`Strength:`. What is right to do is in the catalogue, and the rest in NOTES.
"""

import inspect
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from launch.pages import simple_agents_table
from openagent_jax import perturb
from openagent_jax.environments import registry
from openagent_jax.environments.tools.worlds import asides, symbols
from openagent_jax.perturb import Entry
from openagent_jax.text import error_texts, key_forms, result_forms

COMMAND = "python -m launch.perturbations"
NOTES = Path(__file__).with_name("perturbation_notes.toml")
WORLDS = {"Tool worlds": "poi", "Crafting worlds": "crafting"}
INTRODUCTION = f"""\
# Perturbations

Every perturbation of the catalogue: what changes, what is right to do then, and a case
of this kind that has happened elsewhere. This page is made from the code by
`{COMMAND}`. `python -m launch.domain show poi --perturbation=NAME`
prints episodes of the oracle, clean and perturbed side by side.

The *tier* says how deep a change goes, and the *shift* what changes: the query, the
actions, the observations or the domain. The *part* is the component of the decision
process (POMDP) that changes. A change is *explicit* if the documents or the feedback
reveal it, and *transient* if it goes away within the episode. Strength 0 changes
nothing; if an entry does not say otherwise, strength is the probability of the change,
or of each one where there are several, such as names, documents or results.

Where the labels offer a position *by choice*, `NAME:early` is at the first step of the
goal, `NAME:late` at the last one, and `NAME:mid` at one in between; they change only
tasks of at least two steps, or three for `mid`. Without a choice any step may be hit.

PAFT trains in surface *forms* of the training split, and an evaluation draws those of
the test split. An entry that lists no forms has no texts of its own. One
that is "not trained on" takes its tasks from what is held out for evaluation
([claims](how_it_works.md#what-a-row-claims)). An unsolvable entry names a counterpart,
whose tasks can be solved and look the same. Cases *elsewhere* are told as their sources
tell them; where none was found, the line is missing."""
SIMPLE_AGENTS = f"""\
## Agents that lack a skill

Scripted agents show which skill an entry requires: an agent that lacks it fails the
tasks that the entry changes. The *memoriser* makes the calls that it would have made
before the change, by the names that tools and arguments had then. The *reader* plans
by the documents as they are. Neither reads feedback: after an error they have nothing
to go on. The *retrier* is a reader that repeats a call until it returns no error. The
*refuser* refuses everything. They act on the state of the sandbox rather than on texts:
they understand each request and each form of results, and ask for what a request leaves
out. Of two tools that do the same they take the older one.

An agent *solves* all tasks or *fails* all of them; otherwise its success is given in
percent, with an interval of 95 % in which tasks that are worded alike do not count as
independent. What each entry declares is kept beside the texts of this page; a result
that differs from it is marked. {{num_tasks}} tasks of each domain were played by
`{COMMAND} --measure` (split {{split}}, seed {{seed}}, {{max_turns}} turns, strength 1),
and a row counts those that the entry changes."""


class Parts(NamedTuple):
    """The parts of a docstring."""

    summary: str
    before: str
    after: str
    more: str  # what follows the example, without what strength means
    strength: str


def page(stored: Path) -> str:
    """Return the page in Markdown.

    Args:
      stored: the file of what was measured of simple agents.
    """
    lines, seen = [INTRODUCTION, ""], set[str]()
    for title, domain in WORLDS.items():
        entries = registry.spec(domain).perturbations
        lines += [f"## {title}", "", "| tier | perturbations |", "| --- | --- |"]
        lines += _overview(entries, seen)
        seen |= {entry.name for entry in entries}
        for tier in perturb.TIERS:
            lines += ["", f"### {tier.capitalize()}, {title.lower()}", ""]
            sections = (
                section(entry, world_of(title))
                for entry in entries
                if entry.tier == tier
            )
            lines.append("\n\n".join("\n".join(lines) for lines in sections))
        lines.append("")
    lines += _simple_agents(simple_agents_table.load(stored))
    return "\n".join(lines).rstrip() + "\n"


def _simple_agents(stored: simple_agents_table.Json) -> Iterator[str]:
    """Yield the part of the page on agents that lack a skill."""
    yield SIMPLE_AGENTS.format_map(stored)
    for title, domain in WORLDS.items():
        kind, domains = registry.spec(domain), [*stored["domains"]]
        domains = [x for x in domains if registry.spec(x) is kind]
        if not domains:
            continue
        sizes = simple_agents_table.sizes(stored, domains)
        yield ""
        yield f"{title} ({', '.join(domains)}), with {sizes} tasks in a row:"
        yield ""
        declared = notes()["agents"][world_of(title)]
        entries = kind.perturbations
        yield from simple_agents_table.table(stored, domains, entries, declared)


def _end(text: str) -> str:
    """Return the period that a sentence lacks."""
    return "" if text.rstrip("`)").endswith((".", "?")) else "."


def world_of(title: str) -> str:
    """Return the name of the notes on the entries of some worlds.

    >>> world_of("Tool worlds")
    'tool'
    """
    return title.split()[0].lower()


@cache
def notes() -> dict[str, Any]:
    """Return the notes on each entry, by kind of worlds and name; see NOTES."""
    return tomllib.loads(NOTES.read_text("utf-8"))


def section(entry: Entry, world: str) -> Iterator[str]:
    """Yield the lines of one entry.

    Args:
      entry: the entry.
      world: the kind of its worlds; see `world_of`.
    """
    text, note = parts(entry), notes()[world].get(entry.name, {})
    yield f"#### {entry.name}"
    yield ""
    yield text.summary
    yield ""
    yield f"* Correct behaviour: {response(entry)} {note.get('right', '')}".rstrip()
    if text.before:
        for when, example in (("Before", text.before), ("After", text.after)):
            yield f"* {when}: {example}{_end(example)}"
    if text.strength:
        yield f"* Strength: {text.strength}."
    for split, of in (("train", "training"), ("test", "the test")):
        if split in note:
            form = note[split].format_map(forms(split))
            yield f"* Forms in {of}: {form}{_end(form)}"
    if entry.counterpart:
        yield f"* Counterpart: {entry.counterpart}."
    if entry.includes:
        yield f"* One of {', '.join(entry.includes)}."
    if "incident" in note:
        where = note["source"]
        yield f"* Elsewhere: {note['incident']} ([{source_name(where)}]({where}))"
    yield f"* Labels: {', '.join(labels(entry))}."
    if text.more:
        yield ""
        yield text.more


def labels(entry: Entry) -> Iterator[str]:
    """Yield what the catalogue says of an entry, in words."""
    yield f"shift of the {entry.shift}"
    yield f"part: {entry.part}"
    yield "explicit" if entry.explicit else "implicit"
    yield "transient" if entry.transient else "permanent"
    if entry.placeable:
        yield f"position: {entry.position}, or {', '.join(perturb.POSITIONS)} by choice"
    else:
        at_start = entry.position == "start"
        yield "from the start" if at_start else f"position: {entry.position}"
    yield "stays solvable" if entry.solvable else "cannot be solved"
    if entry.unseen:
        yield "not trained on"


def response(entry: Entry) -> str:
    """Say what is right to do.

    Raises:
      ValueError: the catalogue does not say.
    """
    if entry.response not in perturb.RESPONSES:
        raise ValueError(
            f"the entry {entry.name} has no correct behaviour; set its `response` in "
            f"the catalogue to one of {', '.join(perturb.RESPONSES)}"
        )
    return perturb.RESPONSES[entry.response]


def forms(split: str) -> dict[str, str]:
    """Return lists of the forms of a split, by their names in NOTES."""
    train = split == "train"
    results = result_forms.TRAIN if train else result_forms.TEST
    errors = error_texts.TRAIN if train else error_texts.TEST
    keys = key_forms.TRAIN if train else key_forms.TEST
    noted = [note.strip() for some in symbols.NOTES[split] for note in some]
    return {
        "results": _listed(results),
        "errors": ", ".join(f"{_listed([x])} ({len(y)})" for x, y in errors.items()),
        "keys": _listed(keys),
        "gates": _quoted(name for name, _ in symbols.GATES[split]),
        "listers": _quoted(name for name, _ in symbols.LISTERS[split]),
        "changes": _quoted("...".join(x) for x in symbols.CHANGES[split]),
        "vague": _quoted(symbols.VAGUE[split]),
        "notes": _quoted(noted),
        "filings": _quoted(
            "...".join(x).strip() for row in asides.FILINGS[split] for x in row
        ),
        "joints": _quoted(joint.strip() for joint in symbols.JOINTS[split]),
    }


def source_name(address: str) -> str:
    """Return a short name of a source.

    >>> source_name("https://github.com/openai/codex/pull/2611")
    'codex #2611'
    >>> source_name("https://www.rfc-editor.org/rfc/rfc9745")
    'rfc-editor.org'
    """
    parts = urlsplit(address)
    if found := re.match(r"/[^/]+/([^/]+)/(?:issues|pull)/(\d+)$", parts.path):
        return f"{found[1]} #{found[2]}"
    if found := re.match(r"/(?:abs|html)/([\d.]+\d)", parts.path):
        return f"arXiv {found[1]}"
    return parts.netloc.removeprefix("www.")


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


def _quoted(texts: Iterable[str]) -> str:
    return ", ".join(f"`{text}`" for text in texts)
