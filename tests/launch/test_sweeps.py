"""Sweeps: what is planned, and what is refused before anything runs."""

import json
import pathlib

import pytest

from configs.paper import abstain, alpha, data_and_steps, methods, smollm2, study
from launch.common import config, runs
from launch.common.errors import UsageError
from launch.sweeps import plans
from tests import fake_runs
from tests.fake_runs import make_plan

FAKE = "tests.fake_runs"
PAFT = "--config=configs/paft.py"
SMALL = [PAFT, "--sweep=paft.alpha=0,0.7", "--sweep=seed=0..1"]
BAD_USE = [
    ([], ["give either --config or --study"]),
    ([PAFT, "--study=configs/paper/alpha.py"], ["give either --config or --study"]),
    ([PAFT], ["a sweep needs several runs", "--sweep", "--ablate"]),
    ([PAFT, "--sweep=paft.alhpa=0,1"], ["paft.alhpa", 'did you mean "alpha"']),
    ([PAFT, "--sweep=paft.twins=True"], ["paft.twins", "now called paft.paired"]),
    ([PAFT, "--sweep=seed=0", "--config.paft.alhpa=1"], ['"alhpa"', '"alpha"']),
    ([PAFT, "--sweep=paft.alpha=0,much"], ["paft.alpha=much", "float"]),
    ([PAFT, "--sweep=paft.alpha=0,1.5"], ["paft.alpha=1.5", "from 0 to 1"]),
    ([PAFT, "--sweep=train.num_steps=5,5.5"], ["train.num_steps=5.5", "int"]),
    ([PAFT, "--sweep=seed=one"], ['"one"', "not a number"]),
    ([PAFT, "--sweep=seed"], ["--sweep=seed", "--sweep=seed=0..4"]),
    ([PAFT, "--sweep=seed="], ["--sweep=seed=", "no run is left"]),
    ([PAFT, "--sweep=seed=4..0"], ["seed=4..0", "no run is left"]),
    ([PAFT, "--sweep=seed=0,1,0"], ["0 is named twice"]),
    ([PAFT, "--sweep=paft.alpha=0.7,0.70"], ["alpha=0.7 and paft.alpha=0.70 are"]),
    (
        [PAFT, "--sweep=seed=0", "--sweep=seed=1"],
        ["two sweeps of seed", "all values in one"],
    ),
    (
        [PAFT, "--sweep=eval.num_tasks=96,384"],
        ["eval.num_tasks is 96", "384", "could not be compared"],
    ),
    (
        [PAFT, "--sweep=sandbox.domain=poi,banking"],
        ["suite is poi", "banking", "could not be compared"],
    ),
    ([PAFT, "--ablate=no_semantic_trp"], ['"semantic_trp"', '"semantic_trap"']),
    ([PAFT, "--ablate=semantic_trap"], ["no_KIND, tier:TIER", "no_semantic_trap"]),
    ([PAFT, "--ablate=tier:query"], ["tier:query", '"query"', "reasoning"]),
    ([PAFT, "--ablate=kind:entity_shift"], ['"entity_shift" is left out', "trained"]),
    ([PAFT, "--ablate=no_rate_limit", "--ablate=kind:rate_limit"], ["named twice"]),
    (["--config=configs/sft.py", "--ablate=shift:query"], ["paft.alpha=0"]),
    ([PAFT, "--sweep=seed=0..1", "--max_runs=0"], ["max_runs"]),
    ([PAFT, "seed=0..1"], ['"seed=0..1" is not a flag']),
    (["--study=configs/paper/nope.py"], ["--study=configs/paper/nope.py", "No such"]),
    (["--study=configs/paft.py"], ["--study=configs/paft.py", "get_study"]),
    (["--study=configs/paper/smollm2.py:cpuu"], [":cpuu", ":cpu", ":smoke"]),
    (["--study=configs/paper/alpha.py", "--sweep=grpo.size=2,4"], ["grpo.size does n"]),
    (["--study=configs/paper/alpha.py:fast"], [":fast", ":smoke"]),
]


@pytest.mark.parametrize(("args", "words"), BAD_USE)
def test_bad_use(commands, tmp_path, args, words):
    done = commands("ablate", f"--workdir={tmp_path}/w", *args)
    assert (done.code, done.out) == (2, ""), done
    assert done.err.startswith("ablate.py: ") and done.err.count("\n") == 1
    for word in words:
        assert word in done.err, (word, done.err)
    assert not (tmp_path / "w").exists()


