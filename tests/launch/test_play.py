"""Scripted episodes of a person, in process, and the errors of the command."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from launch.common import game
from openagent_jax.agents.play import Episode
from openagent_jax.suites.tasks import Suite
from tests import helpers

SCENARIOS = ("semantic_trap", "runtime_error", "query_underspecified")
SCENARIOS += ("unsolvable", "query_evolution", "tool_redirection", "knowledge_update")
CLEAN = "clean"


@pytest.fixture(scope="module")
def suite():
    """One compiled world for all scenarios."""
    return Suite(helpers.world("poi"), SCENARIOS, 0, 40, 1.0, "test")


def typed(plan):
    """The lines that do what the oracle does."""
    for action in plan:
        if "name" in action:
            pairs = action["arguments"].items()
            yield f"{action['name']} {', '.join(f'{k}={v}' for k, v in pairs)}"
        else:
            yield action["text"]


def played(suite, scenario, lines, hints=False):
    """What a person sees who types these lines, and the score."""
    left, out, offered = iter(lines), io.StringIO(), []

    async def read(prompt, complete):
        offered.append((prompt, complete))
        line = next(left, None)
        if line is None:
            raise EOFError
        print(prompt + line, file=out)
        return line

    console = Console(file=out, width=200, highlight=False, markup=False)
    one = game.Game(suite, scenario, read, console, hints)
    one.run()
    assert next(left, None) is None  # every line was asked for
    return out.getvalue(), one.score, offered


@pytest.mark.parametrize("scenario", [CLEAN, *SCENARIOS])
def test_typing_the_plan_solves_the_task(suite, scenario):
    number = 0
    while scenario != CLEAN and not suite.episode(scenario, number).facts["changed"]:
        number += 1
    plan = suite.episode(scenario, number).facts["plan"]
    text, score, _ = played(suite, scenario, [*typed(plan), "/what", ""])
    assert "\nSolved." in text or "\nRight: " in text
    assert "Not solved" not in text
    fewest = sum("name" in action for action in plan)
    if scenario == "unsolvable":
        assert score == game.Score(0, 0, 1, 1)
        assert "Right: it cannot be done, and you refused." in text
        assert "; why it cannot be done: " in text
    else:
        assert score == game.Score(1, 1)
        assert f"Calls: {fewest}" in text
    if scenario != CLEAN:
        entry = suite.entries[scenario]
        assert f"Perturbed by {scenario}: {entry.summary.split('`')[0]}" in text
        diff = text.split("/what\n")[1]
        assert " | " in diff or " > " in diff  # the clean task and this one differ
    assert f"task {number} of seed 0" in text
    assert text.count(" of seed 0, test split") == 2  # this task, and the next one


def test_what_goes_wrong_is_said(suite):
    lines = ["opening_hour place=Nowhere", "answer wrong", "ask", "/again", "refuse"]
    text, score, _ = played(suite, CLEAN, lines)
    assert 'tool: {"error":' in text
    assert "Not solved: the answer is wrong" in text
    assert "Calls: 1, 1 of them answered by an error; the oracle needs 3." in text
    assert "This episode is over: /again plays it again." in text
    assert "Not solved: you refused, but the tools can do it." in text
    assert score == game.Score(2, 0)
    assert "Score: solved 0 of 2 solvable tasks." in text
    text, score, _ = played(suite, "unsolvable", ["answer done"])
    assert "Not solved: it cannot be done, so you should have refused." in text
    assert score == game.Score(0, 0, 1, 0)


def test_turns_run_out(suite):
    text, *_ = played(suite, CLEAN, ["ask"] * 12)
    assert "Not solved: there are no turns left." in text
    assert "needless questions: " in text


def test_commands(suite):
    first = next(typed(suite.episode("semantic_trap", 0).facts["plan"]))
    lines = ["/help", "/tools", "/plan", first, "/plan", "/plan start", "/what"]
    lines += ["/nothing", "lpck", "", "/next", "/quit"]
    text, score, offered = played(suite, "semantic_trap", lines)
    plans = [x.split("turn ")[0] for x in text.split("The oracle, ")[1:]]
    assert [x.split(":")[0] for x in plans] == [
        "from here",
        "from here",
        "from the start",
    ]
    here, later, start = (x.splitlines()[1:] for x in plans)
    assert here == start and later == start[1:]  # one call is done
    assert "there is no /nothing" in text and 'there is no tool "lpck"' in text
    assert "offers opening_hour(place): opening hour of a place" in text
    assert "task 1 of seed 0" in text
    assert "Score: no episode was finished." in text and score == game.Score()
    prompt, complete = offered[4]  # after the first call
    assert prompt == "turn 2 of 12> "
    (called, place) = first.split(" place=")
    assert place in [x.text for x in complete(f"{called} place=")]
    assert called in [x.text for x in complete(called[:2])]


def test_hints_and_faults_at_run_time(suite):
    text, *_ = played(suite, "runtime_error", ["/what"], hints=True)
    before, after = text.split("turn 1 of 12> /what")
    assert "Perturbed by runtime_error" in before and "do: Call the tool" in before
    assert "Documents and request are those of the clean task." in after


def test_a_tool_that_an_error_names_is_announced(suite):
    plan = suite.episode("tool_redirection", 0).facts["plan"]
    text, *_ = played(suite, "tool_redirection", typed(plan))
    assert "There are new tools:" in text


class Unchanged:
    """A suite whose scenario changes no task."""

    num_tasks, strength = 40, 0.5

    def episode(self, name, n):
        return Episode(name, n, None, {"changed": False})


def test_scenarios_that_change_no_task():
    message = "--scenario=x at --strength=0.5 changes none of tasks 0 to 39"
    with pytest.raises(ValueError, match=message):
        played(Unchanged(), "x", [])


def test_there_are_no_more_tasks(suite):
    few = Suite(suite.world, SCENARIOS, 0, 2, 1.0, "test")
    few.__dict__["_draw_one"] = suite._draw_one  # compiled already
    text, *_ = played(few, CLEAN, ["/next", "/next"])
    assert "There are no more tasks." in text


def run(*args, lines="", **env):
    words = [sys.executable, "-m", "launch.play", *args]
    return subprocess.run(
        words, input=lines, capture_output=True, text=True, env=os.environ | env
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--scenario=semantic_tarp"], '--scenario: .* did you mean "semantic_trap"'),
        (
            ["--domain=poy"],
            '--domain: there is no environment "poy"; did you mean "poi"',
        ),
        (["--config.sandbox.domain=poy"], "sandbox.domain: there is no environment"),
        (["--domain=none.json"], "--domain: none.json: file: No such file"),
        (["--strength=2"], "--strength=2"),
        (["--scenario=tool_order+domain_transfer"], "--scenario: .* name it first"),
    ],
)
def test_bad_flags(commands, args, message):
    done = commands("play", *args)
    assert done.code == 2 and not done.out
    (line,) = done.err.splitlines()
    assert re.search(message, line)


@pytest.mark.slow
def test_command_reads_standard_input():
    plan = "refuse\n/quit\n"
    done = run("--scenario=unsolvable", "--hints", lines=plan)
    assert done.returncode == 0, done.stderr
    assert "turn 1 of 10> refuse\n" in done.stdout
    assert done.stdout.endswith("Score: refused 1 of 1 unsolvable tasks.\n")
    assert "\x1b" not in done.stdout
