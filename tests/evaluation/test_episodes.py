"""Saved episodes: what their files contain, and that they match what was played."""

import asyncio
import functools
import itertools
import json
import re

import jax
import numpy as np
import pytest

from openagent_jax import perturb
from openagent_jax.agents import agents, play
from openagent_jax.agents import log as logs
from openagent_jax.curriculum import draw
from openagent_jax.environments.tools import make
from openagent_jax.evaluation import episodes, evaluate
from openagent_jax.evaluation.claims import Claims
from openagent_jax.report import causes, trajectories
from openagent_jax.suites import tasks as suites
from openagent_jax.types import Outcome, Sizes
from tests import helpers
from tests.evaluation import scripts

SCENARIOS = ("query_underspecified", "runtime_error", "unsolvable")
NAMES = (draw.CLEAN, *SCENARIOS)
SEED, TURNS, ACTION, RESULT = 5, 10, 60, 64
PROMPT = {helpers.COMPACT: 240, "hermes": 1400}  # tokens
# Before each reply of the agent.
OPENER = {helpers.COMPACT: "<|assistant|>", "hermes": "<|im_start|>assistant\n"}
# Of a clean task this leaves too little room for ten long turns.
CONTEXT = {helpers.COMPACT: 490, "hermes": 1480}
# The script of each row; `EXPERT` follows the oracle on the clean task.
EXPERT, WRONG_CALL, BABBLE, LONG, REFUSE, ANSWER, CUT, NO_TOOL = range(8)
NUM = 8
KEYS = {
    "scenario",
    "index",
    "task_key",
    "task",
    "phrasing",
    *Outcome._fields,
    "changed",
    "answered",
    "failure",
    "cause",
    "unsolvable",
    "tools",
    "messages",
    "actions",
    "results",
    "rewards",
    "plan",
    "prompt_tokens",
    "completion_tokens",
}
OF_AGENTS = {"num_replies", "num_requests", "num_tokens", "seconds", "latencies"}
SCORED = ("success", "solvable", "refused", "num_calls", "num_errors", "fewest_calls")


@functools.cache
def world(form):
    prompt = PROMPT[form]
    sizes = Sizes(TURNS, prompt, ACTION, RESULT, CONTEXT[form])
    environment = make.functions(sizes, helpers.NUM_VISIBLE)
    return helpers.world("poi", form)._replace(environment=environment)


@functools.cache
def demonstrated():
    """The expert's episodes of the clean tasks, in NumPy."""
    keys = draw.task_keys(jax.random.key(SEED), 0, helpers.BATCH)
    tables = helpers.world("poi").tables
    found, _ = helpers.demonstrate(tables, helpers.sample(tables, keys, "test"))
    return found


def written(form):
    """The expert's tokens of each row, turn by turn."""
    tables = helpers.world("poi", form).tables
    tokens, _, own, _ = map(
        np.asarray, helpers.write(tables, demonstrated(), 2 * PROMPT[form])
    )
    return [tokens[i][own[i]].tolist() for i in range(NUM)]


def script_params(form):
    """The tokens of each row's script."""
    found, lexicon = written(form), helpers.lexicon("poi", form)
    tokenizer = helpers.chat_tokenizer() if form == "hermes" else helpers.tokenizer()
    call = '{"name":"no_such_tool","arguments":{"x":"1"}}'
    if form == "hermes":
        call = f"<tool_call>\n{call}\n</tool_call>"
    first = tokenizer.decode(found[WRONG_CALL], skip_special_tokens=False)
    first = re.split(r"<\|(?:im_)?end\|>", first)[0]
    wrong = re.sub(r'("arguments": ?\{"\w+": ?)("[^"]*"|\d+)', r'\1"Atlantis"', first)
    assert wrong != first, first
    turns = {
        EXPERT: [],
        WRONG_CALL: [wrong, "Refuse"],
        BABBLE: ["Hm"] * TURNS,
        LONG: ["so " * ACTION] * TURNS,
        REFUSE: ["Refuse"],
        ANSWER: ["Answer: done"],
        CUT: [f"Answer: {'so ' * ACTION}"],
        NO_TOOL: [call, "Refuse"],
    }
    rows = []
    for row, texts in turns.items():
        tokens = found[row] if row == EXPERT else []
        for text in texts:
            ids = tokenizer.encode(text, add_special_tokens=False).ids[:ACTION]
            tokens = tokens + ids + [lexicon.end_token] * (len(ids) < ACTION)
        rows.append(tokens)
    return scripts.params(rows, lexicon.end_token, TURNS * (ACTION + 1))


@functools.cache
def player(form):
    lexicon = helpers.lexicon("poi", form)
    tokenizer = helpers.chat_tokenizer() if form == "hermes" else helpers.tokenizer()
    opener = tokenizer.encode(OPENER[form], add_special_tokens=False).ids
    policy = scripts.policy(lexicon.vocab_size, opener, lexicon.end_token, ACTION)
    return evaluate.make_player(policy, world(form), SCENARIOS, NUM, record=True)


