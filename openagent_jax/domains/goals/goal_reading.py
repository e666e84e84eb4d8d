"""Read a goal of a domain file: its constants, its steps, its answer and its phrases.

What steps pass on has to be of the right type and come from an earlier step, each step
has to be of use, and phrases have to name each constant (see `domain_file.py`).
"""

import itertools
import re
from typing import Any

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains import domain_tables, nested_arguments
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import DONE, GoalSpec, needs_before
from openagent_jax.domains.goals import goal_conditions, phrase_syntax


def read(item: Any, place: str, in_order: bool, check: Checker) -> GoalSpec | None:
    """Return a goal; None if the item does not have the structure of one.

    Args:
      item: the entry of the file.
      place: where it is in the file.
      in_order: whether it is known in which order tools can be called.
      check: has the types and the tools, and collects the faults.
    """
    if (goal := schema.parse(schema.Goal, item, place, check)) is None:
        return None
    check.unused([goal.name], check.used["goal"], f"{place}.name")
    constants = check.fields(goal.constants, f"{place}.constants")
    sources = _check_sources(goal, place, check)
    for slot in goal.constants if sources else ():
        message = "used by no step; use it or remove it"
        check.require(f"${slot}" in sources, f"{place}.constants.{slot}", message)
    steps = tuple((step.tool, step.arguments) for step in goal.steps)
    conditions = goal_conditions.read(goal.steps, place, check)
    if sources and in_order:
        _check_steps([name for name, _ in steps], place, sources, check)
    if sources:
        domain_tables.check_goal(steps, place, check)
    phrases = check.texts(goal.phrases, check.used["phrase"], f"{place}.phrases")
    slots = [f"{{{slot}}}" for slot in goal.constants]
    for pool, texts in phrases.items():
        for index, text in enumerate(texts):
            written = re.findall(r"[{}][^{}]*}?", text)
            at = f"{place}.phrases.{pool}[{index}]"
            own = [part for part in written if "|" not in part]
            check.names(own, slots, at, "slot")
            for fault in phrase_syntax.faults(text):
                check.require("|" not in text, at, fault)
            num = len(phrase_syntax.parse(text))
            limit = check.limits.num_phrase_pieces
            message = f"{num} slots and texts between them; write at most {limit}"
            check.require(num <= limit, at, message)
    return GoalSpec(goal.name, constants, steps, goal.answer, phrases, conditions)


def _check_sources(goal: schema.Goal, place: str, check: Checker) -> list[str]:
    """Check the arguments of the steps, and the answer.

    Returns:
      The sources that these read; none if a tool is unknown or has faults.
    """
    types = {f"${slot}": type_name for slot, type_name in goal.constants.items()}
    sources = []
    for index, step in enumerate(goal.steps):
        at = f"{place}.steps[{index}]"
        if "tools" not in check.unreadable:
            check.known(step.tool, check.tools, f"{at}.tool", "unknown tool")
        if (tool := check.tools.get(step.tool)) is None:
            return []
        wanted, at = dict(tool.arguments), f"{at}.arguments"
        check.names(step.arguments, wanted, at, "argument", tool.optional)
        for path in nested_arguments.missing(step.arguments, tool.gates):
            message = f"missing argument {path!r}, which goes with others; add it"
            check.require(path not in tool.optional, at, message)
        for name, source in step.arguments.items():
            known = check.known(source, types, f"{at}.{name}", "unknown source")
            if known and name in wanted:
                message = f"{source} is of type {types[source]!r}"
                kinds = wanted[name], *tool.also.get(name, ())
                message += f"; give one of type {' or '.join(map(repr, kinds))}"
                check.require(types[source] in kinds, f"{at}.{name}", message)
            sources.append(source)
        if step.when is not None:
            at = f"{place}.steps[{index}].when"
            sources += goal_conditions.check_sources(step.when, types, at, check)
        types |= goal_conditions.usable(step, index, tool)
    answers = [DONE, *(source for source in types if source[0] == "#")]
    check.known(goal.answer, answers, f"{place}.answer", "unknown source")
    return [*sources, goal.answer]


def _check_steps(
    steps: list[str], place: str, sources: list[str], check: Checker
) -> None:
    """Check that what a step needs comes before it, and that no step is useless."""
    tools = {name: tool for name, tool in check.tools.items() if tool}
    needs = [needs_before(tools, steps, name) for name in steps]
    needed = set(itertools.chain(*needs))
    for index, name in enumerate(steps):
        at = f"{place}.steps[{index}]"
        for need in needs[index]:
            message = f"{name!r} needs {need!r}, a later step; move it"
            check.require(need not in steps[index:], at, message)
            message = f"{name!r} needs {need!r}, which takes arguments; make it a step"
            check.require(need in steps or not tools[need].arguments, at, message)
        useful = any(source.startswith(f"#{index}.") for source in sources)
        useful = useful or tools[name].effect or name in needed
        message = f"nothing uses {name!r}; use its result or remove it"
        check.require(useful, at, message)
