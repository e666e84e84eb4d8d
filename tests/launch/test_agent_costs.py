"""What `launch.evaluate --agent` is asked to spend, and says that it has spent."""

import json

import pytest

from openagent_jax import report
from openagent_jax.text import messages
from tests import pages, scripted
from tests.launch.test_agent_command import BASE, OPENAI, lines, refuse

pytest.importorskip("openai")


def run(commands, server, workdir, *more, scenarios):
    return commands(
        "evaluate",
        "--agent=openai",
        f"--base_url={server.base_url}",
        "--model=acme/one",
        "--suite=poi",
        f"--workdir={workdir}",
        BASE,
        "--config.eval.num_tasks=12",
        f"--config.eval.scenarios={scenarios!r}",
        *more,
    )


@pytest.mark.slow
def test_unchanged_tasks_are_not_played_again(commands, tmp_path):
    """At half strength, about half of the tasks are as they were."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Answer in one line.\n")
    arguments = [f"--system_prompt={prompt}", "--price_in=2", "--price_out=8"]
    arguments += ["--config.eval.strength=0.5"]
    with scripted.server(refuse) as server:
        done = run(commands, server, tmp_path, *arguments, scenarios=("runtime_error",))
        assert done.code == 0, done.err
        num = len(server.requests)
        # The prompt belongs to what is evaluated.
        other = run(
            commands, server, tmp_path, *arguments[1:], scenarios=("runtime_error",)
        )
        assert other.code == 1 and len(server.requests) == num
        assert "system_prompt was 'Answer in one line.' and is now None" in other.err
        for *_, body in server.requests:
            first, second = body["messages"][:2]
            assert first == {"role": "system", "content": "Answer in one line."}
            assert second["role"] == "user"
    made = report.load(tmp_path)
    cost, row = made["cost"], made["rows"][1]
    assert made["system_prompt"] == "Answer in one line."
    assert cost["episodes"] == cost["requests"] == num == 24 - cost["reused"]
    assert 12 < num < 24 and cost["reused"] == row["reused"] == 12 - row["n"]
    assert cost["completion_tokens"] == 2 * num and cost["latency_p95"] > 0
    assert cost["price"] == pytest.approx((2 * 5 + 8 * 2) * num / 1e6)
    assert done.out.startswith(f"about {num} episodes, ")
    assert f"cost: {report.spent(cost)}\n" in done.out
    page = (tmp_path / "eval" / "0" / "report.md").read_text()
    assert f"Cost: {report.spent(cost)}." in page
    _, *episodes = lines(tmp_path)
    assert len(episodes) == num and all(e["changed"] for e in episodes)
    kept = tmp_path / "eval" / "0" / "trajectories" / "runtime_error.jsonl"
    kept = [json.loads(line) for line in kept.read_text().splitlines()]
    assert len(kept) == 12
    assert sum(line.get("reused", False) for line in kept) == cost["reused"]


def test_built_in_prompt_is_that_of_the_page():
    _, *blocks = pages.page("own_agent.md").split("```text\n")
    blocks = [block.split("```")[0] for block in blocks]
    assert messages.SYSTEM in [" ".join(block.split()) for block in blocks]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*OPENAI, "--system_prompt=no_such.txt"], "--system_prompt=no_such.txt: No s"),
        ([*OPENAI, "--max_cost=3"], "--max_cost needs prices; give --price_in"),
        ([*OPENAI, "--price_in=-1"], "price_in"),
        (["--agent=python:json:dumps", "--price_in=1"], "--price_in is for --agent=op"),
        ([BASE, "--system_prompt=Use tools."], "--system_prompt is for --agent"),
    ],
)
def test_bad_use(commands, tmp_path, arguments, message):
    done = commands("evaluate", *arguments, f"--workdir={tmp_path / 'run'}")
    assert done.code == 2, done.err
    assert len(done.err.splitlines()) == 1 and message in done.err
    assert not (tmp_path / "run").exists()
