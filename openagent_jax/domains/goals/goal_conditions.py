"""Read the conditions of steps: calls that are only wanted if a result fits.

    {"tool": "book", "arguments": {"inn": "#0.inn"},
     "when": {"value": "#0.price", "at_most": "$limit"}}

A condition compares a result of an earlier step: numbers with `at_most` or `at_least`,
all values with `equals`. A step with a condition has an effect, which is a wrong effect
if the condition does not hold. No other step uses its result or needs it, since it may
not exist.
"""

from collections.abc import Mapping, Sequence

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains import result_reading
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import (
    COMPARISONS,
    Condition,
    ToolSpec,
    needs_before,
)


def read(
    steps: Sequence[schema.Step], place: str, check: Checker
) -> dict[int, Condition]:
    """Return the conditions of the steps of a goal, by their index."""
    found = {}
    tools = {name: tool for name, tool in check.tools.items() if tool}
    names = [step.tool for step in steps]
    for index, step in enumerate(steps):
        if step.when is None or step.tool not in tools:
            continue
        at = f"{place}.steps[{index}].when"
        message = "conditions are off; set sandbox.conditions=True"
        check.require(check.limits.conditions, at, message)
        message = (
            f"{step.tool!r} has no effect, so it may be called anyway; remove the "
        )
        check.require(tools[step.tool].effect, at, f"{message}condition")
        for later in names[index + 1 :]:
            needs = needs_before(tools, [], later) if later in tools else []
            message = f"{later!r} needs {step.tool!r}, which may not be called; remove "
            check.require(step.tool not in needs, at, f"{message}the condition")
        limits = {x: y for x in COMPARISONS if (y := getattr(step.when, x)) is not None}
        message = f"{len(limits)} comparisons; write one of {', '.join(COMPARISONS)}"
        if check.require(len(limits) == 1, at, message):
            ((comparison, limit),) = limits.items()
            found[index] = Condition(step.when.value, comparison, limit)
    return found


def usable(step: schema.Step, index: int, tool: ToolSpec) -> dict[str, str]:
    """Return the results of a step that later ones may use, with their types."""
    if step.when is not None:
        return {}
    absent = {*result_reading.optional(tool.lists)}
    if tool.pages is not None:
        absent.add(tool.pages.next)
    used = [(name, kind) for name, kind in tool.values if name not in absent]
    return {f"#{index}.{name}": kind for name, kind in used}


def check_sources(
    when: schema.When, types: Mapping[str, str], place: str, check: Checker
) -> list[str]:
    """Check the sources of a condition, and return them.

    Args:
      when: the condition.
      types: the types of the sources that its step may use.
      place: where it is in the file.
      check: collects the faults.
    """
    results = {source: kind for source, kind in types.items() if source[0] == "#"}
    if not check.known(when.value, results, f"{place}.value", "unknown source"):
        return [when.value]
    kind = types[when.value]
    known = check.types.get(kind)
    found = [when.value]
    for comparison in COMPARISONS:
        if (limit := getattr(when, comparison)) is None:
            continue
        at = f"{place}.{comparison}"
        found.append(limit)
        if check.known(limit, types, at, "unknown source"):
            message = f"{limit} is of type {types[limit]!r}; give one of type {kind!r}"
            check.require(types[limit] == kind, at, message)
        if known is not None and known.kind != "number":
            message = f"{when.value} is not a number; compare it with equals"
            check.require(comparison == "equals", at, message)
    return found
