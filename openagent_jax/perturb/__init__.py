"""Perturbations of tasks: the algebra, the entries, and their catalogue."""

from openagent_jax.perturb import interaction, internalization, perception, reasoning
from openagent_jax.perturb.base import (
    Entry,
    Perturbation,
    Pools,
    batched,
    chain,
    equal,
    identity,
    on_trajectory,
    one_of,
    sometimes,
)

__all__ = [
    "CATALOGUE",
    "Entry",
    "Perturbation",
    "Pools",
    "batched",
    "chain",
    "equal",
    "identity",
    "make",
    "on_trajectory",
    "one_of",
    "sometimes",
]

_NEW_TOOL = ("tools", "faults")


def _entry(make, tier, shift, part, touches, family, **claims) -> Entry:
    default = dict(explicit=True, transient=False, position="start", solvable=True)
    return Entry(
        name=make.__name__,
        make=make,
        tier=tier,
        shift=shift,
        part=part,
        touches=touches,
        family=family,
        **{**default, **claims},
    )


def _catalogue() -> dict[str, Entry]:
    see, act, think, know = perception, interaction, reasoning, internalization
    names = ("tools.name",)
    entries = (
        _entry(see.identity_erasure, "perception", "action", "observation", names, "train"),
        _entry(see.semantic_trap, "perception", "action", "observation", names, "train"),
        _entry(
            see.semantic_renaming, "perception", "action", "observation", names, "held_out"
        ),
        _entry(
            see.argument_renaming,
            "perception",
            "action",
            "observation",
            ("tools.arg_name",),
            "held_out",
        ),
        _entry(
            see.description_rewrite,
            "perception",
            "action",
            "observation",
            ("tools.description",),
            "held_out",
        ),
        _entry(
            see.distractor_tools,
            "perception",
            "action",
            "observation",
            ("tools.visible",),
            "train",
        ),
        _entry(
            see.tool_order, "perception", "action", "observation", ("tools.place",), "held_out"
        ),
        _entry(see.query_rewrite, "perception", "query", "observation", ("phrase",), "held_out"),
        _entry(
            see.query_underspecified,
            "perception",
            "query",
            "observation",
            ("shown",),
            "train",
        ),
        _entry(
            act.runtime_error,
            "interaction",
            "observation",
            "transition",
            ("faults.failures",),
            "train",
            transient=True,
            position="any",
        ),
        _entry(
            act.tool_redirection,
            "interaction",
            "observation",
            "transition",
            _NEW_TOOL,
            "held_out",
            position="any",
        ),
        _entry(
            act.nonstandard_feedback,
            "interaction",
            "observation",
            "observation",
            ("faults.style",),
            "held_out",
            explicit=False,
            position="any",
        ),
        _entry(
            act.tool_removal, "interaction", "action", "action", ("tools.visible",), "held_out"
        ),
        _entry(
            think.dependency_extension, "reasoning", "action", "transition", ("tools",), "held_out"
        ),
        _entry(think.rule_shift, "reasoning", "action", "transition", ("tools",), "held_out"),
        _entry(
            think.logic_inversion,
            "reasoning",
            "action",
            "transition",
            ("tools.code_from",),
            "held_out",
        ),
        _entry(know.domain_transfer, "internalization", "domain", "task", ("",), "held_out"),
        _entry(
            know.entity_shift,
            "internalization",
            "query",
            "task",
            ("constants", "tools.result_low", "tools.result_high"),
            "held_out",
        ),
        _entry(
            know.unsolvable,
            "internalization",
            "action",
            "transition",
            ("tools", "faults.failures"),
            "train",
            solvable=False,
        ),
        _entry(
            know.tool_withheld,
            "internalization",
            "action",
            "action",
            ("tools.visible", "faults.failures"),
            "train",
            solvable=False,
        ),
        _entry(
            know.fatal_error,
            "internalization",
            "observation",
            "transition",
            ("faults.failures",),
            "train",
            position="any",
            solvable=False,
        ),
        _entry(
            know.contradiction,
            "internalization",
            "action",
            "transition",
            ("tools",),
            "train",
            solvable=False,
        ),
    )
    return {entry.name: entry for entry in entries}


CATALOGUE = _catalogue()


def make(name: str, pools: Pools) -> Perturbation:
    """The perturbation of a catalogue entry.

    Raises:
      ValueError: there is no entry of that name.
    """
    if name not in CATALOGUE:
        raise ValueError(
            f'unknown perturbation "{name}"; there are {", ".join(sorted(CATALOGUE))}'
        )
    return CATALOGUE[name].make(pools)
