"""GRPO and PPO learn what is rewarded, and nothing else."""

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from openagent_jax import expert, train_step
from openagent_jax.algorithms import grpo, policy_gradient, ppo
from openagent_jax.checkpoint import Checkpoints
from openagent_jax.environments.tools import make as tools
from openagent_jax.text import reply_scan
from openagent_jax.types import Curriculum, Sizes
from tests import helpers, tiny

# A policy that sometimes refuses or asks.
LIKELY = {"<|end|>": 9.0, "Refuse": 9.0, "Ask": 9.0}
MAX_TURNS, ACTION, RESULT = 3, 3, 16
NUM_EPISODES = 64  # episodes per step


WORLDS = ("bandit", "two_turns")
BEST = {"bandit": 1.0, "two_turns": 3.0}
NUM_STEPS = {"bandit": 15, "two_turns": 40}


def earned(world, kind):
    """Rewards of actions [B, T]; `world` is an index into `WORLDS`.

    bandit     1 for a refusal in the first turn
    two_turns  1 for asking first, 2 for a refusal right after that, -0.3 for asking
               again: the two turns reward different actions
    """
    refuses, asks = kind == reply_scan.REFUSE, kind == reply_scan.ASK
    bandit = jnp.zeros(kind.shape).at[:, 0].set(refuses[:, 0])
    two_turns = jnp.where(asks, -0.3, 0.0).at[:, 0].set(asks[:, 0])
    two_turns = two_turns.at[:, 1].add(2.0 * (asks[:, 0] & refuses[:, 1]))
    return jnp.where(world == WORLDS.index("bandit"), bandit, two_turns)


def shortest_prompt() -> tuple[int, int]:
    """The task with the shortest prompt, which is fast, and its number of tokens."""
    tables = helpers.world("poi").tables

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def length(tables, task):
        return expert.num_tokens(tables, helpers.ENVIRONMENT.prompt(tables, task))

    lengths = np.asarray(length(tables, helpers.tasks("poi")))
    return int(np.argmin(lengths)), int(np.min(lengths))


