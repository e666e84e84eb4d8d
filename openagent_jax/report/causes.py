"""Why an episode failed, worked out from what was kept of it.

The oracle's plan says which calls solve the task. What counts is the first step of this
plan that the agent never did: the cause is what it did there instead. An agent that
strays and comes back is therefore not blamed for the detour, nor one that does the
steps in another order, repeats one, or turns at once to the tool that the oracle only
finds after another has failed. The plan is one way of several to solve a task, so a
cause is a reading of the episode and not a measurement.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

Cause = Literal[
    "",  # it did not fail
    "tool",
    "names",
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
        "It called a tool of which the rest of the oracle's plan makes no use, or that "
        "does not exist.",
    ),
    "names": (
        "wrong argument names",
        "It called the right tool, but left out an argument that the oracle gives, or "
        "gave one that the oracle does not.",
    ),
    "arguments": (
        "wrong values",
        "It called the right tool with the right argument names, but with other values "
        "than the oracle.",
    ),
    "order": (
        "wrong order",
        "It left out a step of the plan, and went on to a later one.",
    ),
    "feedback": (
        "ignored feedback",
        "A tool had answered, and it went on regardless, where the oracle acts on the "
        "answer: it calls again after an error, or turns to the tool that takes over. "
        "Or it only repeated what it had done.",
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
      line: an episode, with the keys that `trajectories` describes. What is missing
        or of another type, as damaged files may have it, is taken for unknown.

    >>> plan = [{"name": "find", "arguments": {"city": "Rome"}}, {"text": "Answer: 4"}]
    >>> did = [{"name": "find", "arguments": {"city": "Bonn"}}, {"text": "Answer: 7"}]
    >>> line = {"success": False, "failure": "wrong_answer", "solvable": True}
    >>> why(line | {"plan": plan, "actions": did}).cause
    'arguments'
    """
    failure = line.get("failure", "")
    if line.get("success") or not failure or not isinstance(failure, str):
        return Why("")
    if failure == "unanswered":
        return Why("unanswered")
    actions = items(line, "actions")
    whole = items(line, "plan")
    if not line.get("solvable", True):  # it went on where the oracle refuses
        reads, _ = _match([x for x in whole if _kind(x) == "call"], actions)
        turn = min(max(reads.values(), default=-1) + 1, len(actions) - 1)
        return Why("not_refused", turn if actions else None)
    steps = [i for i, x in enumerate(whole) if _kind(x) in ("call", "ask")]
    steps = [i for i in steps if not _spared(line, whole, i, actions)]
    plan = [whole[i] for i in steps]
    matched, missing = _match(plan, actions)
    if failure == "false_refusal":
        step = None if missing is None else steps[missing]
        return Why("refused", len(actions) - 1 if actions else None, step)
    if not plan or missing is None:
        return _all_done(line, plan, actions, matched)
    first = max((matched[i] for i in range(missing)), default=-1) + 1
    turns = [i for i in range(first, len(actions)) if not _asks(actions[i])]
    fits = _fitting(plan, actions)
    strays = [i for i in turns if not fits[i]]
    where = steps[missing]
    if _kind(plan[missing]) == "ask":
        return Why("not_asked", next(iter(strays or turns), None), where)
    if not turns:
        return Why(_ENDED.get(failure, "gave_up"), None, where)
    turn = turns[0]
    if strays and not _reacts(line, whole, where):
        turn = strays[0]
        later = [_call(x) for x in plan[missing + 1 :]]
        ahead = [i for i in turns if _call(actions[i]) in later]
        if ahead and _ends(actions[turn]) and line.get("num_errors", 1):
            turn = ahead[0]  # an error may have come of the order
    if _instead(line, whole, where, actions, turn) in ("tool", "format"):
        name = _call(whole[where])[0]  # a detour, if it came back to the right tool
        turn = next((i for i in turns if _call(actions[i])[0] == name), turn)
    return Why(_instead(line, whole, where, actions, turn), turn, where)