def keep(form, folder, num=NUM, num_tasks=NUM, tokens=False):
    """Evaluate and save episodes; return `(lines by scenario, rows of the report)`."""
    keeper = episodes.Keeper(world(form), folder, num, SEED, tokens=tokens)
    scored = evaluate.evaluate(
        player(form),
        world(form),
        script_params(form),
        SCENARIOS,
        seed=SEED,
        num_tasks=num_tasks,
        batch_size=NUM,
        keep=keeper,
    )
    keeper.write(num_tasks)
    return read(folder), scored


def read(folder):
    folder = folder / trajectories.FOLDER
    return {
        name: list(trajectories.read(folder, name))
        for name in trajectories.scenarios(folder)
    }


@pytest.fixture(
    scope="module",
    params=["compact", pytest.param("hermes", marks=pytest.mark.hours)],
)
def kept(request, tmp_path_factory):
    return keep(request.param, tmp_path_factory.mktemp("kept"))


@pytest.fixture(scope="module")
def compact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compact")
    return folder, *keep(helpers.COMPACT, folder)


@functools.cache
def suite():
    return suites.Suite(world(helpers.COMPACT), SCENARIOS, SEED, NUM, 1.0, "test")


def replay(lines):
    """Give the same replies as messages in the compact world; return the log lines."""

    def agent_of(line):
        turns = iter(m for m in line["messages"] if m["role"] == "assistant")

        async def agent(messages, tools):
            assert tools == line["tools"]
            reply = next(turns, None)
            if reply is None:
                raise agents.Full("no more was said")
            content = reply["content"]
            return agents.Reply(reply, cut=content.endswith(episodes.CUT))

        return agent

    async def one(episode, line):
        playing = play.play([episode], agent_of(line), 1, play.Budget())
        return [outcome async for outcome in playing]

    return [
        asyncio.run(one(episode, lines[episode.scenario][episode.index]))[0]
        for episode in suite().episodes()
    ]


def plain(messages):
    """Messages without ids, and with parsed arguments."""
    found = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        calls = [
            (call["name"], arguments if isinstance(arguments, dict) else None)
            for call in calls
            for arguments in [
                json.loads(call["arguments"])
                if isinstance(call["arguments"], str)
                else call["arguments"]
            ]
        ]
        found.append((message["role"], message["content"] or "", calls))
    return found


def test_lines_have_all_keys(kept):
    lines, _ = kept
    assert tuple(sorted(lines)) == tuple(sorted(NAMES))
    for name, found in lines.items():
        assert [line["index"] for line in found] == list(range(NUM))
        for line in found:
            assert set(line) == KEYS and line["scenario"] == name
            assert line["answered"] and line["failure"] in trajectories.FAILURES
            assert line["cause"] in causes.CAUSES or line["success"]
            assert (line["cause"] == "") == (line["failure"] == "") == line["success"]
            num_turns = len(line["actions"])
            assert len(line["results"]) == num_turns
            replies = [m for m in line["messages"] if m["role"] == "assistant"]
            assert len(replies) == num_turns
            assert set(line["rewards"]) == {x for x, _ in helpers.ENVIRONMENT.rewards}
            assert {len(paid) for paid in line["rewards"].values()} == {num_turns}
            shown = [m["content"] for m in line["messages"][2:] if m not in replies]
            assert shown == [x for x in line["results"] if x is not None]
            assert line["plan"] and bool(line["unsolvable"]) == (not line["solvable"])


def letter(line):
    """The letter of an episode in the outcomes of a row."""
    if line["solvable"]:
        return "1" if line["success"] else "r" if line["refused"] else "0"
    return "R" if line["refused"] else "x"


def test_cost_is_of_all_episodes(kept):
    lines, scored = kept
    found = list(itertools.chain(*lines.values()))
    names = "prompt_tokens", "completion_tokens"
    tokens = {name: sum(line[name] for line in found) for name in names}
    assert scored.cost == {"episodes": len(found), **tokens}
    entries = perturb.catalogue(helpers.ENVIRONMENT)
    claims = Claims("test", ("poi",), ())
    made = evaluate.results(entries, scored, 1.0, claims)
    assert made["cost"] == scored.cost
    unknown = scored._replace(cost=None)
    assert "cost" not in evaluate.results(entries, unknown, 1.0, claims)


