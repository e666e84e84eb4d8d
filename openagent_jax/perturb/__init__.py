"""Perturbations of tasks: the algebra, the entries, and their catalogue."""

from openagent_jax.perturb import interaction, internalization, perception, reasoning
from openagent_jax.perturb.base import (
    Entry,
    Perturbation,
    Pools,
    SomePools,
    batched,
    chain,
    drawn,
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
    "SomePools",
    "batched",
    "chain",
    "drawn",
    "equal",
    "identity",
    "make",
    "on_trajectory",
    "one_of",
    "sometimes",
]


def _catalogue() -> dict[str, Entry]:
    see, act, think, know = perception, interaction, reasoning, internalization
    name, tools, failures = "tools.name", "tools", "faults.failures"
    visible, code_from = "tools.visible", "tools.code_from"
    ranges = ("constants", "tools.result_low", "tools.result_high")
    # Factory, shift, part of the POMDP, family, what it touches, other claims.
    tiers = {
        "perception": (
            (see.identity_erasure, "action", "observation", "train", (name,)),
            (see.semantic_trap, "action", "observation", "train", (name,)),
            (see.semantic_renaming, "action", "observation", "held_out", (name,)),
            (
                see.argument_renaming,
                "action",
                "observation",
                "held_out",
                ("tools.arg_name",),
            ),
            (
                see.description_rewrite,
                "action",
                "observation",
                "held_out",
                ("tools.description",),
            ),
            (see.distractor_tools, "action", "observation", "train", (visible,)),
            (see.tool_order, "action", "observation", "held_out", ("tools.place",)),
            (see.query_rewrite, "query", "observation", "held_out", ("phrase",)),
            (see.query_underspecified, "query", "observation", "train", ("shown",)),
        ),
        "interaction": (
            (
                act.runtime_error,
                "observation",
                "transition",
                "train",
                (failures,),
                dict(transient=True, position="any"),
            ),
            (
                act.tool_redirection,
                "observation",
                "transition",
                "held_out",
                (tools, "faults"),
                dict(position="any"),
            ),
            (
                act.nonstandard_feedback,
                "observation",
                "observation",
                "held_out",
                ("faults.style",),
                dict(explicit=False, position="any"),
            ),
            (act.tool_removal, "action", "action", "held_out", (visible,)),
        ),
        "reasoning": (
            (think.dependency_extension, "action", "transition", "held_out", (tools,)),
            (think.rule_shift, "action", "transition", "held_out", (tools,)),
            (think.logic_inversion, "action", "transition", "held_out", (code_from,)),
        ),
        "internalization": (
            (know.domain_transfer, "domain", "task", "held_out", ("",)),
            (know.entity_shift, "query", "task", "held_out", ranges),
            *(
                (make, "action", "transition", "train", touches, dict(solvable=False))
                for make, touches in (
                    (know.unsolvable, (tools, failures)),
                    (know.tool_withheld, (visible, failures)),
                    (know.fatal_error, (failures,)),
                    (know.contradiction, (tools,)),
                )
            ),
        ),
    }
    claims = dict(explicit=True, transient=False, position="start", solvable=True)
    return {
        make.__name__: Entry(
            name=make.__name__,
            make=make,
            tier=tier,
            shift=shift,
            part=part,
            family=family,
            touches=touches,
            **{**claims, **dict(*others)},
        )
        for tier, rows in tiers.items()
        for make, shift, part, family, touches, *others in rows
    }


CATALOGUE = _catalogue()


def make(name: str, pools: SomePools) -> Perturbation:
    """The perturbation of a catalogue entry.

    Raises:
      ValueError: there is no entry of that name.
    """
    if name not in CATALOGUE:
        raise ValueError(
            f'unknown perturbation "{name}"; there are {", ".join(sorted(CATALOGUE))}'
        )
    entry = CATALOGUE[name]
    if callable(pools):
        return lambda key, task, strength: entry.make(pools(task))(key, task, strength)
    return entry.make(pools)
