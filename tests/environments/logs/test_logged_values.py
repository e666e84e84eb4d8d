"""Typed and nested values of a log: in the compiled world, as agents see them, and as
they are exported."""

import json

import jax
import jax.numpy as jnp
import pytest

from openagent_jax.environments.logs import log_values
from openagent_jax.environments.tools import types as types_
from openagent_jax.environments.tools.worlds import domain
from openagent_jax.suites.tasks import Suite
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import reply_scan
from openagent_jax.text import style as forms
from tests import helpers
from tests.environments.logs.examples import (
    build,
    calls,
    result,
    says,
    tool,
    user,
)

LINES = {
    "type": "array",
    "items": {"type": "object", "properties": {"sku": {"type": "string"}, "of": {}}},
}
KINDS = {
    "order": "string",
    "year": "integer",
    "weight": "number",
    "gift": "boolean",
    "rank": "integer",
}
TOOLS = [
    tool("find_order", 'Find an "order"', **KINDS),
    tool("scale", "Set the scale", kilos="number"),
]
PROPERTIES = TOOLS[0]["function"]["parameters"]["properties"]
PROPERTIES["lines"] = LINES
PROPERTIES["year"]["minimum"] = 1990
FOUND = {
    "price": 12.5,
    "stock": 1200,
    "large": 4006381333931,
    "fine": True,
    "none": None,
    "text": "12",
    "said": 'a "b"',
    "items": [{"id": 7, "tags": []}, {"id": "8"}],
}


def arguments(i=0):
    lines = [{"sku": "X", "of": 2}, {"sku": f"Y{i}", "of": "1.50"}]
    given = {"order": f"A-{i}", "year": 2024, "weight": 2.5, "gift": True, "rank": 7}
    return given | {"lines": lines}


def order(i=0):
    return [
        user(f"What is the price of A-{i} of 2024, 2.5 kg, true, 7?"),
        calls(("find_order", arguments(i))),
        result(FOUND),
        says("It is 12.50"),
    ]


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    file = tmp_path_factory.mktemp("log") / "x.jsonl"
    rows = ({"messages": order(i), "tools": TOOLS} for i in range(8))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    room = {"prompt_tokens": 900, "result_tokens": 300, "context_tokens": 2000}
    world = build(file, num_args=9, num_fields=12, num_constants=9, **room)
    names = ("argument_renaming", "tool_redirection", "domain_transfer")
    return Suite(world, names, 3, 2, 1.0, "train")


def types(document):
    properties = document["function"]["parameters"]["properties"]
    return [value["type"] for value in properties.values()]


def called(arguments):
    function = {"name": "find_order", "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"id": "1", "type": "function", "function": function}]}


def written_alike(given):
    leaves = log_values.leaves(given)
    return {path: log_values.text(log_values.value(x)) for path, x in leaves}


def test_the_compiled_world_and_messages_agree(suite):
    """What a policy reads and writes is the JSON of the log, as it is for agents."""
    world = suite.world
    source, tables = world.tables.source.tasks, world.tables
    task = source.task(jnp.int32(0), jnp.zeros(2), domain.TRAIN)
    texts, style = lexicons.texts(tables.lexicon), tables.lexicon.style
    call = types_.ToolCall(jnp.int32(0), task.facts.args[0], jnp.int32(-1))
    action = types_.Action(jnp.int32(reply_scan.CALL), call, jnp.int32(-1))
    ok, none = jnp.int32(forms.OK), jnp.int32(-1)
    result = types_.ToolResult(
        status=ok,
        tool=jnp.int32(0),
        values=task.facts.values[0],
        code=none,
        target=none,
        wait=jnp.int32(0),
        blank=jnp.bool_(False),
        wording=jnp.int32(0),
        bare=task.facts.bare[0],
    )

    @jax.jit
    def written(tables, task):
        environment = world.environment
        return (
            environment.prompt(tables, task),
            environment.utterance(tables, task, action),
            environment.observe(tables, task, result),
            world.transcriber.observe(task, result),
        )

    *pieces, shown = jax.device_get(written(tables, task))
    prompt, said, read = ("".join(texts[x] for x in row) for row in pieces)
    # The compact style writes all values of a call with quotes.
    given = json.loads(said.removesuffix(texts[style.end]))["arguments"]
    assert written_alike(given) == written_alike(arguments())
    read = read.removeprefix(texts[style.tool_open])
    read = read.removesuffix(texts[style.tool_close])
    assert read == json.dumps(FOUND, separators=(",", ":"))
    assert '"description":"Find an \\"order\\""' in prompt
    assert '"year: integer; at least 1990"' in prompt
    # The same by messages.
    task, action = helpers.host((task, action))
    (made,) = world.transcriber.message(task, action)["tool_calls"]
    assert made["function"]["arguments"] == arguments()
    assert world.transcriber.shown(shown) == ("tool", read)
    assert world.transcriber.tools(task) == TOOLS


@pytest.mark.slow
def test_agents_see_and_give_the_types_of_the_log(suite):
    clean, *_ = suite.episodes()
    ours, (plan, _) = clean.begin(), clean.facts["plan"]
    assert ours.tools == TOOLS
    i = int(plan["arguments"]["order"].removeprefix("A-"))
    assert plan["arguments"] == arguments(i)
    ours.receive(called(plan["arguments"]))
    assert json.loads(ours.results[0]) == FOUND and ours.outcome.num_errors == 0
    assert ours.actions == [plan]  # as it was written
    ours.receive({"content": "Answer: 12.50"})
    assert ours.outcome.success
    # Other spellings of the same values, and another order of keys.
    again = clean.begin()
    given = {**dict(reversed(plan["arguments"].items())), "year": 2024.0, "rank": "7"}
    again.receive(called(given))
    assert again.outcome.num_errors == 0
    again.receive(called(given | {"rank": 7.5}))
    again.receive(called(given | {"lines": given["lines"][:1]}))
    assert again.outcome.num_errors == 2


@pytest.mark.slow
def test_types_of_perturbed_tasks(suite):
    for episode in suite.episodes():
        ours = episode.begin()
        if episode.scenario == "domain_transfer":  # not of this log
            assert set(sum(map(types, ours.tools), [])) <= {"string", "integer"}
        elif episode.facts["changed"]:
            assert sorted(map(types, ours.tools)) == sorted(map(types, TOOLS))
        if episode.scenario == "argument_renaming":
            for action in episode.facts["plan"][:-1]:
                ours.receive(called(action["arguments"]))
            assert ours.outcome.num_errors == 0
            assert json.loads(ours.results[-1]) == FOUND
        if episode.scenario == "tool_redirection":
            plan = episode.facts["plan"]
            for action in plan[:-1]:
                function = {
                    "name": action["name"],
                    "arguments": json.dumps(action["arguments"]),
                }
                ours.receive({"tool_calls": [{"id": "1", "function": function}]})
            if ours.outcome.num_errors:
                assert types(ours.tools[-1]) == types(TOOLS[0])
                assert json.loads(ours.results[-1]) == FOUND
