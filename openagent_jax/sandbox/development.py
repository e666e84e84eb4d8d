"""Divide the training half of a domain again, for choices that a test must not make."""

from collections.abc import Iterable
from dataclasses import replace

from openagent_jax.sandbox.domain_spec import (
    DomainSpec,
    GoalSpec,
    Pools,
    ToolSpec,
    TypeSpec,
    must,
)

SUFFIX = ":dev"  # after the name of a domain


def divide(domain: DomainSpec) -> DomainSpec:
    """The training half of a domain, divided again; nothing of its test half is left.

    Kept back for the test are every fourth of the words that names of things begin
    with, every fourth of those that requests begin with, and the last of the synonyms
    and of the rewritten requests.

    What is of no half stays what a test uses: the entities of `entity_shift`, the
    domain of `domain_transfer`, and names, gates and styles that are of no domain.
    """
    phrases = [text for goal in domain.goals for text in goal.phrases["train"]]
    openings = _fourth(phrases)

    def of_type(kind: TypeSpec) -> TypeSpec:
        if kind.train == kind.test:  # an enum, or a range
            return kind
        train, test = _part(kind.train, _fourth(kind.train), kind.name)
        return replace(kind, train=train, test=test)

    def last(pools: Pools, name: str, of: str = "") -> Pools:
        texts = pools[f"{of}train"]
        train, test = _part(texts, {texts[-1]}, name)
        return {**pools, f"{of}train": train, f"{of}test": test}

    def of_tool(tool: ToolSpec) -> ToolSpec:
        spoken = tool.argument_names.items()
        return replace(
            tool,
            names=last(tool.names, tool.name),
            descriptions=last(tool.descriptions, tool.name),
            argument_names={slot: last(pools, slot) for slot, pools in spoken},
        )

    def of_goal(goal: GoalSpec) -> GoalSpec:
        train, test = _part(goal.phrases["train"], openings, goal.name)
        phrases = last(goal.phrases, goal.name, "rewrite_")
        return replace(goal, phrases={**phrases, "train": train, "test": test})

    return replace(
        domain,
        types=tuple(map(of_type, domain.types)),
        tools=tuple(map(of_tool, domain.tools)),
        goals=tuple(map(of_goal, domain.goals)),
    )


def _fourth(texts: Iterable[str]) -> set[str]:
    """Every fourth of the words that some text begins with."""
    return set(list(dict.fromkeys(text.split()[0] for text in texts))[3::4])


def _part(
    texts: tuple[str, ...], held: set[str], place: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The texts without those that are kept back, or begin so; and these. If all are
    of one side, the last is kept back."""
    must(len(texts) > 1, place, f"one text for training; {SUFFIX} needs another")
    test = tuple(text for text in texts if {text, text.split()[0]} & held)
    test = test if 0 < len(test) < len(texts) else texts[-1:]
    rest = set(test)
    return tuple(text for text in texts if text not in rest), test
