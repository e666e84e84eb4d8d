"""Runs that train only adapters: what changes, what is saved, and what is restored."""

import contextlib
import dataclasses
import json
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.common import backbones, compiled_step, runs
from launch.common import config as configs
from launch.common.errors import UsageError
from openagent_jax import optim, rollout, train_step
from openagent_jax.algorithms import policy_gradient, ppo
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.models import hf, lora, transformer
from openagent_jax.types import TrainState
from tests import helpers, tiny

pytestmark = pytest.mark.slow

RANK = 3


def config(name="sft", **changes):
    return tiny.config(name, **{"model__lora__rank": RANK} | changes)


def play(step, state, num_steps):
    state, lines = tiny.copy(state), []
    for _ in range(num_steps):
        state, metrics = step(state)
        lines.append({name: float(value) for name, value in metrics.items()})
    return state, lines


def same(a, b) -> bool:
    return jax.tree.structure(a) == jax.tree.structure(b) and jax.tree.all(
        jax.tree.map(np.array_equal, a, b)
    )


def num_bytes(tree) -> int:
    return sum(x.nbytes for x in jax.tree.leaves(tree))


def save(workdir, c, state, step):
    """Save what `launch.train` leaves behind."""
    workdir.mkdir()
    (workdir / "config.json").write_text(json.dumps(configs.to_dict(c)))
    runs.save_model(workdir / "model", backbones.backbone(c))
    meta = {runs.FROZEN: runs.digests(state.frozen)}
    with contextlib.closing(Checkpoints(workdir / "checkpoints")) as checkpoints:
        checkpoints.save(step, train_step.without_frozen(state), {}, meta)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """`(workdir, config, state)` after three steps."""
    c, workdir = config(), tmp_path_factory.mktemp("runs") / "run"
    state, _ = play(*tiny.trainer(c), 3)
    save(workdir, c, state, 3)
    return workdir, c, state


def test_only_adapters_are_trained(trained):
    """The model itself stays bit for bit the same, and has no optimizer moments."""
    _, c, state = trained
    start = tiny.trainer(c)[1]
    base = backbones.first_params(c, backbones.backbone(c))
    assert same(state.frozen, jax.device_get(base))
    assert set(start.params) == set(state.params) == {lora.LORA}
    before, after = (jax.tree.leaves(x.params) for x in (start, state))
    assert len(before) == 14 and num_bytes(before) > 0
    for a, b in zip(before, after, strict=True):
        assert np.any(a != b)
    moments = [x for x in jax.tree.leaves(state.opt_state) if x.ndim]
    assert num_bytes(moments) == 2 * num_bytes(after)


def test_checkpoints_hold_only_adapters(trained):
    workdir, c, state = trained
    record = json.loads(
        (workdir / "checkpoints" / "3" / "record" / "metadata").read_text()
    )
    names = [name for name in record["arrays"] if name not in ("step", "key")]
    assert len(names) == 14 * 3 + 2  # with two moments each, and two counters
    assert all("lora" in x for x in names if not x.endswith("count"))
    files = (workdir / "checkpoints" / "3" / "state").rglob("*")
    size = sum(file.stat().st_size for file in files if file.is_file())
    assert size < num_bytes(state.frozen)
    model, params, at = backbones.restore(workdir)
    assert at == 3 and model.config.lora == lora.Lora(RANK)
    assert same(params, jax.device_get(train_step.all_params(state)))


def test_resumes_bit_for_bit(trained):
    workdir, c, _ = trained
    step, state = tiny.trainer(c)
    whole, _ = play(step, state, 5)
    with contextlib.closing(
        Checkpoints(workdir / "checkpoints", read_only=True)
    ) as checkpoints:
        restored, at, _ = checkpoints.restore(train_step.without_frozen(state))
    assert at == 3 and restored.frozen == {}
    resumed = dataclasses.replace(restored, frozen=tiny.copy(state).frozen)
    resumed, _ = play(step, resumed, 2)
    for name in ("params", "opt_state", "step", "frozen"):
        assert same(*(getattr(x, name) for x in (resumed, whole)))


