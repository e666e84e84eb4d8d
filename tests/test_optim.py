"""Schedules, clipping, weight decay, and which parameters each optimizer updates."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from openagent_jax import optim

PARAMS = {
    "embed": jnp.ones((6, 4)),
    "layers": {"norm": jnp.ones((2, 4)), "up": jnp.ones((2, 4, 8))},
    "norm": jnp.ones(4),
}


@jax.jit
def random_grads(key):
    leaves, tree = jax.tree.flatten(PARAMS)
    keys = jax.random.split(key, len(leaves))
    return tree.unflatten(
        [jax.random.normal(k, x.shape) for k, x in zip(keys, leaves, strict=True)]
    )


def first_update(grads, **kwargs):
    optimizer = optim.make_optimizer(
        **{"num_updates": 10, "learning_rate": 0.1} | kwargs
    )
    state = optimizer.init(PARAMS)
    return jax.jit(optimizer.update)(grads, state, PARAMS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("constant", {0: 0.5, 1: 1, 2: 1, 12: 1}),
        ("linear", {0: 0.5, 1: 1, 2: 1, 7: 0.6, 12: 0.2, 20: 0.2}),
        ("cosine", {0: 0.5, 2: 1, 7: 0.6, 12: 0.2, 20: 0.2}),
        ("wsd", {0: 0.5, 2: 1, 10: 1, 11: 0.6, 12: 0.2, 20: 0.2}),
    ],
)
def test_schedules(name, expected):
    schedule = optim.make_schedule(name, 12, 2, end_factor=0.2)
    for step, value in expected.items():
        np.testing.assert_allclose(schedule(step), value, rtol=1e-6, err_msg=str(step))


def test_no_warmup_starts_at_the_peak():
    assert optim.make_schedule("cosine", 10, 0)(0) == 1


def test_learning_rate_follows_the_schedule(getkey):
    grads = random_grads(getkey())
    peak, _ = first_update(grads, schedule="constant")
    warm, _ = first_update(grads, schedule="constant", warmup_steps=4)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, 4 * b, rtol=1e-5), peak, warm
    )


@pytest.mark.parametrize(("clip", "norm"), [(0.5, 0.5), (0, 100), (1000, 100)])
def test_clips_the_global_norm(getkey, clip, norm):
    grads = random_grads(getkey())
    grads = jax.tree.map(lambda g: g * 100 / optax.tree.norm(grads), grads)
    _, state = first_update(grads, clip_norm=clip, b1=0.9)
    first_moment = optax.tree_utils.tree_get(state, "mu")
    np.testing.assert_allclose(optax.tree.norm(first_moment), 0.1 * norm, rtol=1e-4)


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_only_matrices_decay(name):
    zeros = jax.tree.map(jnp.zeros_like, PARAMS)
    update, _ = first_update(zeros, name=name, weight_decay=0.5, schedule="constant")
    assert jnp.abs(update["layers"]["norm"]).max() == 0
    assert jnp.abs(update["norm"]).max() == 0
    np.testing.assert_allclose(update["layers"]["up"], -0.1 * 0.5, rtol=1e-5)
    decays = -0.1 * 0.5 if name == "adamw" else 0
    np.testing.assert_allclose(update["embed"], decays, rtol=1e-5)


def test_muon_treats_each_layer_on_its_own(getkey):
    grads, other = random_grads(getkey()), random_grads(getkey())
    update, _ = first_update(grads, name="muon", schedule="constant", clip_norm=0)
    # Newton-Schulz brings the singular values near 1; 0.1 is the learning rate.
    for matrix in np.asarray(update["layers"]["up"]):
        values = np.linalg.svd(matrix, compute_uv=False) / (0.1 * 0.2 * 8**0.5)
        assert (values > 0.4).all() and (values < 1.4).all(), values
    up = grads["layers"]["up"].at[1].set(other["layers"]["up"][1])
    mixed = grads | {"layers": grads["layers"] | {"up": up}}
    again, _ = first_update(mixed, name="muon", schedule="constant", clip_norm=0)
    a, b = update["layers"]["up"], again["layers"]["up"]
    np.testing.assert_allclose(a[0], b[0], rtol=1e-5)
    assert jnp.abs(a[1] - b[1]).max() > 1e-3


def test_muon_leaves_the_rest_to_adam(getkey):
    grads = random_grads(getkey())
    settings = {"name": "muon", "schedule": "constant", "clip_norm": 0}
    update, _ = first_update(grads, **settings)
    fast, _ = first_update(grads, muon_learning_rate=1.0, **settings)
    a, b = update["layers"].pop("up"), fast["layers"].pop("up")
    np.testing.assert_allclose(10 * a, b, rtol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, update, fast)
    # The first step of Adam depends only on the sign of the gradient.
    steps = update["embed"] / jnp.sign(grads["embed"])
    np.testing.assert_allclose(steps, jnp.full_like(steps, steps[0, 0]), rtol=1e-3)


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_learns(getkey, name):
    target = jax.random.normal(getkey(), (2, 4, 8)) * 0.1

    def loss(params):
        return jnp.mean((params["layers"]["up"] - target) ** 2)

    optimizer = optim.make_optimizer(name, learning_rate=0.3, num_updates=60)

    def step(carry, _):
        params, state = carry
        update, state = optimizer.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, update), state), None

    (params, _), _ = jax.lax.scan(step, (PARAMS, optimizer.init(PARAMS)), length=60)
    assert loss(params) < 0.2 * loss(PARAMS)


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_a_master_copy_takes_small_updates(getkey, name):
    """As parameters in float32 would; in bfloat16 alone they are lost."""
    grads = random_grads(getkey())
    settings = dict(learning_rate=5e-4, num_updates=60, schedule="constant")

    def trained(params, master_copy):
        optimizer = optim.make_optimizer(name, **settings, master_copy=master_copy)
        state = optimizer.init(params)
        update = jax.jit(optimizer.update)
        for _ in range(60):
            updates, state = update(grads, state, params)
            params = optax.apply_updates(params, updates)
        return params

    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16), PARAMS)
    exact = trained(jax.tree.map(lambda x: x.astype(jnp.float32), rounded), False)
    expected = jax.tree.map(lambda x: x.astype(jnp.bfloat16), exact)
    moved = expected["layers"]["up"] != rounded["layers"]["up"]
    assert jnp.mean(moved) > 0.5  # all updates together are more than a rounding
    chex.assert_trees_all_equal(trained(rounded, True), expected)
    lost = trained(rounded, False)["layers"]["up"]
    assert jnp.mean(lost == rounded["layers"]["up"]) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "sgd"}, 'optim.name="sgd" is not one of adamw, muon'),
        ({"schedule": "step"}, 'optim.schedule="step" is not one of constant'),
        ({"warmup_steps": 11}, "optim.warmup_steps=11"),
        ({"clip_norm": -1}, "optim.clip_norm=-1"),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        first_update(PARAMS, **change)


@pytest.mark.parametrize("name", optim.OPTIMIZERS)
def test_embedding_can_be_frozen(getkey, name):
    grads = random_grads(getkey())
    # Its gradient is no part of the global norm that is clipped either.
    large = {**grads, "embed": 1e6 * grads["embed"]}
    kwargs = dict(name=name, clip_norm=1.0, weight_decay=0.1, train_embedding=False)
    updates, _ = first_update(large, **kwargs)
    assert not jnp.any(updates["embed"])
    alone = {key: value for key, value in PARAMS.items() if key != "embed"}
    optimizer = optim.make_optimizer(
        **{"num_updates": 10, "learning_rate": 0.1, **kwargs, "train_embedding": True}
    )
    grads.pop("embed")
    expected, _ = jax.jit(optimizer.update)(grads, optimizer.init(alone), alone)
    updates.pop("embed")
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), updates, expected
    )
