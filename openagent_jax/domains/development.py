"""Divide the training split of a domain, for choices that must not use the test split.

Anything chosen on the test split (hyperparameters, designs) is fitted to it. The name
of a domain followed by `:dev` stands for a domain whose training and test split are
both made from the original training split, so that the test split stays unseen.
"""

from collections.abc import Iterable
from dataclasses import replace

from openagent_jax.domains.domain_spec import (
    DomainSpec,
    GoalSpec,
    Requests,
    Synonyms,
    ToolSpec,
    TypeSpec,
    require,
)

SUFFIX = ":dev"  # after the name of a domain


def divide(domain: DomainSpec) -> DomainSpec:
    """Return a domain whose two splits are both made from the training split.

    Entities and requests are grouped by their first word, and every fourth group goes
    to the new test split. It also gets the last text of each pool of synonyms and of
    rewritten requests, the last of the words from which requests are put together, and
    constructions of its own (those of `request_grammar.DEVELOPMENT`), which are then
    not used for training.

    Three things are still those of a real test: the entities of `entity_shift`, the
    domain of `domain_transfer`, and the names, gates and styles that belong to no
    domain.

    Raises:
      DomainError: there is only one text to divide.
    """
    requests = [text for goal in domain.goals for text in goal.phrases["train"]]
    openings = _every_fourth_word(requests)
    return replace(
        domain,
        types=tuple(_divide_type(kind) for kind in domain.types),
        tools=tuple(_divide_tool(tool) for tool in domain.tools),
        goals=tuple(_divide_goal(goal, openings) for goal in domain.goals),
        divided=True,
    )


def _divide_type(kind: TypeSpec) -> TypeSpec:
    if kind.train == kind.test:  # an enum, or a range of numbers
        return kind
    train, test = _divide_texts(kind.train, _every_fourth_word(kind.train), kind.name)
    return replace(kind, train=train, test=test)


def _divide_tool(tool: ToolSpec) -> ToolSpec:
    return replace(
        tool,
        names=_hold_out_last(tool.names, tool.name),
        descriptions=_hold_out_last(tool.descriptions, tool.name),
        argument_names={
            name: _hold_out_last(synonyms, name)
            for name, synonyms in tool.argument_names.items()
        },
        requests=tool.requests and _divide_requests(tool.requests, tool.name),
    )


def _divide_requests(requests: Requests, place: str) -> Requests:
    def divided(texts: Synonyms) -> Synonyms:
        return _hold_out_last(_hold_out_last(texts, place), place, "rewrite_")

    fields = {name: divided(texts) for name, texts in requests.fields.items()}
    return Requests(divided(requests.do), fields)


def _divide_goal(goal: GoalSpec, openings: set[str]) -> GoalSpec:
    train, test = _divide_texts(goal.phrases["train"], openings, goal.name)
    phrases = _hold_out_last(goal.phrases, goal.name, "rewrite_")
    return replace(goal, phrases={**phrases, "train": train, "test": test})


def _hold_out_last(texts: Synonyms, place: str, prefix: str = "") -> Synonyms:
    """Make the last text of the training split the test split."""
    last = texts[f"{prefix}train"][-1]
    train, test = _divide_texts(texts[f"{prefix}train"], {last}, place)
    return {**texts, f"{prefix}train": train, f"{prefix}test": test}


def _every_fourth_word(texts: Iterable[str]) -> set[str]:
    """Return every fourth of the words with which texts begin."""
    return set(list(dict.fromkeys(text.split()[0] for text in texts))[3::4])


def _divide_texts(
    texts: tuple[str, ...], held_out: set[str], place: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the texts to train on, and those that are held out.

    Held out are the texts that are in `held_out` or begin with a word of it. If these
    are all of the texts, or none, the last text is held out instead.

    Raises:
      DomainError: there is only one text.
    """
    message = f"one text for training; add another, as {SUFFIX} needs two"
    require(len(texts) > 1, place, message)
    test = tuple(text for text in texts if {text, text.split()[0]} & held_out)
    test = test if 0 < len(test) < len(texts) else texts[-1:]
    excluded = set(test)
    return tuple(text for text in texts if text not in excluded), test
