"""The commands of docs/own_logs.md, and the errors of `launch.logs`."""

import json

import pytest

from openagent_jax import report
from openagent_jax.environments.logs import logs
from tests import pages
from tests.environments.logs.examples import (
    GOOD,
    TOOLS,
    chain,
    weather,
)

PAGE = pages.page("own_logs.md")
NO_TEST = (
    "the log has no conversation in the split test; log at least two different "
    "conversations"
)
PAFT = "--config=configs/paft.py:smoke"


@pytest.mark.slow
def test_commands_of_the_page(tmp_path):
    folder = pages.checkout(tmp_path)
    assert pages.follow(PAGE, folder) == 7
    made = report.load(folder / "runs/my_logs")
    assert made["log"].startswith("mapped 2 of 3 conversations")
    listed = (folder / "runs/my_logs/unmapped.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in listed] == [
        {
            "file": "my_logs.jsonl",
            "line": 3,
            "reason": "needs more than sandbox.num_fields=2",
            "needs": {"sandbox.num_fields": 3},
            "where": "3 fields of results of cancel",
        }
    ]
    rows = [json.loads(x) for x in (folder / "demos.jsonl").read_text().splitlines()]
    assert len(rows) == 100 and not list(folder.glob("*.part"))
    assert sum(row["perturbation"] != "clean" for row in rows) == 70


def test_named_files_exist():
    assert not pages.missing(PAGE)


def lines(*conversations):
    rows = ({"messages": x, "tools": TOOLS} for x in conversations)
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


UNANSWERED = weather(*GOOD, GOOD[0])
FINE = lines(weather(*GOOD), chain())


@pytest.mark.slow
def test_check(commands, tmp_path):
    """All reasons are listed with their lines, and with limits that would suffice."""
    file = tmp_path / "my.jsonl"
    header = json.dumps({"evaluation": {}}).encode() + b"\n"
    bad = lines(UNANSWERED, weather(), UNANSWERED, UNANSWERED)
    file.write_bytes(header + FINE + b"\n" + bad)
    done = commands("logs", "check", str(file))
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        f"{file}: mapped 1 of 6 conversations; skipped 5: a call without a result (3), "
        "needs more than sandbox.num_fields=2 (1), no successful call and no refusal "
        "(1)",
        "  a call without a result (3): lines 5, 7-8",
        *(f"    line {line}: get_weather" for line in (5, 7, 8)),
        "  needs more than sandbox.num_fields=2 (1): line 3",
        "    line 3: 4 fields of results of find_order",
        "    enough for all of them: --config.sandbox.num_fields=4",
        "  no successful call and no refusal (1): line 6",
        "  ignored 1 header line of an evaluation",
        f"  {NO_TEST}",
    ]
    assert len(logs.load(file, {"sandbox.num_fields": 4}).tasks) == 2


@pytest.mark.slow
def test_one_conversation_makes_no_test_split(commands, tmp_path):
    """Training reports it before the first step."""
    file = tmp_path / "my.jsonl"
    file.write_bytes(lines(weather(*GOOD)))
    args = [f"--config.sandbox.domain={file}", f"--workdir={tmp_path / 'run'}"]
    done = commands("train", PAFT, *args)
    assert done.code == 2 and f"eval.split: {NO_TEST}" in done.err
    assert done.err.count("\n") == 1 and not (tmp_path / "run").exists()


def test_check_of_a_log_without_tasks(commands, tmp_path):
    file = tmp_path / "my.jsonl"
    file.write_bytes(lines(UNANSWERED))
    done = commands("logs", "check", str(file))
    assert done.code == 2
    assert done.out.endswith(
        "  a call without a result (1): line 1\n    line 1: get_weather\n"
    )
    assert done.err == f"logs.py: {file}: no conversation is mapped\n"


PAIRED = "--config.paft.paired=True", "--config.paft.alpha=0.5"
HALF = FINE + FINE[:70]
FAULTS = [
    (HALF, "line 3, column 71: invalid JSON"),
    (FINE + b'{"messages": "\xff"}\n', "line 3: byte 14 is not UTF-8"),
    (b"", "mapped 0 of 0 conversations"),
    (lines(UNANSWERED), "mapped 0 of 1 conversations; skipped 1: a call"),
]


@pytest.mark.parametrize(("data", "problem"), FAULTS)
@pytest.mark.parametrize("command", [["train", PAFT], ["evaluate", PAFT]])
def test_faults(commands, tmp_path, command, data, problem):
    file = tmp_path / "my.jsonl"
    file.write_bytes(data)
    workdir = tmp_path / "run"
    args = [f"--config.sandbox.domain={file}", f"--workdir={workdir}"]
    done = commands(*command, *args)
    assert done.code == 2
    assert done.err.count("\n") == 1 and f"{file}: {problem}" in done.err
    assert not workdir.exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["check"], ["check: FILE is missing"]),
        (["check", "poi"], ["poi is not a log", ".jsonl"]),
        (["check", "none.jsonl"], ["none.jsonl: No such file"]),
        (["check", "FILE:dev"], ["a log has no :dev"]),
        (["check", "FILE", "--config.sandbox.num_tools=0"], ["sandbox.num_tools=0"]),
        (["export", PAFT], ["--out is missing"]),
        (["export", PAFT, "--out=none/x.jsonl"], ["no folder none; make it"]),
        (["export", PAFT, "--out=."], ["--out=. is a folder; name a file in it"]),
        (["export", PAFT, "--out=x", "--split=tset"], ["--split", 'mean "test"']),
        (["export", PAFT, "--out=x", *PAIRED], ["paft.paired"]),
        (["export", PAFT, "--out=x", "--source=y"], ["--source is for textcraft"]),
        (["check", "FILE", "--out=x"], ["--out is for export"]),
    ],
)
def test_bad_use(commands, tmp_path, args, words):
    file = tmp_path / "my.jsonl"
    file.write_bytes(FINE)
    done = commands("logs", *(x.replace("FILE", str(file)) for x in args))
    assert done.code == 2 and done.err.count("\n") == 1
    for word in words:
        assert word in done.err
