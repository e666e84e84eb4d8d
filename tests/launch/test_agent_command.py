"""`launch.evaluate --agent`, as seen by users."""

import importlib.util
import json
import os
import signal
import time

import pytest

from launch.common import agents
from openagent_jax import report
from tests import scripted, tiny

pytest.importorskip("openai")

BASE = "--config=configs/base.py"
TASKS = (
    "--config.eval.num_tasks=4",
    '--config.eval.scenarios=("identity_erasure","unsolvable")',
)
NAMES = ("clean", "identity_erasure", "unsolvable")
KEY = "sk-s3cret"


def refuse(body, number):
    return scripted.reply("I see no way.\nRefuse")


def evaluate_agent(commands, server, workdir, *more, **env):
    return commands(
        "evaluate",
        "--agent=openai",
        f"--base_url={server.base_url}",
        "--model=acme/one",
        "--suite=poi",
        f"--workdir={workdir}",
        BASE,
        *TASKS,
        *more,
        **env,
    )


def lines(workdir):
    text = (workdir / "eval" / "0" / "episodes.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.slow
def test_a_report_is_written_without_the_key(commands, tmp_path):
    more = '--request={"seed": 5, "temperature": null}'
    with scripted.server(refuse) as server:
        done = evaluate_agent(commands, server, tmp_path, more, OPENAI_API_KEY=KEY)
    assert done.code == 0, done.err
    assert "Robustness of acme/one" in done.out
    made = report.load(tmp_path)
    rows = {row["scenario"]: row for row in made["rows"]}
    assert tuple(rows) == NAMES
    assert [rows[name]["success"]["mean"] for name in NAMES] == [0, 0, 1]
    assert rows["clean"]["false_refusal_rate"] == 1
    # This agent is the one that always refuses.
    assert made["bounds"]["refuser"] == {
        name: rows[name]["success"]["mean"] for name in NAMES
    }
    assert made["bounds"]["oracle"] == dict.fromkeys(NAMES, 1)
    assert (made["policy"], made["suite"]) == ("acme/one", "poi")
    assert made["temperature"] == "unknown"  # the flag leaves it to the endpoint
    *_, body = server.requests[0]
    assert body["model"] == "acme/one" and body["seed"] == 5
    assert "temperature" not in body and body["tools"] and len(body["messages"]) == 2
    assert server.requests[0][2]["Authorization"] == f"Bearer {KEY}"
    header, *episodes = lines(tmp_path)
    assert header["evaluation"]["base_url"] == server.base_url
    assert len(episodes) == 12
    assert all({"messages", "tools"} <= set(episode) for episode in episodes)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4 + len(NAMES)  # the trajectories of each row
    for text in (done.out, done.err, *(file.read_text("utf-8") for file in files)):
        assert "s3cret" not in text


@pytest.mark.skipif(
    importlib.util.find_spec("bfcl_eval") is None,
    reason="needs pip install --no-deps bfcl-eval",
)
def test_bfcl(commands, tmp_path):
    c = tiny.full_config().replace(
        {"eval.domain": "bfcl:multiple", "eval.split": "train", "eval.num_tasks": 2}
    )
    assert agents.suite(c).split == "train"
    with scripted.server(refuse) as server:
        done = evaluate_agent(commands, server, tmp_path, "--suite=bfcl:irrelevance")
    assert done.code == 0, done.err
    made = report.load(tmp_path)
    assert (made["suite"], made["num_tasks"]) == ("bfcl:irrelevance", 4)
    rows = {row["scenario"]: row for row in made["rows"]}
    assert rows["clean"]["success"]["mean"] == 1
    assert rows["identity_erasure"]["n"] == 4
    assert "unsolvable" not in rows  # it does not apply to this suite
    assert len(server.requests) == 8


@pytest.mark.slow
def test_interrupted_and_resumed(commands, tmp_path):
    def slow(body, number):
        return "late", 0.1, refuse(body, number)

    with scripted.server(slow) as server:
        arguments = "--concurrency=2", "--max_retries=0"
        pid = commands.start(
            "evaluate",
            "--agent=openai",
            f"--base_url={server.base_url}",
            "--model=acme/one",
            "--suite=poi",
            f"--workdir={tmp_path}",
            BASE,
            *TASKS,
            *arguments,
        )
        until = time.monotonic() + 90
        while len(server.requests) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        os.kill(pid, signal.SIGINT)
        done = commands.wait()
        assert done.code == 130 and done.err.endswith("evaluate.py: interrupted\n")
        before = len(lines(tmp_path)) - 1
        assert 3 <= before < 12
        assert not (tmp_path / "eval" / "0" / "report.json").exists()
        server.requests.clear()
        done = evaluate_agent(commands, server, tmp_path, *arguments)
        assert done.code == 0, done.err
        assert len(server.requests) == 12 - before
    _, *episodes = lines(tmp_path)
    played = {(episode["scenario"], episode["index"]) for episode in episodes}
    assert len(episodes) == 12 and played == {(n, i) for n in NAMES for i in range(4)}


@pytest.mark.slow
def test_call_budget(commands, tmp_path):
    with scripted.server(refuse) as server:
        done = evaluate_agent(commands, server, tmp_path, "--max_calls=5")
        assert done.code == 1
        *_, last = done.err.splitlines()
        assert "max_calls is reached: 5 calls were made; 5 of 12 episodes" in last
        assert "run the same command again to resume" in last
        assert not (tmp_path / "eval" / "0" / "report.json").exists()
        assert evaluate_agent(commands, server, tmp_path).code == 0
        assert len(server.requests) == 12


@pytest.mark.slow
def test_unanswered_episodes_are_retried(commands, tmp_path):
    def script(body, number):
        return ("error", 500) if number < 2 else refuse(body, number)

    with scripted.server(script) as server:
        done = evaluate_agent(commands, server, tmp_path, "--max_retries=0")
        assert done.code == 0 and "2 episodes never answered" in done.out
        assert len(server.requests) == 12
        done = evaluate_agent(commands, server, tmp_path)
        assert done.code == 0 and "never answered" not in done.out
        assert len(server.requests) == 14


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("error", 404, "gone"), 'has no model "acme/one": '),
        (("error", 401, f"not {KEY}"), "does not accept the key: "),
    ],
)
def test_endpoint_errors(commands, tmp_path, said, message):
    with scripted.server(lambda *_: said) as server:
        done = evaluate_agent(commands, server, tmp_path, OPENAI_API_KEY=KEY)
    assert done.code == 1
    *_, last = done.err.splitlines()
    assert message in last and server.base_url in last
    assert "s3cret" not in done.err + done.out
    assert len(server.requests) <= 8


