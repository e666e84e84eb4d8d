"""Every config resolves, states its command and result, and trains one step."""

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from launch.common import backbones, checks, config, placement
from openagent_jax.domains import library
from tests import tiny

NAMES = sorted(path.stem for path in Path("configs").glob("*.py"))
CASES = [(name, arg) for name in NAMES for arg in ("", "smoke")]
COMPILE_LONG = {"base", "grpo", "ppo", "pretrain", "smollm2"}
STAGES = [("pretrain", "start"), ("pretrain", "short")]  # trained by hand
CASES += STAGES
COMPILED = []  # an entry for each program that XLA has made


@jax.monitoring.register_event_duration_secs_listener
def _listen(event, seconds, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(seconds)


def get_config(name, arg=""):
    return importlib.import_module(f"configs.{name}").get_config(arg)


@pytest.mark.parametrize(("name", "arg"), CASES)
def test_config_passes_all_checks(name, arg):
    c = tiny.full_config(name, arg)
    checks.check(c)
    placement.mesh(c, jax.devices()[:1] if arg else None)  # smoke runs fit on one
    assert c.name == (f"{name}_{arg}" if arg else name)


@pytest.mark.parametrize("name", NAMES)
def test_other_arguments_are_refused(name):
    with pytest.raises(ValueError, match=':nonsense" is not'):
        get_config(name, "nonsense")


@pytest.mark.parametrize("name", NAMES)
def test_docstring_states_command_delta_time_and_result(name):
    doc = importlib.import_module(f"configs.{name}").__doc__
    assert f"python -m launch.train --config=configs/{name}.py" in doc
    if name != "base":
        for word in ("Differs from `", "Time", "esult:"):
            assert word in doc


@pytest.mark.parametrize("arg", ["", "smoke"])
def test_paft_differs_from_sft_by_alpha_alone(arg):
    sft, paft = (config.flat(tiny.full_config(x, arg)) for x in ("sft", "paft"))
    assert {key for key in sft if sft[key] != paft[key]} == {"name", "paft.alpha"}


def test_checks_compile_nothing():
    """So `--dry_run` is fast for any model."""
    c = tiny.full_config("paft").replace({"init_from": "random"})
    before = len(COMPILED)
    checks.check(c)
    placement.mesh(c)
    model = backbones.backbone(c)
    assert len(COMPILED) == before
    backbones.first_params(c, model)
    assert len(COMPILED) > before


@pytest.mark.parametrize(
    ("name", "arg"),
    [
        pytest.param(
            *case,
            marks=[pytest.mark.hours]
            if case in STAGES
            else [pytest.mark.slow] * (case[0] in COMPILE_LONG),
        )
        for case in CASES
        if case[0] != "paft_grpo"
    ],
)
def test_trains_one_step(name, arg):
    """The smoke form of each: most share a program, so little is compiled. `paft_grpo`,
    which takes longest to compile, is trained in `test_reinforcement`."""
    c = tiny.config(name, arg)
    if c.sandbox.domain_weights:  # two of its many domains, which take minutes to make
        domains = f"{library.PRETRAIN[0]},{library.INVENTED[0]}"
        c = c.replace({"sandbox.domain": domains, "sandbox.domain_weights": "2,1"})
    if c.paft.alpha and name != "paft":  # which has all of them
        c = c.replace({"paft.perturbations": (*tiny.FEW, *c.paft.leave_out)})
    step, state = tiny.trainer(c)
    new, metrics = step(state)
    vocab_size = backbones.backbone(c).config.vocab_size
    if c.algorithm.name == "sft":
        assert metrics["train/loss"] == pytest.approx(np.log(vocab_size), rel=0.1)
        assert metrics["train/num_loss_tokens"] > 0 and metrics["train/grad_norm"] > 0
    else:  # with random weights, actions never end
        assert metrics["entropy"] == pytest.approx(np.log(vocab_size), rel=0.1)
        assert metrics["completions/mean_length"] == 6 * 10
    assert new.step == 1