def test_devices_and_micro_batches_change_nothing():
    one = play(*tiny.trainer(config()), 3)[1]
    split = dict(mesh__data=2, mesh__fsdp=2, mesh__tensor=2)
    c = config(train__num_micro_batches=2, **split)
    step, state = tiny.trainer(c, 8)
    for part in (state.frozen["embed"], state.params[lora.LORA]["layers"]["q"]["a"]):
        assert len(part.sharding.device_set) == 8
        assert not part.sharding.is_fully_replicated
    eight = play(step, state, 3)[1]
    assert one[0] == pytest.approx(eight[0], rel=1e-5, abs=1e-5)
    losses = ([line["train/loss"] for line in lines] for lines in (one, eight))
    np.testing.assert_allclose(*losses, rtol=1e-5)
    assert len({line["train/loss"] for line in one}) == 3


def test_a_run_starts_from_merged_adapters(trained):
    """Through `init_from`, with adapters of its own or without."""
    workdir, _, state = trained
    expected = lora.merge(lora.Lora(RANK), jax.device_get(train_step.all_params(state)))
    for rank in (0, 2):
        c = tiny.config("sft", init_from=str(workdir), model__lora__rank=rank)
        model = backbones.backbone(c)
        assert (model.config.lora is None) == (rank == 0)
        found = backbones.first_params(c, model)
        assert same(jax.device_get(found), jax.device_get(expected))


def test_exported_models_have_no_adapters(trained, tmp_path):
    workdir, c, state = trained
    command = f"-m launch.export --workdir={workdir} --out={tmp_path}".split()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    config_, weights = hf.load(tmp_path)
    policy, tokens = backbones.backbone(c).policy, jnp.arange(20)[None]
    params = jax.device_get(train_step.all_params(state))

    def logits(policy, params):
        hidden = policy.hidden(params, tokens, tokens, tokens >= 0)
        return policy.head(params, hidden)

    got = logits(transformer.make_policy(config_), weights)
    np.testing.assert_allclose(got, logits(policy, params), atol=1e-5)
    assert np.abs(got - logits(policy, state.frozen)).max() > 1e-4
    assert (tmp_path / "tokenizer.json").is_file()


def test_adapters_of_a_model_with_adapters(trained, tmp_path):
    """A run finds the weights that it was trained with, even through several runs."""
    workdir, folder = trained[0], tmp_path / "run"
    c = config(init_from=str(workdir), model__lora__rank=2)
    model = backbones.backbone(c)
    frozen = backbones.first_params(c, model)
    params = lora.init(model.config.lora, jax.random.key(0), frozen)
    save(folder, c, TrainState(jnp.int32(1), params, (), jax.random.key(0), frozen), 1)
    _, found, _ = backbones.restore(folder)
    assert same(found, {**params, **frozen})


def test_a_missing_or_changed_base_model(trained, tmp_path):
    workdir, folder = tmp_path / "run", tmp_path / "base"
    shutil.copytree(trained[0], workdir)
    model = backbones.backbone(trained[1])
    params = backbones.first_params(trained[1], model)
    hf.save(folder, model.config, params)
    model.tokenizer.save(str(folder / "tokenizer.json"))
    c = config(init_from=str(folder))
    (workdir / "config.json").write_text(json.dumps(configs.to_dict(c)))
    backbones.restore(workdir)  # the weights are unchanged

    hf.save(folder, model.config, {**params, "norm": params["norm"] + 1e-3})
    with pytest.raises(UsageError) as error:
        backbones.restore(workdir)
    message = str(error.value)
    assert message.startswith(f'{workdir}: its adapters were trained with a "norm" ')
    assert "other than the one found now; restore the model" in message
    shutil.rmtree(folder)
    with pytest.raises(UsageError) as error:
        backbones.restore(workdir)
    message = str(error.value)
    assert message.startswith(f"{workdir} holds adapters alone, and needs its init_f")
    assert f'init_from="{folder}" is neither a folder' in message
    assert "\n" not in message


