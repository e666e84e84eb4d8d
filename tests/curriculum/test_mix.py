"""PAFT's mix, by exact counts on toy tasks."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from openagent_jax import sharding, train_step
from openagent_jax.curriculum import draw as draw_module
from openagent_jax.curriculum import mix
from openagent_jax.perturb import Entry
from openagent_jax.types import Algorithm, Batch, Curriculum
from tests import helpers


class Toy(NamedTuple):
    """A stand-in for tasks: the world, the perturbation, and the keys it came from."""

    world: jax.Array
    mark: jax.Array
    keys: jax.Array


def perturb(key, task, strength):
    return task._replace(mark=strength * jax.random.uniform(key, minval=1, maxval=2))


def test_pairs_need_an_even_number_of_tasks():
    mix.check(0.5, True, 4)
    mix.check(0.5, False, 3)
    with pytest.raises(ValueError, match="3 tasks are not pairs"):
        mix.check(0.5, True, 3)


def entry(name, apply):
    return Entry(
        name=name,
        make=lambda pools: apply,
        tier="perception",
        shift="query",
        part="task",
        touches=("mark",),
    )


def minus(key, task, strength):
    task = perturb(key, task, strength)
    return task._replace(mark=-task.mark)


ENVIRONMENT = helpers.ENVIRONMENT._replace(
    perturbations=(entry("plus", perturb), entry("minus", minus)),
    pools=lambda tables, task, split: (),
)


def sample(state, tables, task_key, edit_key, step, num_tasks):
    seen = [step, state, *jax.random.key_data(task_key), *jax.random.key_data(edit_key)]
    keys = jnp.broadcast_to(jnp.array(seen, jnp.uint32), (num_tasks, len(seen)))
    return Toy(jnp.arange(num_tasks), jnp.zeros(num_tasks), keys)


INNER = Curriculum(
    init=lambda: jnp.int32(5),
    sample=sample,
    update=lambda state, tasks, metrics: state + jnp.sum(tasks.mark > 0),
)


def paft(alpha, strength=lambda step: 1.0, names=("plus",), **others):
    return mix.paft(INNER, ENVIRONMENT, names, alpha, strength, **others)


def draw(curriculum, key, num_tasks=8, step=0):
    """A batch of tasks, in NumPy."""
    run = jax.jit(curriculum.sample, static_argnums=5)
    task_key, edit_key = jax.random.split(key)
    state = curriculum.init()
    return helpers.host(run(state, (), task_key, edit_key, jnp.int32(step), num_tasks))


@pytest.mark.parametrize(
    ("alpha", "num_tasks", "expected"),
    [(0.3, 10, 3), (0.7, 10, 7), (0.5, 8, 4), (0.25, 4, 1), (0, 8, 0), (1, 8, 8)],
)
def test_exact_share_is_perturbed(getkey, alpha, num_tasks, expected):
    tasks = draw(paft(alpha), getkey(), num_tasks)
    assert np.count_nonzero(tasks.mark) == expected
    np.testing.assert_array_equal(tasks.world, np.arange(num_tasks))
    # Each perturbation has a key of its own, and new keys in each step.
    others = draw(paft(alpha), getkey(), num_tasks).mark
    marks = [*tasks.mark[tasks.mark > 0], *others[others > 0]]
    assert len(np.unique(marks)) == 2 * expected


@pytest.mark.parametrize(("alpha", "block"), [(0.3, 1), (0.3, 4), (0.5, 2), (0.9, 3)])
def test_perturbed_tasks_are_evenly_spread(getkey, alpha, block):
    """Each index is perturbed equally often; tasks of a block are so together; and any
    stretch of blocks has its share, rounded up or down."""
    curriculum, key, num = paft(alpha, block=block), getkey(), 12

    def one(edit_key):
        return curriculum.sample(
            jnp.int32(0), (), key, edit_key, jnp.int32(0), num * block
        ).mark

    marks = jax.jit(jax.vmap(one))(jax.random.split(getkey(), 4000))
    blocks = (np.asarray(marks) > 0).reshape(len(marks), num, block)
    assert np.all(np.any(blocks, axis=2) == np.all(blocks, axis=2))
    blocks = blocks[..., 0]
    error = 5 * np.sqrt(alpha * (1 - alpha) / len(marks))
    assert np.all(np.abs(blocks.mean(axis=0) - alpha) < error)
    before = np.cumsum(np.pad(blocks, ((0, 0), (1, 0))), axis=1)
    for size in range(1, num + 1):
        counts = before[:, size:] - before[:, :-size]
        share = round(alpha * size, 6)
        assert set(np.unique(counts)) <= {int(share), int(np.ceil(share))}


def test_tasks_are_made_where_they_are_used(getkey):
    """A mesh of eight devices makes the same tasks as one device, and no device gets
    anything from another one."""
    mesh = sharding.make_mesh()
    placed = sharding.batch_sharding(mesh)
    everywhere = sharding.replicated(mesh)
    environment, tables = helpers.ENVIRONMENT, helpers.world("poi").tables
    curriculum = mix.paft(
        draw_module.clean(environment),
        environment,
        ("identity_erasure", "tool_withheld"),
        0.3,
        lambda step: 1.0,
        block=2,
    )
    task_key, edit_key = jax.random.split(getkey())

    def sample(tables, task_key, edit_key):
        return curriculum.sample((), tables, task_key, edit_key, jnp.int32(0), 16)

    arguments = tables, task_key, edit_key
    one = jax.jit(sample)(*arguments)
    arguments = jax.device_put(arguments, everywhere)
    compiled = jax.jit(sample, out_shardings=placed).lower(*arguments).compile()
    eight = compiled(*arguments)
    assert len(jax.tree.leaves(eight)[0].sharding.device_set) == 8
    jax.tree.map(np.testing.assert_array_equal, helpers.host(one), helpers.host(eight))
    text = compiled.as_text()
    for name in ("all-gather", "all-to-all", "all-reduce", "collective-permute"):
        assert name not in text


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [
        (0.0, []),
        (0.3, [3, 6, 9, 13, 16, 19]),
        (0.5, [*range(1, 20, 2)]),
        (1.0, [*range(20)]),
    ],
)
def test_share_of_a_dataset(alpha, expected):
    found = np.flatnonzero(mix.is_perturbed(np.arange(20), alpha))
    assert found.tolist() == expected


def test_fractional_share_holds_on_average(getkey):
    """0.3 of 8 tasks: 2 or 3 of them, 2.4 on average."""
    curriculum, key = paft(0.3), getkey()

    def one(edit_key):
        return curriculum.sample(jnp.int32(0), (), key, edit_key, jnp.int32(0), 8).mark

    marks = jax.jit(jax.vmap(one))(jax.random.split(getkey(), 4000))
    num = np.count_nonzero(marks, axis=1)
    assert set(num) == {2, 3}
    assert abs(num.mean() - 2.4) < 0.04  # five standard errors


def test_alpha_zero_is_the_inner_curriculum(getkey):
    key = getkey()
    got, want = draw(paft(0.0), key), draw(INNER, key)
    # The keys, the step and the state are the same, too.
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_clean_tasks_come_from_the_inner_curriculum(getkey):
    key = getkey()
    got, want = draw(paft(0.5), key), draw(INNER, key)
    np.testing.assert_array_equal(got.keys, want.keys)
    np.testing.assert_array_equal(got.world, want.world)
    noisy = got.mark > 0
    np.testing.assert_array_equal(got.mark[~noisy], want.mark[~noisy])
    # Every other task, beginning with the first or the second one.
    assert noisy.tolist() in ([True, False] * 4, [False, True] * 4)


def test_state_is_that_of_the_inner_curriculum(getkey):
    curriculum = paft(0.5)
    tasks = draw(curriculum, getkey())
    assert curriculum.init() == INNER.init() == 5
    assert curriculum.update(jnp.int32(5), tasks, {}) == 5 + 4


def test_strength_is_passed_on(getkey):
    key = getkey()
    full, half, none = (
        draw(paft(1, lambda step, s=s: s), key).mark for s in (1.0, 0.5, 0.0)
    )
    np.testing.assert_allclose(half, full / 2)
    assert not none.any()


def test_strength_follows_its_schedule(getkey):
    """The strength follows its schedule, as a function of the step."""
    key, curriculum = getkey(), paft(1.0, mix.ramp(0.8, 4))
    none, half, full, later = (draw(curriculum, key, 8, s).mark for s in (0, 2, 4, 9))
    assert not none.any() and full.any()
    np.testing.assert_allclose(half, full / 2, rtol=1e-6)
    np.testing.assert_array_equal(later, full)


def test_a_repeated_name_is_drawn_more_often(getkey):
    tasks = draw(paft(1, names=("plus", "minus", "minus")), getkey(), 1200)
    assert abs(np.mean(tasks.mark > 0) - 1 / 3) < 0.07  # five standard errors
    assert tasks.mark.all()


def test_pairs_are_adjacent(getkey):
    got = draw(paft(0.5, paired=True), getkey())
    assert got.world.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert not got.mark[::2].any() and got.mark[1::2].all()
    with pytest.raises(ValueError, match=r"paft.alpha=0.3 does not"):
        paft(0.3, paired=True)


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_invalid_alpha(alpha):
    with pytest.raises(ValueError, match=f"paft.alpha={alpha}"):
        paft(alpha)


def test_an_unknown_perturbation():
    with pytest.raises(ValueError, match='unknown perturbation "times"; there are'):
        paft(0.5, names=("times",))


def test_the_algorithm_key_is_independent_of_the_curriculum():
    """In reinforcement learning, tasks that stay clean get the same samples."""

    def make_batch(state, tables, key, tasks):
        del state, tables
        zeros = jnp.zeros((1, 2), jnp.int32)
        batch = Batch(zeros, zeros, zeros + 1, zeros > 0, jnp.ones(1))
        return batch, {"key": jax.random.key_data(key), "tasks": tasks}

    algorithm = Algorithm(
        make_batch, lambda params, batch, divisor: (jnp.sum(params["x"]), {})
    )
    optimizer, params, made = optax.sgd(0.0), {"x": jnp.zeros(1)}, []
    for curriculum in (INNER, paft(0.5)):
        key, start = jax.random.key(1), curriculum.init()
        state = train_step.init_state(params, optimizer, key, curriculum=start)
        step = train_step.make_step(curriculum, algorithm, optimizer, 8)
        state, metrics = jax.jit(step)(state, ())
        made.append((metrics["key"], metrics["tasks"]))
        # The state of the curriculum was updated with the tasks of this step.
        assert state.curriculum == 5 + np.count_nonzero(metrics["tasks"].mark)
    (key, clean), (other, mixed) = helpers.host(made)
    np.testing.assert_array_equal(key, other)
    np.testing.assert_array_equal(clean.keys, mixed.keys)
    assert not clean.mark.any() and np.count_nonzero(mixed.mark) == 4
