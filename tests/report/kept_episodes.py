"""Evaluations with kept episodes, for the tests of the viewer."""

import json

from openagent_jax.report import trajectories

SYSTEM = {"role": "system", "content": "You use tools to do what the user asks for."}
PLACES = "Bronze Anchor", "Velvet Anchor", "Walnut Park", "Chapel Yard", "Marble Gate"


def tool(name, description, **parameters):
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": [*parameters]}
    function = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


SEATS = tool("count_seats", "free seats at a place", place="string", hour="integer")
TABLE = tool("reserve_table", "table booking at a place", place="string", code="string")
MINUTES = tool("walking_minutes", "walking minutes from a station", station="string")
TRAP = tool("sell_table", "table booking at a place", spot="string", code="string")


def call(name, **arguments):
    return {"name": name, "arguments": arguments}


def line(index, calls, answer="Answer: 78", **fields):
    """Make an episode from pairs of a call and its result, and the last reply."""
    place = PLACES[index % len(PLACES)]
    request = fields.pop("request", f"Book a table at {place}, hour {index % 24}.")
    messages = [SYSTEM, {"role": "user", "content": request}]
    for number, (made, result) in enumerate(calls):
        number = f"call{number:05d}"
        called = {"id": number, "type": "function", "function": made}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": number, "content": result},
        ]
    messages.append({"role": "assistant", "content": answer})
    actions = [made for made, _ in calls] + [{"text": answer}]
    failure = fields.get("failure", "")
    turns = len(actions)
    return {
        "scenario": "clean",
        "index": index,
        "task_key": [index, 7],
        "task": index,
        "phrasing": index,
        "success": not failure,
        "solvable": True,
        "refused": False,
        "num_calls": len(calls),
        "num_errors": sum("error" in result for _, result in calls),
        "num_questions": 0,
        "num_needless_questions": 0,
        "fewest_calls": 2,
        "changed": True,
        "answered": True,
        "failure": "",
        "unsolvable": "",
        "tools": [SEATS, TABLE, MINUTES],
        "messages": messages,
        "actions": actions,
        "results": [result for _, result in calls] + [None],
        "rewards": {
            "progress": [0.5] * len(calls) + [0.0],
            "outcome": [0.0] * len(calls) + [float(not failure)],
            "format": [0.0] * turns,
        },
        "plan": actions,
        **fields,
    }


def solved(index, seats="count_seats", table="reserve_table", key="place", **fields):
    place = PLACES[index % len(PLACES)]
    calls = [
        (call(seats, place=place, hour=index % 24), '{"seats":"182","code":"cuq5"}'),
        (call(table, **{key: place}, code="cuq5"), '{"booking":"78"}'),
    ]
    return line(index, calls, **fields)


def failed(index, **fields):
    """The last call of `solved` fails, and the agent gives up."""
    done = solved(index)
    calls = [
        (done["actions"][0], '{"seats":"182","code":"cuq5"}'),
        (done["actions"][1], '{"error":"failed, try again"}'),
        (done["actions"][0], '{"seats":"182","code":"cuq5"}'),
    ]
    plan = [*done["actions"][:2], *done["actions"][1:]]  # the oracle tries again
    fields = {"failure": "wrong_answer", "plan": plan} | fields
    return line(index, calls, "Answer: 12", **fields)


def trapped(index, **fields):
    """A tool and an argument have other names; in every fourth task it gives another
    result."""
    made = solved(index, table="sell_table", key="spot")
    for message in made["messages"]:
        for called in message.get("tool_calls", []):  # as remote agents send them
            function = called["function"]
            called["function"] = function | {
                "arguments": json.dumps(function["arguments"])
            }
    if index % 4 == 3:
        made["messages"][5]["content"] = '{"booking":"13"}'
    return made | {"tools": [MINUTES, SEATS, TRAP], **fields}


def unsolvable(index, **fields):
    fields = {"success": True, "solvable": False, "refused": True} | fields
    fields |= {"unsolvable": "missing_tool", "tools": [SEATS, MINUTES], "plan": []}
    return line(index, [], "Refuse", fewest_calls=0, **fields)


def evaluation(folder, num=4, fails=lambda index: index % 2):
    """Write the episodes of four scenarios; return the folder."""
    made = {
        "clean": map(solved, range(num)),
        "runtime_error": ((failed if fails(i) else solved)(i) for i in range(num)),
        "semantic_trap": map(trapped, range(num)),
        "unsolvable": map(unsolvable, range(num)),
    }
    for name, lines in made.items():
        lines = (line | {"scenario": name} for line in lines)
        trajectories.write(folder / trajectories.FOLDER, name, lines)
    return folder