@functools.cache
def make(name):
    """`(step, state)` of an algorithm. The step takes the index of the world, so that
    one program serves both worlds."""
    policy, params = helpers.biased_policy(LIKELY)
    row, prompt = shortest_prompt()
    context = prompt + MAX_TURNS * (ACTION + RESULT) + RESULT
    sizes = Sizes(MAX_TURNS, prompt, ACTION, RESULT, context)
    environment = tools.functions(sizes, helpers.NUM_VISIBLE)
    tables, surrogate = helpers.world("poi").tables, policy_gradient.Surrogate()
    task = helpers.row(helpers.tasks("poi"), row)

    def same(state, tables, task_key, edit_key, step, num_tasks):
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_tasks, *x.shape)), task)

    curriculum = Curriculum(lambda: (), same, lambda state, tasks, metrics: state)
    # PPO makes four updates in a step.
    optimizer = optax.adam({"grpo": 5e-4, "ppo": 3e-4}[name])
    if name == "ppo":
        params = ppo.with_value(params, params["embed"].shape[1])

    def step(state, tables, world):
        class Learner(policy_gradient.Learner):
            def play(self, *args, **kwargs):
                played, _, metrics = super().play(*args, **kwargs)
                action = played.trajectory.action
                reward = jnp.where(
                    played.trajectory.valid, earned(world, action.kind), 0
                )
                total = jnp.mean(jnp.sum(reward, axis=1))
                return played, reward, metrics | {"reward": total}

        learner = Learner(policy, environment, {"outcome": 1.0}, 1.0, surrogate)
        if name == "ppo":
            algorithm, often = ppo.ppo(learner, ppo.Critic()), (NUM_EPISODES, 1, 2, 2)
        else:
            groups = grpo.Groups(size=8)
            algorithm, often = grpo.grpo(learner, groups), (NUM_EPISODES // 8,)
        update = train_step.make_step(curriculum, algorithm, optimizer, *often)
        return update(state, tables)

    state = train_step.init_state(params, optimizer, jax.random.key(0))
    return functools.partial(jax.jit(step), tables=tables), state


@pytest.mark.parametrize(
    ("name", "world"),
    [
        ("grpo", "bandit"),
        pytest.param("grpo", "two_turns", marks=pytest.mark.hours),
        pytest.param("ppo", "bandit", marks=pytest.mark.slow),
        pytest.param("ppo", "two_turns", marks=pytest.mark.hours),
    ],
)
def test_finds_the_known_optimum(name, world):
    step, state = make(name)
    reward, gap = [], []
    for _ in range(NUM_STEPS[world]):
        state, metrics = step(state, world=jnp.int32(WORLDS.index(world)))
        reward.append(float(metrics["reward"]))
        gap.append(float(metrics["sampler_trainer/logp_abs_diff_max"]))
    assert reward[0] < 0.1 * BEST[world]
    assert np.mean(reward[-5:]) > 0.85 * BEST[world]
    assert max(gap) < 1e-4  # sampling and training agree
    if name == "ppo":
        assert metrics["explained_variance"] > -1
    assert step.func._cache_size() == 1


# The shipped backbone, which sometimes earns a reward.

REAL = {
    "init_from": "nano",
    "paft.perturbations": tiny.FEW,
    "sandbox.max_turns": 3,
    "sandbox.action_tokens": 40,
    "train.batch_size": 4,
    "train.num_minibatches": 2,
    "grpo.size": 4,
    "reward.progress": 1.0,
    "surrogate.kl": 0.1,
    "optim.learning_rate": 1e-5,
}


def nano_trainer(name, num_devices=1, **changes):
    changes = {key.replace("__", "."): value for key, value in changes.items()}
    changes = {key.replace(".", "__"): x for key, x in (REAL | changes).items()}
    return tiny.trainer(tiny.config(name, **changes), num_devices)


def play(step, state, num_steps):
    """The states after each step, and the metrics."""
    states, lines = [], []
    for _ in range(num_steps):
        state, metrics = step(tiny.copy(state))
        states.append(state)
        lines.append({name: float(value) for name, value in metrics.items()})
    return states, lines


@pytest.fixture(scope="module")
def one_device():
    """GRPO with PAFT, two steps of two updates each."""
    return play(*nano_trainer("paft_grpo"), 2)


@pytest.mark.slow
def test_a_full_training_step(one_device):
    (_, state), (first, second) = one_device
    for metrics in (first, second):  # some groups have equal rewards
        assert 0 < metrics["frac_reward_zero_std"] < 1
        assert metrics["train/grad_norm"] > 0
        assert 0 < metrics["train/kl"] < 0.1  # 0 in the first update alone
    assert min(x["rewards/progress/mean"] for x in (first, second)) > 0
    assert first["sampler_trainer/logp_abs_diff_max"] < 1e-4
    assert second["sampler_trainer/logp_abs_diff_max"] < 1e-4
    assert first["num_sampled_tokens"] > 16
    start = nano_trainer("paft_grpo")[1].params
    for name in ("reference", "embed"):
        same = jax.tree.map(np.array_equal, start.get(name), state.params[name])
        assert jax.tree.all(same)
    assert np.any(start["norm"] != state.params["norm"])


@pytest.mark.slow
def test_devices_and_micro_batches_change_nothing(one_device):
    changes = dict(mesh__data=2, mesh__fsdp=2, mesh__tensor=2)
    eight = nano_trainer("paft_grpo", 8, train__num_micro_batches=2, **changes)
    lines = [dict(one_device[1][0]), *play(*eight, 1)[1]]
    gaps = [line.pop("sampler_trainer/logp_abs_diff_max") for line in lines]
    # Only rounding differs. It is larger with a tensor axis, and largest for the least
    # likely of all tokens.
    assert max(gaps) < 2e-4
    for line in lines:
        del line["rollout/idle"]  # each device plays its own episodes
    # A tensor axis sums in another order, which changes some sampled token, here
    # in an episode without an advantage.
    entropy = [line.pop("entropy") for line in lines]
    assert entropy[0] == pytest.approx(entropy[1], rel=1e-2)
    # The norm is taken over two updates, and Adam divides by small numbers.
    norms = [line.pop("train/grad_norm") for line in lines]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)
    assert lines[0] == pytest.approx(lines[1], rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_resumes_bit_for_bit(one_device, tmp_path):
    step, state = nano_trainer("paft_grpo")
    first, expected = one_device[0]
    with contextlib.closing(Checkpoints(tmp_path)) as checkpoints:
        checkpoints.save(1, first, {}, {})
        checkpoints.wait()
        restored, _, _ = checkpoints.restore(state)
    second, _ = step(restored)
    jax.tree.map(np.testing.assert_array_equal, *map(plain, (second, expected)))


def plain(state):
    return jax.tree.map(np.asarray, (state.step, state.params, state.opt_state))