def test_the_list_of_runs(commands, tmp_path):
    """Each run with its difference from the base, and with times once there are any."""
    folder = tmp_path / "w"
    words = [*SMALL, "--ablate=tier:reasoning", f"--workdir={folder}"]
    words = [x.replace("alpha=0,", "alpha=0.1,") for x in words]
    listed = commands("ablate", *words, "--dry_run").out.splitlines()
    assert listed[0] == f"8 runs in {folder}, 0 of them done"
    assert listed[
        2
    ].split() == "paft.alpha=0.1_0 not measured; paft.alpha 0.7 ->".split() + ["0.1"]
    assert "paft.alpha 0.7 -> 0.1, paft.leave_out () -> (reasoning)" in listed[3]
    assert listed[4].endswith("not measured; the base")
    assert listed[-1].startswith("Nothing has been measured yet.")
    assert not folder.exists()
    assert commands(FAKE, *words, "--max_runs=1").code == 0
    listed = commands("ablate", *words, "--dry_run").out.splitlines()
    assert "1 of them done" in listed[0] and " done; " in listed[2]
    # 600 steps of 0.5 s.
    said = "about 5 min (600 steps of 0.5 s, and 0 s for compiling and evaluating, "
    assert f"{said}as in paft.alpha=0.1_0)" in listed[3]
    assert listed[-1] == "All together: about 35 min."


def test_what_is_left_out_should_be_evaluated(commands, tmp_path):
    words = [PAFT, "--ablate=no_rate_limit", "--ablate=shift:query", "--dry_run"]
    words.append(f"--workdir={tmp_path}")
    out = commands("ablate", *words).out
    assert out.startswith("note: no run is evaluated on rate_limit; name it in eval.")
    words.append("--config.eval.scenarios=('default','rate_limit')")
    assert "note" not in commands("ablate", *words).out


def test_a_folder_of_another_run_is_refused(commands, tmp_path):
    words = [*SMALL, f"--workdir={tmp_path}"]
    assert commands(FAKE, *words, "--max_runs=1").code == 0
    done = commands(FAKE, *words, "--config.train.num_steps=90", "--max_runs=1")
    assert done.code == 2 and done.err.count("\n") == 1
    for word in ("paft.alpha=0_0 holds a run", "num_steps is 600 there, 90 here"):
        assert word in done.err


def test_a_run_from_before_a_key_existed_is_the_same_run(tmp_path):
    (run, *_) = make_plan(tmp_path, "paft.alpha=0,0.7").runs
    fake_runs.leave(run)
    file = run.workdir / "config.json"
    stored = json.loads(file.read_text())
    del stored["train"]["num_tasks"]
    file.write_text(json.dumps(stored))
    runs.check_same(run.workdir, run.config)
    with pytest.raises(UsageError, match="train.num_tasks is 0 there, 9 here"):
        runs.check_same(run.workdir, run.config.replace({"train.num_tasks": 9}))


def test_values_may_be_tuples_and_strings(tmp_path):
    plan = make_plan(
        tmp_path,
        "paft.leave_out=('semantic_trap','query'),()",
        "optim.name=adamw,muon",
        "model.remat=full",
    )
    found = [(x.config.paft.leave_out, x.config.optim.name) for x in plan.runs[:4]]
    assert found == [
        (("semantic_trap", "query"), "adamw"),
        (("semantic_trap", "query"), "muon"),
        ((), "adamw"),
        ((), "muon"),
    ]
    assert plan.base == "paft.leave_out=(),optim.name=adamw"
    assert "remat" not in plan.runs[0].name and "/" not in plan.runs[0].name
    assert plan.changes(plan.runs[1].setting.name) == {
        "paft.leave_out": ((), ("semantic_trap", "query")),
        "optim.name": ("adamw", "muon"),
    }


def test_the_base_of_a_sweep(tmp_path):
    """The config as it is, with what changes in all runs; or what the study names."""
    plan = make_plan(tmp_path, "train.num_steps=50", "paft.alpha=0,0.7")
    assert plan.base == "paft.alpha=0.7"
    assert make_plan(tmp_path, "paft.alpha=0.1,0.2").base == "paft.alpha=0.1"
    assert make_plan(tmp_path, "train.num_steps=50").base == "base"
    made = plans.swept(data_and_steps.get_study(), ["optim.learning_rate=0.001,0.002"])
    plan = plans.plan(made, tmp_path)
    last = "train.num_tasks=8000,train.num_steps=1200"
    assert plan.base == f"{last},optim.learning_rate=0.001"
    assert len(plan.settings) == 18


