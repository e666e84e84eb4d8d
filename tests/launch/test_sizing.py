"""Limits on tokens that fit a user's own tools, or an early error with a value."""

import json
import shutil

import jax
import pytest

from launch.common import agents, build, sizing
from launch.common import config as configs
from launch.common.errors import UsageError
from launch.common.sizing import Longest
from openagent_jax import expert
from openagent_jax.curriculum import draw
from openagent_jax.domains import domain_file
from tests import tiny
from tests.environments.logs.examples import calls, result, says, tool, user

DOMAINS = domain_file.DOMAINS


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "mine.json"
    shutil.copy(DOMAINS / "poi.json", file)
    return str(file)


def longest(prompt=100, action=30, result=20, episode=200):
    found = {"prompt": prompt, "action": action, "result": result, "episode": episode}
    return {part: Longest(tokens, "clean") for part, tokens in found.items()}


def fitted(monkeypatch, found, domain, given=(), **changes):
    changes = {"eval.domain": domain} | {f"sandbox.{k}": v for k, v in changes.items()}
    c = tiny.full_config().replace(changes)
    monkeypatch.setattr(sizing, "measure", lambda *_: found)
    made = sizing.fitted(c, tiny.backbones.backbone(c), given, draw.ALL)
    assert made.replace(changes | vars_of(c)) == c  # nothing else is different
    return made.sandbox.sizes


def vars_of(c):
    return {key: getattr(c.sandbox, name) for key, name in sizing.KEYS.items()}


def test_defaults_that_suffice_stay(monkeypatch, own):
    sizes = tiny.full_config().sandbox.sizes
    assert fitted(monkeypatch, longest(), own) == sizes


def test_what_nobody_has_set_is_raised(monkeypatch, own, capsys):
    made = fitted(monkeypatch, longest(prompt=347, result=60), own)
    assert made.prompt_tokens == 352 and made.result_tokens == 96
    assert made.action_tokens == 60  # the default
    assert made.context_tokens >= 640 - 320 + 352
    said = capsys.readouterr().out
    assert "sandbox.prompt_tokens=352, sandbox.result_tokens=96, " in said
    assert "action_tokens" not in said


def test_builtin_domains_are_not_measured(monkeypatch):
    sizes = tiny.full_config().sandbox.sizes
    assert fitted(monkeypatch, None, "poi") == sizes


def test_the_domains_of_the_test_split_are_measured(monkeypatch, own):
    """Those are played, although the policy is trained on a domain that fits."""
    made = fitted(monkeypatch, longest(prompt=347), "", test_domains=own)
    assert made.prompt_tokens == 352


def test_a_limit_that_was_set_is_kept_or_refused(monkeypatch, own, capsys):
    for given, set_to in ((("sandbox.prompt_tokens",), 320), ((), 256), ((), 200)):
        made = fitted(monkeypatch, longest(200), own, given, prompt_tokens=set_to)
        assert made.prompt_tokens == set_to
        with pytest.raises(UsageError) as caught:
            fitted(monkeypatch, longest(340), own, given, prompt_tokens=set_to)
        assert str(caught.value) == (
            f"sandbox.prompt_tokens={set_to} is too small for {own}: 340 tokens in "
            "clean; give --config.sandbox.prompt_tokens=352"
        )
    with pytest.raises(UsageError, match=r"_tokens=320 --config\.sandbox\.result_tok"):
        too_small = {"prompt_tokens": 100, "result_tokens": 10}
        fitted(monkeypatch, longest(300), "poi", **too_small)
    capsys.readouterr()
    # What the policy writes may be cut off without ending the evaluation.
    fitted(monkeypatch, longest(), own, action_tokens=20)
    assert "warning: sandbox.action_tokens=20 is too small" in capsys.readouterr().out


def test_the_context_of_the_model_is_the_bound(monkeypatch, own):
    most = tiny.backbones.backbone(tiny.full_config()).config.max_positions
    made = fitted(monkeypatch, longest(most - 300, episode=most + 1), own)
    assert made.context_tokens == most
    with pytest.raises(UsageError, match=f"has {most} tokens, and .* show fewer tools"):
        fitted(monkeypatch, longest(most), own)
    with pytest.raises(UsageError, match=r"=330 has no room .*_tokens=448$"):
        fitted(monkeypatch, longest(300), own, context_tokens=330)