def _fitting(plan: Sequence[Any], actions: Sequence[Any]) -> list[bool]:
    """Tell which actions are steps of a plan in any order, or repeat one once."""
    planned, done = Counter(map(str, map(_call, plan))), Counter()
    found = []
    for call in map(str, map(_call, actions)):
        found.append(0 < planned[call] >= done[call])
        done[call] += 1
    return found


def _instead(
    line: Mapping[str, Any],
    plan: Sequence[Any],
    missing: int,
    actions: Sequence[Any],
    turn: int,
) -> Cause:
    """Return the cause of failure, from the action in the place of a missing step."""
    step, action = plan[missing], actions[turn]
    if _kind(action) == "answer":
        return "gave_up"
    if _kind(action) == "refuse":
        return "refused"
    if _kind(action) == "text":
        return "format" if _unreadable(line, turn) else "tool"
    earlier = [_call(x) for x in plan[:missing]]
    (name, _), (wanted, _) = _call(action), _call(step)
    if _reacts(line, plan, missing) and name != wanted:
        return "feedback"
    if _call(action) in earlier:
        return "feedback"
    if name == wanted:
        same = {*_arguments(action)} == {*_arguments(step)}
        return "arguments" if same else "names"
    later = [_call(x)[0] for x in plan[missing + 1 :] if _kind(x) == "call"]
    return "order" if name in later else "tool"


def _reacts(line: Mapping[str, Any], plan: Sequence[Any], number: int) -> bool:
    """Tell whether a step acts on an answer: on an error, or one that names a tool."""
    step, tools = plan[number], _tools(line)
    again = _call(step) in [_call(x) for x in plan[:number]]
    told = bool(tools) and _call(step)[0] not in tools
    return again or told or _replaces(line, plan, number)


def _replaces(line: Mapping[str, Any], plan: Sequence[Any], number: int) -> bool:
    """Tell whether a step repeats the call before it with an equally described tool."""
    if number < 1 or {_kind(x) for x in plan[number - 1 : number + 1]} != {"call"}:
        return False
    (old, *given), (new, *wanted) = map(_call, plan[number - 1 : number + 1])
    documents = _tools(line)
    return (
        old != new
        and given == wanted
        and documents.get(old, old) == documents.get(new, new)
    )


def _spared(
    line: Mapping[str, Any], plan: Sequence[Any], number: int, actions: Sequence[Any]
) -> bool:
    """Tell whether an agent did without a step because it took the better tool."""
    if number + 1 >= len(plan) or not _replaces(line, plan, number + 1):
        return False
    did = [_call(x) for x in actions]
    return _call(plan[number]) not in did and _call(plan[number + 1]) in did


def _tools(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the documentation of the tools, without their names, by name."""
    found = [x.get("function") for x in items(line, "tools") if isinstance(x, Mapping)]
    return {
        str(x["name"]): {key: text for key, text in x.items() if key != "name"}
        for x in found
        if isinstance(x, Mapping) and "name" in x
    }


def _all_done(
    line: Mapping[str, Any],
    plan: Sequence[Any],
    actions: Sequence[Any],
    matched: Mapping[int, int],
) -> Why:
    """Return why an episode failed although it has every call of the plan."""
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


def _ends(action: Any) -> bool:
    return _kind(action) in ("answer", "refuse")


def _arguments(action: Mapping[str, Any]) -> Mapping[str, Any]:
    found = action.get("arguments")
    return found if isinstance(found, Mapping) else {}


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
    rewards = line.get("rewards")
    paid = items(rewards, "format") if isinstance(rewards, Mapping) else []
    if turn < len(paid) and isinstance(paid[turn], (int, float)):
        return paid[turn] > 0
    return _kind(items(line, "actions")[turn]) == "text"


def items(line: Mapping[str, Any], key: str) -> list[Any]:
    """Return a list of an episode; an empty one if there is none."""
    found = line.get(key)
    return list(found) if isinstance(found, (list, tuple)) else []