@pytest.mark.parametrize("name", ["abstain", "alpha", "data_and_steps", "methods"])
@pytest.mark.parametrize("arg", ["", "smoke"])
def test_studies(tmp_path, name, arg):
    file = f"configs/paper/{name}.py" + (f":{arg}" if arg else "")
    made, about = plans.load(file)
    plan = plans.plan(made, tmp_path)
    assert made.seeds == study.SEEDS
    assert f"python -m launch.ablate --study=configs/paper/{name}.py" in about
    for word in ("arXiv 2607.01084", "Time:", "Result:"):
        assert word in about
    tasks = {run.config.eval.num_tasks for run in plan.runs}
    assert tasks == ({study.NUM_TASKS} if not arg else {8})


def test_what_the_studies_compare(tmp_path):
    plan = plans.plan(alpha.get_study(), tmp_path)
    assert [plan.changes(x) for x in plan.settings][:2] == [
        {},
        {"paft.alpha": (0.0, 0.3)},
    ]
    plan = plans.plan(abstain.get_study(), tmp_path)
    assert len(plan.runs) == 25 and plan.base == "paft_half"
    after = {run.after for run in plan.runs if run.setting.name != "paft_half"}
    assert after == {f"paft_half_{seed}" for seed in study.SEEDS}
    plan = plans.plan(data_and_steps.get_study(), tmp_path)
    assert len(plan.settings) == 9 and plan.base == [*plan.settings][-1]
    changed = {key for x in plan.settings for key in plan.changes(x)}
    assert changed == {"train.num_tasks", "train.num_steps"}


def test_budgets_of_methods_are_equal(tmp_path):
    """Two halves, of reinforcement learning or of SFT steps, cost one full run."""
    plan = plans.plan(methods.get_study(), tmp_path)
    for run in plan.runs:
        c, half = run.config, bool(run.after) or "half" in run.name
        if not run.setting.is_trained:
            continue
        if c.algorithm.is_reinforcement:
            assert c.train.max_tokens == methods.TOKENS // (2 if half else 1)
        else:
            steps = methods.STEPS[pathlib.Path(run.setting.config).stem]
            assert c.train.num_steps == steps // (2 if half else 1)
        if run.after:
            assert c.init_from == (tmp_path / run.after).as_posix()
            assert run.after.endswith(f"half_{run.seed}")


def test_the_study_of_a_pretrained_model(tmp_path):
    plan = plans.plan(smollm2.get_study(), tmp_path)
    assert [*plan.settings] == [
        *("shipped", "sft", "paft", "sft_whole", "paft_whole"),
        *("grpo", "sft_grpo", "paft_grpo"),
    ]
    assert plan.base == "shipped" and len(plan.of("sft")) == 3
    assert plan.of("sft_grpo")[0].after == "sft_0"
    assert {run.config.eval.num_tasks for run in plan.runs} == {study.NUM_TASKS}
    short = plans.plan(smollm2.get_study(smollm2.CPU), tmp_path)
    assert [run.name for run in short.runs] == ["shipped", "sft_0", "paft_0"]
    assert {len(run.config.eval.scenarios) for run in short.runs} == {11}
    assert plans.plan(smollm2.get_study("smoke"), tmp_path).runs


def test_a_report_of_another_config_does_not_count(tmp_path):
    """Of a model that is evaluated as it is, which has no folder with its config."""
    plan = plans.plan(smollm2.get_study(smollm2.CPU), tmp_path)
    (run,) = (run for run in plan.runs if not run.setting.is_trained)
    assert run.report is None
    file = run.workdir / "eval/0/report.json"
    file.parent.mkdir(parents=True)
    ours = config.config_hash(run.config)
    for made, counts in (
        ({}, True),  # of an earlier version
        ({"config_hash": "0" * 16}, False),
        ({"config_hash": ours}, True),
    ):
        file.write_text(json.dumps(made))
        assert run.report == (file if counts else None)


def test_a_setting_starts_from_one_before_it(tmp_path):
    late = study.Setting("a", "configs/grpo.py", after="b")
    start = study.Setting("b", "configs/sft.py")
    with pytest.raises(UsageError, match="a: it starts from b, which is not among"):
        plans.plan(study.Study((late, start)), tmp_path)
