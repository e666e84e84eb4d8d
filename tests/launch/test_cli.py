"""Commands as seen by users: exit codes, one-line errors, and the files they leave."""

import dataclasses
import json
import os
import re
import shutil
import signal
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from launch.common import backbones, model_folders
from openagent_jax.domains import domain_file
from openagent_jax.models import hf, transformer
from tests import tiny
from tests.commands import Done

# Bad use.

PAFT = "--config=configs/paft.py"
GRPO = "--config=configs/grpo.py"
PPO = "--config=configs/ppo.py"
SFT = "--config=configs/sft.py"
DEFAULT = tiny.full_config("paft")
MESH = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
# Arguments, and what the error line must name: the key, and a remedy.
# A value that is stale already does not change in the request as well.
NEVER = '--config.paft.perturbations=("stale_value+query_evolution",)'
BAD_USE = [
    ([], ["--config is missing"]),
    (["--config"], ["Missing value", "config"]),
    (["--config="], ["--config", "empty"]),
    (["--config=configs/nope.py"], ["--config", "No such file", "configs/nope.py"]),
    (
        ["--config=configs/nope.py", "--config.seed=1"],
        ["--config", "No such file", "configs/nope.py"],
    ),
    (["--config=configs"], ["--config", "directory"]),
    (["--config=configs/paft.py:nonsense"], ['":nonsense"', '":smoke"']),
    (["--config=WRONG/syntax.py"], ["--config", "SyntaxError", "syntax.py, line 2"]),
    (["--config=WRONG/imports.py"], ["--config", "nothing_of_that_name"]),
    (["--config=WRONG/old.py"], ["grpo.twins", "called grpo.paired"]),
    (["--config=WRONG/typo.py"], ['train.num_stepz: there is no key "num_stepz"']),
    (["--config=WRONG/lacks.py"], ["--config", "get_config"]),
    (["--cofnig=configs/paft.py"], ["cofnig", "Did you mean: config"]),
    ([PAFT, "--workdri=x"], ["workdri", "Did you mean: workdir"]),
    ([PAFT, "workdir=x"], ['"workdir=x" is not a flag', '"--workdir=x"']),
    ([PAFT, "--workdir"], ["Missing value", "workdir"]),
    (["--config.seed=1", PAFT], ["config.seed", "before", "--config"]),
    ([PAFT, "--config.trian.num_steps=3"], ["--config.trian.num_steps", '"train"']),
    ([PAFT, "--config.train.num_stepz=3"], ["train.num_stepz", '"num_steps"']),
    ([PAFT, "--config.train.qqq=3"], ["--config.train.qqq", "--dry_run"]),
    ([PAFT, "--config.seed.x=3"], ["seed.x", "does not exist"]),
    ([PAFT, "--config.train.num_steps=3.5"], ["config.train.num_steps=3.5", "int"]),
    ([PAFT, "--config.train.num_steps="], ["config.train.num_steps=", "int"]),
    ([PAFT, "--config.optim.learning_rate=fast"], ["learning_rate=fast", "float"]),
    ([PAFT, "--config.model.tied=maybe"], ["config.model.tied=maybe", "boolean"]),
    ([PAFT, "--config.train=3"], ["config.train=3"]),
    ([PAFT, NEVER], ["paft.perturbations", "changes none of 256 sampled tasks of poi"]),
    ([PAFT, "--config.paft.alpha=1.5"], ["paft.alpha=1.5", "from 0 to 1"]),
    ([PAFT, "--config.paft.alpha=-0.1"], ["paft.alpha=-0.1", "from 0 to 1"]),
    ([PAFT, "--config.paft.alpha=nan"], ["paft.alpha=nan", "from 0 to 1"]),
    ([PAFT, "--config.paft.strength=2"], ["paft.strength=2", "from 0 to 1"]),
    ([PAFT, "--config.eval.strength=2"], ["eval.strength=2", "from 0 to 1"]),
    ([PAFT, "--config.optim.learning_rate=-1"], ["optim.learning_rate=-1", "from 0"]),
    ([PAFT, "--config.train.num_steps=0"], ["train.num_steps=0", "from 1"]),
    ([PAFT, "--config.checkpoint.every=0"], ["checkpoint.every=0", "from 1"]),
    ([PAFT, "--config.seed=-1"], ["seed=-1", "from 0"]),
    ([PAFT, f"--config.seed={2**40}"], [f"seed={2**40}", "to 2147483647"]),
    ([PAFT, "--config.optim.name=adam"], ['optim.name="adam"', "adamw"]),
    ([PAFT, "--config.optim.schedule=cos"], ['optim.schedule="cos"', "cosine"]),
    (
        [PAFT, f"--config.optim.warmup_steps={DEFAULT.train.num_steps + 1}"],
        ["optim.warmup_steps=", f"{DEFAULT.train.num_steps}, the number"],
    ),
    ([PAFT, "--config.algorithm.name=sftt"], ["algorithm.name", '"sft"']),
    ([PAFT, "--config.eval.split=tset"], ["eval.split", '"test"']),
    (
        [PAFT, "--config.eval.scenarios=('identity_erasur',)"],
        ["eval.scenarios", '"identity_erasur"', '"identity_erasure"'],
    ),
    ([PAFT, "--config.eval.scenarios=xyz"], ['"xyz"', "distractor_tools, ", "unsolv"]),
    ([PAFT, "--config.eval.scenarios=(1,)"], ["eval.scenarios", '"1"']),
    (
        [PAFT, "--config.eval.scenarios=semantic_trap+runtime_eror"],
        ["eval.scenarios", '"runtime_eror"', 'did you mean "runtime_error"'],
    ),
    (
        [PAFT, "--config.eval.scenarios=runtime_error@2"],
        ["eval.scenarios", '"runtime_error@2"', "from 0 to 1"],
    ),
    (
        [PAFT, "--config.eval.scenarios=papr"],
        ["eval.scenarios", '"papr"', 'did you mean "paper"'],
    ),
    (
        [PAFT, "--config.sandbox.domain=crafting", "--config.eval.scenarios=paper"],
        ["eval.scenarios: the suite paper", "unknown perturbation", "there are"],
    ),
    (
        [PAFT, "--config.eval.scenarios=tool_order+domain_transfer"],
        ["eval.scenarios", "domain_transfer replaces the whole task", "first"],
    ),
    (
        [PAFT, "--config.paft.perturbations=unsolvable+runtime_error+unsolvable"],
        ["paft.perturbations", "names unsolvable twice"],
    ),
    ([PAFT, "--config.paft.perturbations=unsolvabel"], ["paft.pert", '"unsolvable"']),
    (
        [PAFT, "--config.paft.perturbations=('unsolvable','entity_shift')"],
        ["paft.perturbations", '"entity_shift"', "holds out", "remove"],
    ),
    (
        [PAFT, "--config.paft.leave_out=resoning"],
        ["paft.leave_out", '"resoning"', 'did you mean "reasoning"'],
    ),
    (
        [PAFT, "--config.paft.leave_out=entity_shift"],
        ["paft.leave_out", '"entity_shift"', "not trained on"],
    ),
    ([PAFT, "--config.paft.perturbations=()"], ["paft.perturbations", "paft.alpha=0"]),
    ([PAFT, "--config.sandbox.domain=poii"], ["sandbox.domain", "poii", "poi"]),
    ([PAFT, "--config.sandbox.domain=pio,medcal"], ['"pio"', '"medcal"', "medical"]),
    ([PAFT, "--config.sandbox.domain=poi,random"], ["sandbox.domain", "name it alone"]),
    ([PAFT, "--config.sandbox.domain="], ["sandbox.domain", "name one"]),
    ([PAFT, "--config.sandbox.test_domains=nope"], ["sandbox.test_domains", "nope"]),
    ([PAFT, "--config.sandbox.domain_weights=1,2"], ["sandbox.domain_weights", "1 do"]),
    ([PAFT, "--config.sandbox.transfer=nope"], ["sandbox.transfer", "nope"]),
    ([PAFT, "--config.sandbox.transfer=crafting"], ["sandbox.transfer", "medical"]),
    (
        [PAFT, "--config.paft.paired", "--config.paft.alpha=0.5"]
        + ["--config.train.batch_size=3"],
        ["paft.paired", "3 tasks"],
    ),
    ([PAFT, "--config.train.num_tasks=7"], ["num_tasks=7", "8 tasks of a step", "0"]),
    (
        [SFT, "--config.train.num_tasks=9", "--config.data.path=x"],
        ["train.num_tasks=9", "data.path", "0"],
    ),
    ([GRPO, "--config.ppo.gae_lambda=1.5"], ["ppo.gae_lambda=1.5", "from 0 to 1"]),
    ([PAFT, "--config.eval.domain=nope"], ["eval.domain", "nope", "medical"]),
    ([PAFT, "--config.sandbox.domain=random"], ["paft.alpha", "sandbox.domain"]),
    (
        [PAFT, "--config.eval.keep_tokens", "--config.eval.keep=0"],
        ["eval.keep_tokens", "eval.keep above 0"],
    ),
    (
        [PAFT, "--config.sandbox.domain=crafting", "--config.train.shuffle_vectors"],
        ["train.shuffle_vectors", '"crafting"'],
    ),
    (
        [GRPO, "--config.train.other_domains=('random',)"],
        ["train.other_domains", 'algorithm.name="grpo"'],
    ),
    (
        [SFT, "--config.train.other_domains=('nowhere',)"],
        ["train.other_domains", '"nowhere"'],
    ),
    ([GRPO, "--config.train.num_ahead=2"], ["train.num_ahead", "set it to 0"]),
    ([SFT, "--config.train.other_share=1.5"], ["train.other_share=1.5"]),
    ([SFT, "--config.train.lookup_share=1.5"], ["train.lookup_share=1.5"]),
    (
        [
            SFT,
            "--config.train.lookup_share=0.5",
            "--config.algorithm.num_tokens=200",
        ],
        ["algorithm.num_tokens=200", "train.lookup_share", "256 or more"],
    ),
    (
        [GRPO, "--config.train.lookup_share=0.5"],
        ["train.lookup_share", 'algorithm.name="grpo"'],
    ),
    (
        [
            "--config=configs/sft.py",
            "--config.sandbox.domain=random",
            "--config.eval.scenarios=unsolvable",
        ],
        ["eval.scenarios", 'there is no "unsolvable"'],
    ),
    (
        [PAFT, "--config.sandbox.domain=WRONG/d.json"],
        ["sandbox.domain", "d.json", "tools"],
    ),
    (
        [PAFT, "--config.sandbox.domain=WRONG/j.json"],
        ["sandbox.domain", "j.json", "JSON"],
    ),
    (
        [PAFT, "--config.sandbox.num_steps=1"],
        ["sandbox.domain", "poi.json", "num_steps"],
    ),
    ([PAFT, "--config.sandbox.min_visible=9"], ["min_visible=9", "num_visible="]),
    (
        [PAFT, "--config.sandbox.context_tokens=300"],
        ["sandbox.context_tokens=300", "no room", "tokens"],
    ),
    ([PAFT, "--config.init_from=nope"], ['init_from="nope"', "nano", "random"]),
    ([PAFT, "--config.init_from=configs"], ['init_from="configs"', "safetensors"]),
    (
        [PAFT, "--config.init_from=random", "--config.model.tokenizer=configs"],
        ["tokenizer.json", "no such file"],
    ),
    (
        [PAFT, "--config.init_from=random", "--config.model.num_kv_heads=3"],
        ["model", "num_heads=4", "num_kv_heads=3"],
    ),
    (
        [PAFT, "--config.init_from=random", "--config.model.dtype=float64"],
        ["model", "float64", "bfloat16"],
    ),
    (
        [PAFT, "--config.init_from=random", "--config.model.look_back_heads=9"],
        ["model.look_back_heads=9", "model.num_heads=4"],
    ),
    (
        [PAFT, "--config.model.lora.rank=4", "--config.model.lora.targets=('query',)"],
        ["model.lora: targets", '"query"', "q, k, v, o, gate, up, down"],
    ),
    (
        [PAFT, "--config.model.lora.rank=4", "--config.model.lora.alpha=0.0"],
        ["model.lora: alpha=0.0", "more than 0"],
    ),
    ([PAFT, "--config.model.lora.rank=-1"], ["model.lora.rank=-1", "from 0"]),
    (
        [PAFT, "--config.model.lora.rank=4", "--config.optim.train_embedding"],
        ["optim.train_embedding=True", "model.lora.rank=0"],
    ),
    ([PAFT, "--config.train.num_micro_batches=3"], ["num_micro_batches=3", "size="]),
    ([PAFT, "--config.algorithm.num_rows=9"], ["num_rows=9", "train.batch_size=8"]),
    ([GRPO, "--config.algorithm.num_rows=4"], ["num_rows=4", '"grpo"', "set it to 0"]),
    ([PAFT, "--config.data.path=x"], ["paft.alpha=0.7", "data.path", "paft.alpha=0,"]),
    ([GRPO, "--config.data.path=x"], ["data.path", '"grpo"', 'data.path=""']),
    (
        [SFT, "--config.data.path=x"],
        ["data.path", "x holds no dataset", "build --out=x"],
    ),
    ([SFT, "--config.data.num_threads=0"], ["data.num_threads=0", "from 1"]),
    (
        [PAFT, "--config.algorithm.num_rows=4", "--config.algorithm.num_tokens=200"],
        ["algorithm.num_tokens=200", "no room for one demonstration", "380"],
    ),
    (
        [
            PAFT,
            "--config.algorithm.num_rows=3",
            "--config.train.num_micro_batches=2",
        ],
        ["num_micro_batches=2", "algorithm.num_rows=3"],
    ),
    ([GRPO, "--config.grpo.size=1"], ["grpo.size=1", "2 or more"]),
    (
        [SFT, "--config.sandbox.domain=poi,medical:dev"],
        ['"poi", a training domain', '"medical", which is held out'],
    ),
    (
        [SFT, "--config.train.other_domains=('random', 'all_held_out')"],
        ["train.other_domains", '"poi"', '"medical"'],
    ),
    (
        [GRPO, "--config.algorithm.temperature=0.0"],
        ["algorithm.temperature=0.0", "nothing is learned", "1.0"],
    ),
    (
        [PPO, "--config.algorithm.temperature=0.0"],
        ["algorithm.temperature=0.0", "more than 0"],
    ),
    (
        [GRPO, "--config.surrogate.clip_low=-0.1"],
        ["surrogate.clip_low=-0.1", "from 0"],
    ),
    (
        [
            GRPO,
            "--config.paft.paired",
            "--config.paft.alpha=0.5",
            "--config.train.batch_size=3",
            "--config.grpo.oversample=2",
        ],
        ["paft.paired=True", "3 tasks are not pairs"],
    ),
    ([GRPO, "--config.grpo.std=token"], ["grpo.std", "token", "batch, group, none"]),
    ([GRPO, "--config.grpo.twins"], ["--config.grpo.twins", "called grpo.paired"]),
    ([GRPO, "--config.ppo.trace=1.0"], ["--config.ppo.trace", "called ppo.gae_lambda"]),
    ([GRPO, "--config.grpo.paired"], ["grpo.paired=True", "paft.paired=True"]),
    (
        [GRPO, "--config.grpo.paired", "--config.paft.paired"],
        ["grpo.paired=True", "paft.alpha=0.5"],
    ),
    (
        [GRPO, "--config.train.num_minibatches=3"],
        ["train.num_minibatches=3", "train.batch_size * grpo.size=64"],
    ),
    ([GRPO, "--config.surrogate.loss=dapu"], ["surrogate.loss", '"dapo"']),
    ([GRPO, "--config.surrogate.normaliser=x"], ["surrogate.normaliser", "sequence"]),
    (
        [GRPO, "--config.surrogate.kl=0.1", "--config.surrogate.reference=nope"],
        ['surrogate.reference="nope"', "nano", "random"],
    ),
    (
        [
            GRPO,
            "--config.surrogate.kl=0.1",
            "--config.surrogate.reference=random",
            "--config.model.width=64",
        ],
        ['surrogate.reference="random"', "different shape", "init_from"],
    ),
    ([SFT, "--config.model.width=64"], ["model.width does nothing", "=random"]),
    ([SFT, "--config.grpo.size=4"], ["grpo.size does nothing", "=grpo"]),
    ([SFT, "--config.reward.outcome=2.0"], ["reward.outcome does nothing"]),
    ([SFT, "--config.train.other_share=0.5"], ["other_share", "train.other_domains"]),
    (
        [GRPO, "--config.train.shuffle_vectors"],
        ["train.shuffle_vectors", 'algorithm.name="grpo"', "set it to False"],
    ),
    ([SFT, "--workdir=gs://bucket/x"], ["gs://bucket/x is not a folder", "mount"]),
    ([GRPO, "--config.reward.outcome=0.0"], ["reward", "no component has a weight"]),
    ([GRPO, "--config.reward.outcome=nan"], ["reward.outcome=nan", "not a number"]),
    ([GRPO, "--config.reward.outcome=much"], ["reward.outcome", "much"]),
    ([GRPO, "--config.monitor.stop=('entropy',)"], ["monitor.stop", '"min_entropy"']),
    ([PAFT, "--config.paft.paired"], ["paft.alpha=0.7", "paft.paired=True", "0.5"]),
    ([PAFT, "--config.mesh.data=3"], ["mesh.data=3", "1 devices"]),
    ([PAFT, "--config.mesh.data=0"], ["mesh.data=0", "positive"]),
    ([PAFT, "--config.mesh.fsdp=-1"], ["mesh.fsdp=-1", "one may be -1"]),
    ([PAFT, "--distributed"], ["--distributed", "coordinator"]),
]
BAD_USE_OF_MANY = [
    (["--config.mesh.tensor=3"], ["mesh.tensor=3", "8 devices"]),
    (["--config.train.batch_size=12"], ["train.batch_size=12", "mesh.data"]),
    (
        ["--config.train.num_micro_batches=8"],
        ["train.num_micro_batches", "mesh.data"],
    ),
]


