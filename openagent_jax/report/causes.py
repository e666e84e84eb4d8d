"""Why an episode failed, worked out from what was kept of it.

The oracle's plan says which calls solve the task. What counts is the first step of this
plan that the agent never did: the cause is what it did there instead. An agent that
strays and comes back is therefore not blamed for the detour. The plan is one way of
several to solve a task, so a cause is a reading of the episode and not a measurement.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

Cause = Literal[
    "",  # it did not fail
    "tool",
    "arguments",
    "order",
    "feedback",
    "not_asked",
    "gave_up",
    "refused",
    "not_refused",
    "answer",
    "format",
    "turns",
    "context",
    "unanswered",
]
CAUSES: tuple[Cause, ...] = get_args(Cause)[1:]
MEANINGS: dict[str, tuple[str, str]] = {  # a label, and what it stands for
    "tool": (
        "wrong tool",
        "It called a tool that the oracle's plan does not use, or that does not exist.",
    ),
    "arguments": (
        "wrong arguments",
        "It called the right tool, but with other arguments than the oracle.",
    ),
    "order": (
        "wrong order",
        "It went on to a later step of the plan without doing this one first.",
    ),
    "feedback": (
        "ignored feedback",
        "A tool had answered, and it repeated a call or went on regardless, where the "
        "oracle acts on the answer: it calls again after an error, turns to the tool "
        "that takes over, or goes on.",
    ),
    "not_asked": (
        "did not ask",
        "The request leaves out a value, and it went on without asking the user.",
    ),
    "gave_up": ("gave up", "It answered before the steps of the plan were done."),
    "refused": ("refused wrongly", "It refused a task that can be solved."),
    "not_refused": (
        "did not refuse",
        "It did not refuse a task that cannot be solved.",
    ),
    "answer": (
        "wrong answer",
        "It did every step of the plan, and then answered something else, or had "
        "changed something that nobody asked for.",
    ),
    "format": (
        "unreadable reply",
        "Its reply was neither a call, nor an answer, a question or a refusal.",
    ),
    "turns": ("ran out of turns", "The turns ended, and nothing else explains why."),
    "context": (
        "ran out of context",
        "The context was full, and nothing else explains why.",
    ),
    "unanswered": (
        "never answered",
        "A reply of the remote agent never came; this is not counted as a failure.",
    ),
}
_ENDED: dict[str, Cause] = {"out_of_turns": "turns", "out_of_context": "context"}
_ANSWER, _REFUSE, _ASK = "answer:", "refuse", "ask"  # how such replies begin


class Why(NamedTuple):
    """Why an episode failed, and where it shows."""

    cause: Cause
    turn: int | None = None  # index of the action that left the plan
    step: int | None = None  # index of the step of the plan that was never done


def why(line: Mapping[str, Any]) -> Why:
    """Return why an episode failed.

    Args:
      line: an episode, with the keys that `trajectories` describes. What is
        missing is taken for unknown.

    >>> plan = [{"name": "find", "arguments": {"city": "Rome"}}, {"text": "Answer: 4"}]
    >>> did = [{"name": "find", "arguments": {"city": "Bonn"}}, {"text": "Answer: 7"}]
    >>> line = {"success": False, "failure": "wrong_answer", "solvable": True}
    >>> why(line | {"plan": plan, "actions": did}).cause
    'arguments'
    """
    failure = line.get("failure", "")
    if line.get("success") or not failure:
        return Why("")
    if failure == "unanswered":
        return Why("unanswered")
    actions: Sequence[Any] = line.get("actions") or ()
    if not line.get("solvable", True):
        return Why("not_refused", len(actions) - 1 if actions else None)
    if failure == "false_refusal":
        return Why("refused", len(actions) - 1 if actions else None)
    plan = [x for x in line.get("plan") or () if _kind(x) in ("call", "ask")]
    matched, missing = _match(plan, actions)
    if not plan or missing is None:
        return _all_done(line, plan, actions, matched)
    where = line.get("plan", []).index(plan[missing])
    before = [matched[i] for i in range(missing)]
    first = max(before, default=-1) + 1
    turn = next((i for i in range(first, len(actions)) if not _asks(actions[i])), None)
    if _kind(plan[missing]) == "ask":
        return Why("not_asked", turn, where)
    if turn is None:
        return Why(_ENDED.get(failure, "gave_up"), None, where)
    return Why(_instead(line, plan, missing, actions, turn), turn, where)


def _instead(
    line: Mapping[str, Any],
    plan: Sequence[Any],
    missing: int,
    actions: Sequence[Any],
    turn: int,
) -> Cause:
    """Name what an action is that stands where a step of the plan should."""
    step, action = plan[missing], actions[turn]
    if _kind(action) == "answer":
        return "gave_up"
    if _kind(action) == "refuse":
        return "refused"
    if _kind(action) == "text":
        return "format" if _unreadable(line, turn) else "tool"
    earlier = [_call(x) for x in plan[:missing]]
    offered = {x.get("function", {}).get("name") for x in line.get("tools") or ()}
    told = bool(offered) and step["name"] not in offered  # only a message names it
    if _call(step) in earlier or _call(action) in earlier or told:
        return "feedback"
    if action["name"] == step["name"]:
        return "arguments"
    later = {x.get("name") for x in plan[missing + 1 :]}
    return "order" if action["name"] in later else "tool"


def _all_done(
    line: Mapping[str, Any],
    plan: Sequence[Any],
    actions: Sequence[Any],
    matched: Mapping[int, int],
) -> Why:
    """Return why an episode failed that has every call of the plan, if there is one."""
    failure, last = line["failure"], len(actions) - 1 if actions else None
    in_order = list(matched.values()) == sorted(matched.values())
    if plan and not in_order and line.get("num_errors"):
        return Why("order", next(iter(matched.values())))
    if failure not in _ENDED:
        return Why("answer", last)
    unread = [i for i in range(len(actions)) if _unreadable(line, i)]
    if plan and unread and unread[-1] > max(matched.values(), default=-1):
        return Why("format", unread[0])
    return Why(_ENDED[failure], last)


def _match(
    plan: Sequence[Any], actions: Sequence[Any]
) -> tuple[dict[int, int], int | None]:
    """Find the action that does each step of a plan.

    A step is done by the first such action after the one before it, or else by any.

    Returns:
      The actions by the number of their step, and the first step without one.
    """
    free = [i for i, x in enumerate(actions) if _kind(x) in ("call", "ask")]
    matched: dict[int, int] = {}
    for number, step in enumerate(plan):
        same = [i for i in free if _call(actions[i]) == _call(step)]
        after = [i for i in same if i > matched.get(number - 1, -1)]
        if not same:
            return matched, number
        matched[number] = (after or same)[0]
        free.remove(matched[number])
    return matched, None


def _kind(action: Any) -> str:
    """Return what an action is: call, answer, refuse, ask, or text."""
    if not isinstance(action, Mapping):
        return "text"
    if "name" in action:
        return "call"
    text = str(action.get("text", "")).strip().lower()
    kinds = {_ANSWER: "answer", _REFUSE: "refuse", _ASK: "ask"}
    return next(
        (kind for begin, kind in kinds.items() if text.startswith(begin)), "text"
    )


def _asks(action: Any) -> bool:
    return _kind(action) == "ask"


def _call(action: Any) -> tuple[str, Any]:
    """Return a call so that equal ones compare equal: 4 and "4" are one value."""
    if _kind(action) != "call":
        return _kind(action), ()
    arguments = action.get("arguments")
    if not isinstance(arguments, Mapping):
        return str(action["name"]), str(arguments)
    return str(action["name"]), sorted((k, str(x)) for k, x in arguments.items())


def _unreadable(line: Mapping[str, Any], turn: int) -> bool:
    """Tell whether a reply could not be read, as the environment says if it does."""
    paid = (line.get("rewards") or {}).get("format")
    if paid and turn < len(paid):
        return paid[turn] > 0
    return _kind(line["actions"][turn]) == "text"
