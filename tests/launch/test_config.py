"""Configs are converted to typed sections once; nothing else handles a ConfigDict."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import pytest

from configs import base
from launch.common import checks, config, runs
from launch.common.errors import UsageError
from openagent_jax.algorithms import grpo, policy_gradient, ppo
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import make
from openagent_jax.types import Sizes
from tests import tiny

ROOT = Path(__file__).parents[2]


def test_only_one_file_sees_a_config_dict():
    """Other files may only define the flag, and resolve its value."""
    flag = re.compile(r"config_flags|config\.resolve\(CONFIG\.value")
    # A file that handles a ConfigDict imports ml_collections.
    seen = re.compile(r"ml_collections|get_config\(|CONFIG\.value(?! is)")
    for file in [*ROOT.glob("openagent_jax/**/*.py"), *ROOT.glob("launch/**/*.py")]:
        if file == Path(config.__file__):
            continue
        lines = [x for x in file.read_text("utf-8").splitlines() if seen.search(x)]
        assert all(flag.search(line) for line in lines), (file, lines)
        assert not lines or file.parent == ROOT / "launch", file


def test_every_key_has_a_field():
    c = base.get_config()
    typed = config.resolve(c)
    assert config.flat(typed) == config.flat(c.to_dict())
    assert config.to_dict(typed) == c.to_dict()


def test_hash_depends_only_on_values():
    """It is the same as in earlier versions, whose configs had no types."""
    c = tiny.full_config()
    text = json.dumps(base.get_config().to_dict(), sort_keys=True)
    digest = subprocess.run(["sha256sum"], input=text.encode(), capture_output=True)
    assert config.config_hash(c) == digest.stdout.decode()[:16]
    assert config.config_hash(c.replace({"seed": 1})) != config.config_hash(c)
    assert config.config_hash(c.replace({"seed": c.seed})) == config.config_hash(c)


def test_sections_become_types_of_the_library():
    c = tiny.full_config().replace(
        {
            "sandbox.max_turns": 3,
            "sandbox.num_tools": 21,
            "grpo.paired": True,
            "ppo.gae_lambda": 0.5,
            "surrogate.kl": 0.1,
            "reward.step": -0.1,
            "model.lora.rank": 2,
            "monitor.min_calls": 0.5,
        }
    )
    assert c.sandbox.sizes == Sizes(3, 320, 60, 64, 640)
    limits = Limits(num_tools=21, conditions=True, paging=True)
    assert make.limits_of(c.sandbox) == limits
    assert c.grpo.groups == grpo.Groups(paired=True)
    assert c.ppo.critic == ppo.Critic(gae_lambda=0.5)
    assert c.surrogate.objective == policy_gradient.Surrogate(kl=0.1)
    assert c.reward.weights == {"outcome": 1.0, "step": -0.1}
    assert c.model.lora.adapters and c.model.lora.adapters.rank == 2
    assert c.monitor.bounds["min_calls"] == 0.5
    assert c.model.decoder(99).lora == c.model.lora.adapters
    assert c.paft.schedule(0) == 1.0


@pytest.mark.parametrize(
    ("name", "changes", "rows", "tasks"),
    [
        ("sft", {}, 8, 8),
        ("sft", {"algorithm.num_rows": 3}, 3, 8),
        ("grpo", {"grpo.size": 4, "grpo.oversample": 2}, 32, 16),
        ("ppo", {"grpo.size": 4, "train.batch_size": 16}, 16, 16),
    ],
)
def test_rows_and_tasks_of_a_step(name, changes, rows, tasks):
    c = tiny.full_config(name).replace({"train.batch_size": 8} | changes)
    assert (c.num_rows, c.num_sampled_tasks) == (rows, tasks)


def test_replace():
    c = tiny.full_config()
    new = c.replace({"eval.scenarios": ["unsolvable"], "optim.learning_rate": 1})
    assert new.eval.scenarios == ("unsolvable",)
    assert type(new.optim.learning_rate) is float
    assert new.replace({"eval.scenarios": c.eval.scenarios}).eval == c.eval
    with pytest.raises(dataclasses.FrozenInstanceError):
        c.seed = 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train.num_stepz": 3}, 'train.num_stepz: there is no key "num_stepz"; .*"nu'),
        (
            {"trian.num_steps": 3},
            'trian: there is no key "trian"; did you mean "train"',
        ),
        ({"grpo.twins": True}, "^grpo.twins is now called grpo.paired$"),
        ({"ppo.trace": 0.9}, "^ppo.trace is now called ppo.gae_lambda$"),
        ({"train": 3}, "^train=3 must be a section: set train.NAME instead$"),
        ({"seed": True}, "^seed=True must be a whole number$"),
        ({"seed": 1.0}, "^seed=1.0 must be a whole number$"),
        ({"model.tied": 1}, "^model.tied=1 must be True or False$"),
        ({"name": None}, "^name=None must be a string$"),
        ({"paft.alpha": "much"}, "^paft.alpha='much' must be a number$"),
        ({"eval.scenarios": "x"}, "^eval.scenarios='x' must be a tuple, such as "),
        ({"eval.scenarios": (1,)}, '^eval.scenarios: 1 is not a string; write "1"$'),
    ],
)
def test_wrong_keys_and_types_are_named(changes, message):
    with pytest.raises(UsageError, match=message):
        tiny.full_config().replace(changes)


def test_a_missing_key_is_named():
    c = base.get_config()
    del c.train.batch_size
    with pytest.raises(UsageError, match="^train.batch_size is missing; configs/base"):
        config.resolve(c)


def test_stored_configs(tmp_path):
    """They are read from JSON; keys of later versions get their defaults."""
    file = tmp_path / "config.json"
    with pytest.raises(UsageError, match="is not a workdir of a run: it has"):
        config.stored_config(tmp_path)
    c = tiny.config("paft", seed=5)
    values = config.to_dict(c)
    file.write_text(json.dumps(values))
    assert config.stored_config(tmp_path) == c
    del values["optim"], values["paft"]["paired"]
    file.write_text(json.dumps(values))
    default = tiny.full_config()
    assert config.stored_config(tmp_path) == dataclasses.replace(c, optim=default.optim)
    values["paft"]["twins"] = False
    file.write_text(json.dumps(values))
    message = "config.json: paft.twins is now called paft.paired; rename it there$"
    with pytest.raises(UsageError, match=message):
        config.stored_config(tmp_path)
    file.write_text("[")
    with pytest.raises(UsageError, match="config.json is damaged .*restore it, or use"):
        config.stored_config(tmp_path)


def test_renamed_keys_exist():
    keys = config.flat(tiny.full_config()).keys()
    assert set(base.RENAMED.values()) <= keys and not base.RENAMED.keys() & keys


def test_checked_keys_exist():
    keys = config.flat(tiny.full_config()).keys()
    assert {*checks.SHARES, *checks.MAY_BE_ZERO} <= keys


def test_the_seed_of_a_run_is_that_of_its_manifest(tmp_path):
    assert runs.seed(tmp_path) is None and runs.seed(Path("nano")) is None
    (tmp_path / "manifest.json").write_text('{"seed": 3}')
    assert runs.seed(tmp_path) == 3