def test_a_malformed_key(commands, tmp_path):
    args = *OPENAI, f"--workdir={tmp_path / 'run'}"
    done = commands("evaluate", *args, OPENAI_API_KEY="sk-s3\ncret")
    assert done.code == 2 and "OPENAI_API_KEY: the key has white space" in done.err
    assert "cret" not in done.err and not (tmp_path / "run").exists()


def test_reports_of_a_policy_are_not_overwritten(commands, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other" / "eval" / "0" / "report.json"
    run.mkdir()
    (run / "config.json").write_text("{}")
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    for workdir in (run, tmp_path / "other"):
        done = commands("evaluate", *OPENAI, f"--workdir={workdir}")
        assert done.code == 2 and f"{workdir} holds a run or a report" in done.err
    assert other.read_text() == "{}" and not (run / "eval").exists()


def test_no_answer_at_all(commands, tmp_path):
    """With fewer episodes than it takes to give up, there is no empty report either."""
    with scripted.server(lambda *_: ("error", 400, "no such knob")) as server:
        done = evaluate_agent(commands, server, tmp_path, "--max_retries=0")
    assert done.code == 1
    *_, last = done.err.splitlines()
    assert "no episode had an answer: " in last and "no such knob" in last
    assert "0 of 12 episodes are in" in last
    assert not (tmp_path / "eval" / "0" / "report.json").exists()


OPENAI = ("--agent=openai", "--base_url=http://127.0.0.1:1/v1", "--model=x")
BAD_USE = [
    (["--agent=openai"], "--agent=openai needs --base_url and --model"),
    (["--agent=openai", "--base_url=127.0.0.1:1", "--model=x"], "begins with http://"),
    (["--agent=http://x"], "--agent=http is neither openai nor python:module:function"),
    (["--agent=python:no_such_module:f"], "No module named 'no_such_module'"),
    (["--agent=python:json:nothing"], "write module:function"),
    ([*OPENAI, "--request=[1]"], "--request is not a JSON object"),
    ([*OPENAI, "--request={"], "--request is not JSON: "),
    ([*OPENAI, '--request={"x": NaN}'], "--request is not JSON: "),
    ([*OPENAI, '--request={"stream": true, "n": 2}'], "--request: n, stream cannot be"),
    (["--agent=openai", "--base_url=http://h:99999/v1", "--model=x"], "--base_url"),
    ([*OPENAI, "--suite=bfcl:multiple", BASE, "--config.eval.num_tasks=-3"], "=-3 is"),
    ([*OPENAI, "--suite=bfcl:parallel"], 'no category "parallel"; known: simple_py'),
    ([*OPENAI, "--suite=pio"], 'did you mean "poi"?'),
    ([*OPENAI, "--suite=nothing.json"], "nothing.json"),
    ([*OPENAI, "--concurrency=0"], "concurrency"),
    ([*OPENAI, BASE, '--config.eval.scenarios=("nope",)'], 'there is no "nope"'),
    ([*OPENAI, BASE, "--config.eval.keep_tokens"], "eval.keep_tokens: an agent sends"),
    (["--suite=poi"], "--suite is for --agent"),
    ([BASE, "--model=x"], "--model is for --agent"),
    ([BASE, "--max_calls=3"], "--max_calls is for --agent"),
    ([BASE, "--step=3"], "--step is for --workdir without --config"),
    ([*OPENAI, "--step=3"], "--step is for --workdir without --agent"),
    ([BASE, "--markdown"], "--markdown is for --compare"),
    ([*OPENAI, "--across_suites"], "--across_suites is for --compare"),
    (["--compare=x,y", BASE], "--config is for evaluating, not for --compare"),
    (["--compare=x,y"], "--workdir is for evaluating, not for --compare"),
    (["--agent=python:json:dumps", "--request={}"], "--request is for --agent=openai"),
    ([*OPENAI, '--request={"model": "y"}'], "--request: model cannot be set there"),
    ([*OPENAI, "--base_url=http://127.0.0.1:99999/v1"], "no port from 1 to 65535"),
    ([*OPENAI, "--base_url=http:///v1"], "has no host"),
    (
        ["--agent=openai", "--base_url=https://u:p@example.org/v1", "--model=x"],
        "https://example.org/v1 needs a key; put it in OPENAI_API_KEY",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD_USE)
def test_bad_use(commands, tmp_path, arguments, message):
    done = commands("evaluate", *arguments, f"--workdir={tmp_path / 'run'}")
    assert done.code == 2, done.err
    assert len(done.err.splitlines()) == 1 and message in done.err
    assert not (tmp_path / "run").exists()