def test_outcomes_match_the_report(kept):
    lines, scored = kept
    entries = perturb.catalogue(helpers.ENVIRONMENT)
    made = evaluate.results(entries, scored, 1.0, Claims("test", ("poi",), ()))
    assert "bounds" not in made  # they did not play
    for row in made["rows"]:
        found = lines[row["scenario"]]
        solvable = [line["success"] for line in found if line["solvable"]]
        refusals = [line["refused"] for line in found if not line["solvable"]]
        rate = pytest.approx(np.mean(refusals)) if refusals else None
        assert row["refusal_rate"] == rate
        assert row["n"] == len(solvable) or row["scenario"] == "unsolvable"
        assert row["outcomes"] == "".join(map(letter, found))
        asked = [line["num_needless_questions"] for line in found]
        assert row["needless_questions"] == np.mean(asked)
        for line, *one in zip(
            found,
            *(getattr(scored.episodes[row["scenario"]], x) for x in SCORED),
            strict=True,
        ):
            assert [line[name] for name in SCORED] == one
            assert line["success"] == (line["failure"] == "")
            assert line["num_calls"] >= line["num_errors"]


def test_task_keys_reproduce_the_tasks(kept):
    lines, _ = kept
    tables = helpers.world("poi").tables
    for name in NAMES:
        assert [x["task_key"] for x in lines[name]] == [
            x["task_key"] for x in lines[draw.CLEAN]
        ]
    keys = jax.numpy.array([x["task_key"] for x in lines[draw.CLEAN]], np.uint32)
    keys = jax.random.wrap_key_data(keys)
    room = draw.task_keys(jax.random.key(SEED), NUM, helpers.BATCH - NUM)
    drawn = helpers.sample(tables, jax.numpy.concatenate([keys, room]), "test")
    transcriber = helpers.world("poi").transcriber
    for line, task in zip(lines[draw.CLEAN], helpers.rows(drawn)):
        assert line["messages"][:2] == transcriber.opening(task)
        assert line["tools"] == transcriber.tools(task)


def test_failure_labels_of_scripts(kept):
    lines, _ = kept
    clean, unsolvable = lines[draw.CLEAN], lines["unsolvable"]
    assert [line["failure"] for line in clean] == [
        "",
        "false_refusal",
        "out_of_turns",
        "out_of_context",
        "false_refusal",
        "wrong_answer",
        clean[CUT]["failure"],
        "false_refusal",
    ]
    assert clean[CUT]["failure"] != "" and not clean[CUT]["success"]
    assert not any(line["solvable"] for line in unsolvable)
    assert unsolvable[REFUSE]["failure"] == unsolvable[WRONG_CALL]["failure"] == ""
    assert unsolvable[ANSWER]["failure"] == "missed_refusal"
    assert unsolvable[BABBLE]["failure"] == "out_of_turns"
    assert {line["unsolvable"] for line in unsolvable} <= {
        *helpers.ENVIRONMENT.reasons[1:]
    }


@pytest.mark.parametrize(
    ("outcome", "ends", "word"),
    [
        ({"success": True}, (True, False, True), ""),
        ({}, (False, False, False), "unanswered"),
        ({}, (False, True, True), "out_of_context"),
        ({}, (False, False, True), "out_of_turns"),
        ({"refused": True}, (True, False, True), "false_refusal"),
        ({"solvable": False}, (True, False, True), "missed_refusal"),
        ({}, (True, False, True), "wrong_answer"),
    ],
)
def test_each_failure_label(outcome, ends, word):
    plain = dict.fromkeys(Outcome._fields, 0) | {"solvable": True} | outcome
    found = Outcome(**{name: np.asarray(x) for name, x in plain.items()})
    assert episodes.failure(found, *ends) == word
    assert word in trajectories.FAILURES and len(trajectories.FAILURES) == 7


def test_replies_are_stored_verbatim(kept):
    """Replies that could not be parsed are stored as they were written."""
    lines, _ = kept
    clean = lines[draw.CLEAN]
    assert clean[EXPERT]["actions"] == clean[EXPERT]["plan"]
    (call, refusal) = clean[WRONG_CALL]["actions"]
    assert refusal == {"text": "Refuse"}
    assert "Atlantis" in call["arguments"].values()
    assert clean[WRONG_CALL]["num_errors"] == 1
    assert clean[BABBLE]["actions"] == [{"text": "Hm"}] * TURNS
    assert clean[BABBLE]["results"] == ['{"error":"cannot read this"}'] * (
        TURNS - 1
    ) + [None]
    assert {action["text"][-1] for action in clean[LONG]["actions"]} == {episodes.CUT}
    assert clean[CUT]["actions"][0]["text"].startswith("Answer: so so")
    assert clean[CUT]["actions"][0]["text"].endswith(episodes.CUT)
    assert "no_such_tool" in clean[NO_TOOL]["actions"][0]["text"]
    assert clean[NO_TOOL]["results"] == ['{"error":"no such tool"}', None]