# On the shipped backbone.


def test_learns():
    """A few steps at a high learning rate, in bfloat16, lower the loss.

    Without learning, the loss of the same steps does not fall (0.26 after 0.23).
    """
    c = config(
        init_from="nano",
        model__dtype="bfloat16",
        model__lora__rank=8,
        algorithm__num_tokens=192,
        optim__learning_rate=1e-3,
    )
    losses = [line["train/loss"] for line in play(*tiny.trainer(c), 12)[1]]
    assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:2])


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_the_frozen_base_is_the_kl_reference(name):
    """No second model is held in memory; a named reference is, but it is not saved."""
    c = config(name, surrogate__kl=0.1)
    model = backbones.backbone(c)
    plain = backbones.first_params(c, model)

    def start(c, model, reference):
        state = compiled_step.initial_state(
            c, model, plain, reference, jax.random.key(0)
        )
        return state.params, state.frozen

    params, frozen = start(c, model, None)
    assert set(params) == {lora.LORA} | ({ppo.VALUE} if name == "ppo" else set())
    assert same(frozen, plain)
    c = c.replace({"surrogate.reference": "random"})
    again, beside = start(c, model, plain)
    assert same(again, params)
    assert same(beside, {**frozen, optim.REFERENCE: plain})


def test_kl_penalty_refers_to_the_base_model(trained):
    """The KL penalty refers to that model unless another is named, here zeros."""
    _, c, state = trained
    policy, params = backbones.backbone(c).policy, train_step.all_params(state)
    surrogate = policy_gradient.Surrogate(kl=0.1)
    learner = policy_gradient.Learner(policy, helpers.ENVIRONMENT, {}, 1.0, surrogate)
    tokens = jax.random.randint(jax.random.key(3), (2, 12), 0, 100)
    mask = jnp.ones((2, 12), bool)
    fits = jnp.zeros(2, bool)  # nothing overflows
    played = rollout.Rollout(
        None, tokens, mask, mask, jnp.zeros((2, 12)), fits, None, None, None
    )

    @jax.jit
    def scores(params):
        batch, _ = learner.batch(params, played, mask, jnp.ones((2, 12)))
        own, plain = (learner.score(x, batch) for x in (params, state.frozen))
        return batch.extra.reference, own, plain

    got, own, plain = scores(params)
    np.testing.assert_allclose(got, plain, rtol=1e-6)
    assert np.max(np.abs(own - plain)) > 1e-4
    zeros = jax.tree.map(jnp.zeros_like, state.frozen)
    got, *_ = scores({**params, optim.REFERENCE: zeros})
    evenly = -np.log(backbones.backbone(c).config.vocab_size)
    np.testing.assert_allclose(got[:, 1:], evenly, rtol=1e-5)


@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_reinforcement(name):
    c = config(
        name,
        init_from="nano",
        # Enough turns and episodes that rewards differ within some group in each step.
        sandbox__max_turns=3 if name == "grpo" else 2,
        sandbox__action_tokens=40,
        train__batch_size=8 if name == "grpo" else 16,
        grpo__size=4,
        reward__progress=1.0,
        surrogate__kl=0.1,
        optim__learning_rate=1e-3 if name == "grpo" else 1e-2,
        optim__warmup_steps=0,
    )
    _, lines = play(*tiny.trainer(c), 2)
    assert lines[0]["train/kl"] == 0 and lines[1]["train/kl"] > 1e-6
    # Sampling and training agree but for rounding, which tokens of small probability
    # show most (2e-4 here).
    for line in lines:
        assert line["sampler_trainer/logp_abs_diff_max"] < 5e-4