def test_a_run_has_room_for_what_it_trains_on_too(monkeypatch, own):
    c = tiny.full_config().replace({"sandbox.domain": own})
    assert c.algorithm.num_tokens == 512
    model = tiny.backbones.backbone(c)
    monkeypatch.setattr(sizing, "measure", lambda *_: longest(330, episode=400))
    training = longest(360, episode=530)
    monkeypatch.setattr(sizing, "_of_training", lambda *_: training)
    run = sizing.fitted(c, model, (), "suite", trains=True)
    assert run.sandbox.prompt_tokens == 384 and run.algorithm.num_tokens == 544
    # Nothing has to be measured again, unless a limit is set or the context too short.
    assert sizing.fits(c, run, model, ())
    assert not sizing.fits(c, run, model, ("sandbox.prompt_tokens",))
    whole = run.replace({"sandbox.context_tokens": model.config.max_positions})
    assert not sizing.fits(c, whole, model, ())
    alone = sizing.fitted(c, model, (), "suite")
    assert alone.sandbox.prompt_tokens == 352 and alone.algorithm.num_tokens == 512
    # The same command continues the run: its limits are those that it began with.
    stored = configs.to_dict(run)
    assert sizing.as_stored(c, stored, ()) == run
    assert sizing.as_stored(c, None, ()) == c
    kept = sizing.as_stored(c, stored, ("sandbox.prompt_tokens",))
    assert kept.sandbox.prompt_tokens == c.sandbox.prompt_tokens
    builtin = c.replace({"sandbox.domain": "poi"})
    assert sizing.as_stored(builtin, stored, ()) == builtin


def test_the_tasks_of_the_evaluation_are_measured(own):
    """The prompts are those that the evaluation will write, none longer."""
    c = tiny.config("sft", eval__domain=own, eval__num_tasks=5)
    c = c.replace({"eval.scenarios": ("distractor_tools",)})
    model = tiny.backbones.backbone(c)
    found = sizing.measure(c, model, draw.ALL)
    source = build.world(c, model, own)
    environment, tables = source.environment, source.tables
    one = draw.make_draw(environment, ["distractor_tools"], "test")
    keys = draw.task_keys(jax.random.key(c.eval.seed), 0, 5)

    @jax.jit
    def lengths(keys, edit_keys, scenario):
        def of(key, edit_key):
            task = one(tables, key, edit_key, 1.0, scenario).task
            return expert.num_tokens(tables, environment.prompt(tables, task))

        return jax.vmap(of)(keys, edit_keys)

    clean, edited = (lengths(keys, draw.edit_keys(keys), i).max() for i in range(2))
    assert edited > clean
    assert found["prompt"] == (int(edited), "distractor_tools")


def test_agents_elsewhere_need_no_room_for_tokens(own):
    few = {f"sandbox.{x}_tokens": 1 for x in ("prompt", "action", "result")}
    c = tiny.full_config().replace({"eval.domain": own, **few})
    made = agents.suite(c.replace({"eval.scenarios": ("identity_erasure",)}))
    first = next(iter(made.episodes(())))
    assert len(str(first.begin().tools)) > 500


@pytest.fixture
def log(tmp_path):
    """Conversations about orders with long texts."""

    def conversation(number):
        place = "and of the list of open orders in the hall "
        tools = [tool("find_order", f"Look an order up {place}.", order="string")]
        found = {"hall": f"H{number}", "note": f"packed {2 * place}".strip()}
        messages = [
            user(f"I thought {40 * place}.\nIn which hall is order A-{number}?"),
            calls(("find_order", {"order": f"A-{number}"})),
            result(found),
            says(f"Answer: H{number}"),
        ]
        return {"messages": messages, "tools": tools}

    rows = map(conversation, range(8))
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_long_conversations_of_a_log_are_used(log, capsys):
    """An evaluation makes room for them, unless a limit that is set leaves them out."""
    c = tiny.full_config().replace({"eval.domain": log, "eval.num_tasks": 8})
    c = c.replace({"eval.scenarios": ("tool_order",), "init_from": "random"})
    model = tiny.backbones.backbone(c)
    made = sizing.fitted(c, model, (), draw.ALL)
    assert build.world(made, model, log).summary == "mapped 8 of 8 conversations"
    raised = set(sizing.flat(made).items()) - set(sizing.flat(c).items())
    assert {"sandbox.prompt_tokens", "sandbox.context_tokens"} <= {*dict(raised)}
    said = capsys.readouterr().out
    assert all(f"{key}={size}" in said for key, size in raised)
    # A limit that is set leaves long conversations out, which are all of these.
    with pytest.raises(UsageError, match="skipped 8: needs more than sandbox.prompt"):
        sizing.fitted(c, model, ("sandbox.prompt_tokens",), draw.ALL)