def test_replayed_replies_have_the_same_outcome(kept):
    """The oracle's plan, the tools and the facts are the same, too."""
    lines, _ = kept
    same = KEYS - {"failure", "cause", "messages", "actions", "results", "rewards"}
    same -= {"prompt_tokens", "completion_tokens"}  # these texts have none
    for theirs in replay(lines):
        ours = lines[theirs["scenario"]][theirs["index"]]
        assert set(theirs) - {"reason"} == KEYS | OF_AGENTS
        for name in same:
            assert theirs[name] == ours[name], name
        assert theirs["failure"] == ours["failure"] or ours["index"] == LONG
        assert len(theirs["actions"]) == len(ours["actions"])
        if ours["index"] in (EXPERT, WRONG_CALL, BABBLE, REFUSE, ANSWER):
            assert plain(theirs["messages"]) == plain(ours["messages"])
            assert theirs["results"] == ours["results"]
            assert theirs["actions"] == ours["actions"]
            assert theirs["rewards"] == ours["rewards"]


def test_agents_write_the_same_files(compact, tmp_path):
    """`log.keep` writes the log's episodes; the last answered line of each counts."""
    _, lines, _ = compact
    log = logs.Log(tmp_path / "episodes.jsonl", {"model": "x"})
    found = replay(lines)
    log.add(found[0] | {"answered": False, "failure": "unanswered"})
    for line in reversed(found):
        log.add(line)
    log.add(found[1] | {"answered": False, "failure": "unanswered"})
    logs.keep(log, tmp_path, NAMES, NUM)
    assert read(tmp_path) == {
        name: [line for line in found if line["scenario"] == name] for name in NAMES
    }
    logs.keep(log, tmp_path, NAMES[:2], 3)
    assert read(tmp_path) == {
        name: [line for line in found if line["scenario"] == name][:3]
        for name in NAMES[:2]
    }
    logs.keep(log, tmp_path, NAMES, 0)
    assert read(tmp_path) == {}
    log.close()


@pytest.mark.slow
def test_number_of_kept_episodes(compact, tmp_path):
    """The first tasks are kept; files of an earlier evaluation are removed."""
    _, lines, scored = compact
    folder = tmp_path / trajectories.FOLDER
    folder.mkdir()
    for name in ("old.jsonl", "older.jsonl.gz", "clean.jsonl.part", "clean.jsonl.gz"):
        (folder / name).write_text("{")
    few, same = keep(helpers.COMPACT, tmp_path, num=3)
    assert few == {name: found[:3] for name, found in lines.items()}
    for name, found in scored.episodes.items():
        for field in SCORED:
            ours, theirs = getattr(found, field), getattr(same.episodes[name], field)
            np.testing.assert_array_equal(ours, theirs)
    assert {path.name for path in folder.iterdir()} == {f"{x}.jsonl" for x in NAMES}
    # The last batch is larger than the number of remaining tasks.
    fewer, _ = keep(helpers.COMPACT, tmp_path, num_tasks=2)
    assert fewer == {name: found[:2] for name, found in lines.items()}
    trajectories.clear(folder)
    assert not list(folder.iterdir())


def test_kept_tokens(compact, tmp_path):
    """The sampled ones are the replies, and together they are the whole text."""
    _, plain, _ = compact
    lines, _ = keep(helpers.COMPACT, tmp_path, tokens=True)
    end = "\0"  # as the compact form writes it
    for line in itertools.chain(*lines.values()):
        tokens = line.pop("tokens")
        assert line == plain[line["scenario"]][line["index"]]
        text, sampled = tokens["text"], tokens["sampled"]
        assert len(text) == len(sampled) and set(sampled) == {0, 1}
        assert len(tokens["log_prob"]) == sum(sampled) == line["completion_tokens"]
        assert len(sampled) == line["completion_tokens"] + line["prompt_tokens"]
        assert max(tokens["log_prob"]) <= 0 and min(tokens["log_prob"]) < 0
        turns = re.findall("1+", "".join(map(str, sampled)))
        assert len(turns) == len(line["actions"])
        said = "".join(x for x, own in zip(text, sampled) if own)
        replies = [x["text"] for x in line["actions"] if "text" in x]
        for reply in replies:
            assert reply.removesuffix(episodes.CUT) in said
        assert said.count(end) == sum(not x.endswith(episodes.CUT) for x in replies) + (
            len(turns) - len(replies)
        )
        whole = "".join(text)
        for message in line["messages"]:
            if message["role"] in ("user", "tool"):
                assert message["content"] in whole


def test_unrecorded_episodes_are_not_kept(compact, tmp_path):
    keeper = episodes.Keeper(world(helpers.COMPACT), tmp_path, NUM, SEED)
    outcome = Outcome(*[np.zeros(2)] * len(Outcome._fields))
    no = np.zeros(2, bool)
    played = evaluate.Played(outcome, None, *[no] * 7, None)
    keeper("clean", 0, played)
    keeper.write(NUM)
    assert not list(tmp_path.iterdir())