def assert_one_line(done: Done, code: int, words) -> None:
    assert (done.code, done.out) == (code, ""), done
    programs = ("train", "evaluate", "export", "data", "report")
    assert done.err.startswith((*(f"{x}.py: " for x in programs), "launch."))
    assert done.err.count("\n") == 1 and done.err.endswith("\n"), done.err
    for word in words:
        assert word in done.err, (word, done.err)


@pytest.fixture(scope="module")
def invalid_files(tmp_path_factory):
    """A folder of invalid files."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "syntax.py").write_text("def get_config():\n  return (\n")
    (folder / "imports.py").write_text("import nothing_of_that_name\n")
    (folder / "lacks.py").write_text("x = 1\n")
    for name, key in (("old", "grpo.twins"), ("typo", "train.num_stepz")):
        (folder / f"{name}.py").write_text(
            f"from configs import base\ndef get_config():\n"
            f"  c = base.get_config()\n  c.{key} = 3\n  return c\n"
        )
    (folder / "j.json").write_text('{"name": ')
    domain = json.loads((domain_file.DOMAINS / "poi.json").read_text())
    del domain["tools"]
    (folder / "d.json").write_text(json.dumps(domain))
    return str(folder)


@pytest.mark.parametrize(("args", "words"), BAD_USE)
def test_bad_use(commands, invalid_files, tmp_path, args, words):
    args = [arg.replace("WRONG", invalid_files) for arg in args]
    extra = [] if "--workdir" in args else [f"--workdir={tmp_path}/w"]
    assert_one_line(commands("train", *extra, *args), 2, words)
    assert not (tmp_path / "w").exists()


def test_published_tables_of_mixed_reports_are_refused(commands, tmp_path):
    """In the terminal there is a warning; what others may read is not written."""
    results = Path(__file__).parents[2] / "docs/results/first"
    old, new = results / "base/report.json", tmp_path / "report.json"
    made = json.loads(old.read_text()) | {"grading_version": "4", "num_tasks": 384}
    new.write_text(json.dumps(made))
    compare = f"--compare=A={old},B={new}"
    done = commands("evaluate", compare)
    assert done.code == 0 and done.out.startswith("Warning: not comparable: num_tasks")
    words = ["num_tasks is 96 (A), 384 (B)", "grading_version is 2 (A), 4 (B)"]
    assert_one_line(commands("evaluate", compare, "--markdown"), 2, words)
    done = commands("evaluate", f"--compare=A={old}+{old}")
    assert_one_line(done, 2, ["--compare: A:", "is named twice"])
    done = commands("evaluate", f"--compare=A={old}", "--markdown")
    assert done.code == 0 and done.out.startswith("Exploratory: n = 50 to 96")


def test_reports_of_different_suites_are_compared_only_if_asked(commands, tmp_path):
    old = Path(__file__).parents[2] / "docs/results/first/base/report.json"
    new, compare = tmp_path / "report.json", f"--compare=A={old},B={tmp_path}"
    made = json.loads(old.read_text()) | {"scenario_set_hash": "0123456789ab"}
    new.write_text(json.dumps(made))
    words = ["the reports are of different suites", "none (A), 0123456789ab (B)"]
    assert_one_line(commands("evaluate", compare), 2, [*words, "--across_suites"])
    joined = f"--compare=A={old}+{new}"
    assert_one_line(commands("evaluate", joined), 2, ["scenario_set_hash is none"])
    for flag in ("--markdown", "--nomarkdown"):
        done = commands("evaluate", compare, "--across_suites", flag)
        assert done.code == 0
        assert "Warning: not comparable: scenario_set_hash is none (A)" in done.out
    assert commands("evaluate", joined, "--across_suites").code == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ([], ["give build or show"]),
        (["--config=configs/sft.py"], ["give build or show"]),
        (["shwo"], ['"shwo" is not a command', "give build or show"]),
        (["show"], ["show: DIR is missing"]),
        (["show", "nowhere"], ["nowhere holds no dataset", "build --out=nowhere"]),
        (["show", "nowhere", "now"], ['"now" is not a flag', '"--now"']),
        (["show", "nowhere", "--num=-1"], ["num", "-1"]),
        (["build"], ["--config is missing"]),
        (["build", SFT], ["--out is missing"]),
        (["build", SFT, "--out=OUT", "x"], ['"x" is not a flag']),
        (["build", "--out=OUT", SFT, "--config.data.num_test=0"], ["num_test=0"]),
        (
            ["build", "--out=OUT", PAFT, NEVER],
            ["changes none of 256 sampled tasks of poi"],
        ),
        (
            [
                "build",
                "--out=OUT",
                PAFT,
                "--config.paft.paired",
                "--config.paft.alpha=0.5",
            ],
            ["paft.paired=True", "set it to False"],
        ),
    ],
)
def test_bad_use_of_data(commands, tmp_path, args, words):
    args = [arg.replace("OUT", f"{tmp_path}/out") for arg in args]
    assert_one_line(commands("data", *args), 2, words)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_build_and_show(commands, tmp_path):
    """A dataset can be shown after it is built, and is not built a second time."""
    small = ["--config.data.num_train=9", "--config.data.num_test=2"]
    small += ["--config.sandbox.max_turns=3", "--config.compile_cache="]
    out = str(tmp_path / "out")
    done = commands("data", "build", SFT, *small, f"--out={out}")
    assert done.code == 0, done.err
    assert re.search(r"\ntrain \d demonstrations \(9 asked for, ", done.out)
    again = commands("data", "build", SFT, *small, f"--out={out}")
    assert_one_line(again, 2, ["--out", "holds a dataset; remove"])
    done = commands("data", "show", out, "--split=test", "--num=1")
    assert done.code == 0, done.err
    assert re.search(r"^domain +poi$", done.out, re.MULTILINE)
    assert re.search(r"^num_tokens +512$", done.out, re.MULTILINE)
    assert "split test" in done.out and "split train" not in done.out
    (episode,) = re.findall(r"<\|system\|>.*", done.out)
    said = re.findall("«(.*?)»", episode)
    assert said and all(text.endswith("<|end|>") for text in said)
    assert "<|end|>" not in re.sub("«.*?»", "", episode)
    done = commands("data", "show", out, "--split=dev")
    assert_one_line(done, 2, ['--split="dev"', "train, test"])


@pytest.mark.parametrize(("args", "words"), BAD_USE_OF_MANY)
def test_bad_use_of_many_devices(commands, tmp_path, args, words):
    random = "--config.init_from=random"
    done = commands("train", f"--workdir={tmp_path}/w", PAFT, random, *args, **MESH)
    assert_one_line(done, 2, words)
    assert not (tmp_path / "w").exists()


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1000])


def delete_a_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def change_the_architecture(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "gemma3"}')


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda folder: cut(folder / "model.safetensors"),
            ["/model.safetensors: "],
        ),
        (delete_a_shard, ["model-00002-of-00002.safetensors: no such file"]),
        (change_the_architecture, ["config.json: model_type", "gemma3"]),
        (lambda folder: (folder / "a.gguf").write_bytes(b"GGUF"), ["a.gguf: damaged"]),
    ],
    ids=["cut off", "shard", "architecture", "gguf"],
)
def test_bad_weights(commands, tmp_path, spoil, words):
    folder = tmp_path / "model"
    shutil.copytree(model_folders.BUILTIN / "nano", folder)
    spoil(folder)
    name = next(folder.glob("*.gguf"), folder)
    args = [f"--workdir={tmp_path}/w", PAFT, f"--config.init_from={name}"]
    for command in ("evaluate", "train"):
        done = commands(command, *args, HOME=str(tmp_path))
        assert_one_line(done, 2, ["init_from=", *words])
    assert not (tmp_path / "w").exists()


@pytest.mark.slow
def test_export(commands, tmp_path):
    """The weights of the run, with the other files of the model it started from."""
    source, out, work = (tmp_path / name for name in ("source", "out", "w"))
    nano = backbones.backbone(tiny.full_config())
    config = dataclasses.replace(nano.config, qkv_bias=True)
    params = transformer.make_policy(config).init(jax.random.key(1))
    hf.save(source, config, params, nano.folder)
    (source / "chat_template.jinja").write_text("{{ messages }}")
    c = tiny.full_config().replace({"init_from": str(source)})
    trained = jax.tree.map(lambda x: x + 1, params)
    tiny.save_run(work, c, backbones.backbone(c), trained)
    done = commands("export", f"--workdir={work}", f"--out={out}")
    assert (done.code, done.err) == (0, "") and "step 3" in done.out
    assert hf.load(out)[0] == config
    jax.tree.map(np.testing.assert_array_equal, hf.load(out)[1], trained)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    fields = json.loads((out / "config.json").read_text())
    assert fields["architectures"] == ["Qwen2ForCausalLM"]
    done = commands("export", f"--workdir={work}", f"--out={work}")
    assert_one_line(done, 2, [f"--out={work} is the workdir of a run"])
    done = commands("export", f"--workdir={work}", "--out=")
    assert_one_line(done, 2, ["--out is missing"])
    # Export again, from a run that does not exist: the folder is left intact.
    done = commands("export", f"--workdir={tmp_path}/nowhere", f"--out={out}")
    assert_one_line(done, 2, ["nowhere is not a workdir"])
    assert hf.load(out)[0] == config


# Real signals to a real process.

SMALL = [
    f"--config.{key}={value}"
    for key, value in tiny.SFT_CHANGES.items()
    if key not in ("compile_cache", "train.num_steps", "checkpoint.every")
] + [f"--config.paft.perturbations={tiny.FEW}"]
# The programs of all tests; see tests/conftest.py.
SMALL.append(f"--config.compile_cache={os.environ['JAX_COMPILATION_CACHE_DIR']}")


def steps_of(workdir: Path) -> list[int]:
    """The steps in metrics.jsonl with a training loss."""
    try:
        lines = (workdir / "metrics.jsonl").read_text().splitlines()
    except OSError:
        return []
    written = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["step"] for line in written if "train/loss" in line]


def wait_until(condition, seconds=240):
    end = time.time() + seconds
    while not condition():
        assert time.time() < end, "it never happened"
        time.sleep(0.02)


@pytest.mark.slow
def test_resumes_after_sigkill_and_sigterm(commands, tmp_path):
    """kill -9 loses at most `checkpoint.every` steps; SIGTERM loses none and exits with
    143; the same command continues the run both times."""
    workdir = tmp_path / "w"
    args = [f"--workdir={workdir}", PAFT, *SMALL, "--config.train.num_steps=100"]
    args += ["--config.checkpoint.every=20"]

    pid = commands.start("train", *args)
    wait_until(lambda: steps_of(workdir)[-1:] >= [33])
    os.kill(pid, signal.SIGKILL)
    assert commands.wait().code == -signal.SIGKILL
    reached = steps_of(workdir)[-1]

    pid = commands.start("train", *args)
    wait_until(lambda: "from step" in commands.output())
    resumed = int(re.search(r"from step (\d+)", commands.output())[1])
    assert resumed % 20 == 0 and reached - 20 <= resumed <= reached
    wait_until(lambda: steps_of(workdir)[-1:] >= [reached + 3])  # steps that are new
    os.kill(pid, signal.SIGTERM)
    done = commands.wait()
    assert done.code == 143, done
    last = steps_of(workdir)[-1]
    assert last < 100
    assert max(int(p.name) for p in workdir.glob("checkpoints/[0-9]*")) == last

    done = commands("train", *args)
    assert done.code == 0, done.err
    assert f"from step {last}" in done.out
    assert steps_of(workdir) == list(range(1, 101))
    assert list(workdir.glob("eval/100/report.json"))


@pytest.mark.slow
def test_the_report_of_adapters_is_reproduced(commands, tmp_path):
    args = [f"--workdir={tmp_path}/w", PAFT, *SMALL, "--config.train.num_steps=3"]
    args += ["--config.model.lora.rank=2", "--config.optim.learning_rate=0.1"]
    done = commands("train", *args)
    assert done.code == 0, done.err
    assert re.search(r"paft: [0-9,]+ parameters beside [0-9,]+, 3 steps", done.out)
    report = tmp_path / "w" / "eval" / "3" / "report.json"
    first = report.read_text()
    manifest = tmp_path / "w" / "manifest.json"
    ended = json.loads(manifest.read_text())["ended"]
    for command in (["evaluate", args[0]], ["train", *args]):
        report.unlink()
        done = commands(*command)
        assert done.code == 0, done.err
        assert report.read_text() == first
    assert json.loads(manifest.read_text())["ended"] == ended


def test_one_page_of_several_runs(commands, tmp_path):
    results = Path(__file__).parents[2] / "docs/results/first"
    page = tmp_path / "x.html"
    runs = f"SFT={results}/sft_0+{results}/sft_1", f"{results}/paft_0/report.json"
    done = commands("report", *runs, f"--out={page}")
    assert (done.code, done.out, done.err) == (0, f"report: {page}\n", "")
    text = page.read_text("utf-8")
    assert "Differences from SFT" in text and "SFT and paft_0<" in text
    picture = tmp_path / "x.svg"
    assert commands("report", f"--out={picture}", *runs).code == 0
    assert picture.read_text("utf-8").startswith("<svg ")


def test_reports_that_cannot_be_shown(commands, tmp_path):
    old = Path(__file__).parents[2] / "docs/results/first/base/report.json"
    page, picture = f"--out={tmp_path}/x.html", f"--out={tmp_path}/x.svg"
    made = json.loads(old.read_text())
    for name, change in (
        ("suite", {"scenario_set_hash": "0123456789ab"}),
        ("other", {"grading_version": "4"}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(json.dumps(made | change))
    (tmp_path / "empty").mkdir()
    mixed = f"A={old}", f"B={tmp_path}/suite"
    for args, words in (
        ([page], ["RUN is missing"]),
        ([f"{tmp_path}/empty", page], [f"{tmp_path}/empty", "no report to read"]),
        ([f"A={old}", f"A={old}", page], ['two columns are called "A"']),
        ([str(old), f"--out={tmp_path}/x.pdf"], ["neither .html nor .svg"]),
        ([str(old), f"--out={tmp_path}/no/x.html"], ["there is no folder"]),
        ([str(old), "--across_suite=1", page], ["across_suite"]),
        ([*mixed, page], ["none (A), 0123456789ab (B)", "--across_suites"]),
        ([f"A={old}", f"B={tmp_path}/other", picture], ["grading_version is 2 (A)"]),
    ):
        assert_one_line(commands("report", *args), 2, words)
    assert not [*tmp_path.glob("x.*")]
    assert commands("report", *mixed, page, "--across_suites").code == 0
    # A page may show what cannot be compared, and says so; a picture could not.
    done = commands("report", f"A={old}", f"B={tmp_path}/other", page)
    text = (tmp_path / "x.html").read_text("utf-8")
    assert done.code == 0 and "cannot be compared, since grading_version is" in text


def test_a_page_of_half_written_episodes(commands, tmp_path):
    """What is whole is shown, and one line says what was dropped."""
    old = Path(__file__).parents[2] / "docs/results/first/base/report.json"
    kept = tmp_path / "run/eval/5/trajectories"
    kept.mkdir(parents=True)
    (kept.parent / "report.json").write_text(old.read_text())
    line = json.dumps({"scenario": "clean", "index": 0, "success": True})
    (kept / "clean.jsonl").write_text(f"{line}\n{line[:9]}")
    done = commands("report", f"{tmp_path}/run", f"--out={tmp_path}/x.html")
    assert done.code == 0 and done.err.count("\n") == 1
    assert done.err.startswith(f"launch.report: dropped: {kept}/clean.jsonl: 1 of 2")
    assert "Dropped: " in (tmp_path / "x.html").read_text("utf-8")
