"""Adapters compute what the LoRA paper says, and nothing else is trained."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from openagent_jax import sharding
from openagent_jax.models import hf, lora, transformer

# All sizes differ, so that a gradient can be recognised by its shape.
CONFIG = transformer.ModelConfig(
    vocab_size=60,
    width=20,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=6,
    mlp_width=28,
    remat="none",
    lora=lora.Lora(rank=3, alpha=6.0),
)
POLICY = transformer.make_policy(CONFIG)
SOME = lora.Lora(rank=2, alpha=1.0, targets=("v", "down"))


def noisy(tree, scale=0.3):
    numbers = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(0, scale, x.shape), x.dtype), tree
    )


def adapted_params(settings=CONFIG.lora, initial=False):
    """Return parameters with adapters, either initialised or random."""
    params = noisy(jax.eval_shape(POLICY.init, jax.random.key(0)))
    adapters = lora.init(settings, jax.random.key(1), params)
    return {**params, **(adapters if initial else noisy(adapters))}


def texts(num_rows=3, size=12):
    key = jax.random.key(2)
    tokens = jax.random.randint(key, (num_rows, size), 0, CONFIG.vocab_size)
    positions = jnp.tile(jnp.arange(size)[None], (num_rows, 1))
    return tokens, positions, positions < size - jnp.arange(num_rows)[:, None]


def logits(params, *batch, config=CONFIG):
    policy = transformer.make_policy(config)
    return policy.head(params, policy.hidden(params, *batch))


def score(params, config=CONFIG):
    log_probs = jax.nn.log_softmax(logits(params, *texts(), config=config))
    return jnp.mean(log_probs[..., 7])


def gradient(config=CONFIG):
    """Return a function `(adapters, other params) -> gradient of the adapters`."""
    return jax.grad(lambda adapters, rest: score({**rest, **adapters}, config))


plain_gradient = jax.jit(gradient())


def split(params):
    return {lora.LORA: params[lora.LORA]}, lora.base(params)


def assert_close(a, b, **bounds):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **bounds), a, b)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_initial_adapters_change_nothing(dtype):
    config = dataclasses.replace(CONFIG, dtype=dtype)
    params = adapted_params(initial=True)
    run = jax.jit(lambda params: logits(params, *texts(), config=config))
    np.testing.assert_array_equal(run(params), run(lora.base(params)))
    adapter = params[lora.LORA]["layers"]["o"]
    assert not adapter["b"].any() and adapter["a"].shape == (2, 24, 3)
    assert abs(np.std(adapter["a"]) - 24**-0.5) < 0.03
    assert (run(adapted_params()) != run(params)).any()


def test_logits_equal_those_of_merged_weights():
    """Compared with plain weights that are merged by hand."""
    params = adapted_params()
    merged = {**params["layers"]}
    for name, adapter in params[lora.LORA]["layers"].items():
        product = np.einsum("ldr,lre->lde", adapter["a"], adapter["b"])
        merged[name] = merged[name] + 2 * product  # alpha / rank
    expected = logits({**lora.base(params), "layers": merged}, *texts())
    np.testing.assert_allclose(logits(params, *texts()), expected, atol=2e-5)


@pytest.mark.parametrize("settings", [CONFIG.lora, SOME], ids=["all", "some"])
@pytest.mark.slow
def test_gradients_follow_from_the_weight_gradients(settings):
    """By the chain rule, with G the gradient of W and s the scale: that of A is
    s G B', and that of B is s A' G."""
    config = dataclasses.replace(CONFIG, lora=settings)
    params = adapted_params(settings)
    got = jax.jit(gradient(config))(*split(params))
    plain = jax.grad(score)(lora.merge(settings, params))["layers"]
    got = got[lora.LORA]["layers"]
    assert set(got) == set(settings.targets)
    for name, adapter in params[lora.LORA]["layers"].items():
        a, b = (settings.scale * adapter[x].swapaxes(1, 2) for x in "ab")
        expected = {"a": plain[name] @ b, "b": a @ plain[name]}
        assert_close(got[name], expected, rtol=1e-4, atol=1e-7)
        assert np.abs(got[name]["a"]).max() > 1e-5


@pytest.mark.parametrize("remat", ["none", "dots", "full"])
def test_no_gradient_has_the_size_of_a_weight(remat):
    """No matrix product of the backward pass has a result of that size."""
    config = dataclasses.replace(CONFIG, remat=remat)
    adapters, rest = split(adapted_params())
    sizes = {x.shape[1:] for x in jax.tree.leaves(rest["layers"]) if x.ndim == 3}
    sizes |= {size[::-1] for size in sizes}

    def products(gradient, *args):
        text = jax.jit(gradient).lower(*args).as_text()
        lines = [line for line in text.splitlines() if "dot_general" in line]
        return [tuple(map(int, x.split("tensor<")[-1].split("x")[:-1])) for x in lines]

    assert len(products(gradient(config), adapters, rest)) > 20
    assert not sizes & set(products(gradient(config), adapters, rest))
    dense = jax.grad(lambda rest, adapters: score({**rest, **adapters}, config))
    assert sizes & set(products(dense, rest, adapters))  # the check would find one


@pytest.mark.parametrize("remat", transformer.REMAT)
def test_remat_changes_nothing(remat):
    again = jax.jit(gradient(dataclasses.replace(CONFIG, remat=remat)))
    got, expected = (
        again(*split(adapted_params())),
        plain_gradient(*split(adapted_params())),
    )
    assert_close(got, expected, rtol=1e-4, atol=1e-7)


def test_bfloat16_weights_and_activations():
    """Adapters and their gradients stay float32, and close to the float32 model's."""
    config = dataclasses.replace(CONFIG, dtype="bfloat16")
    adapters, rest = split(adapted_params())
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), rest)
    assert_close(
        lora.init(CONFIG.lora, jax.random.key(1), half),
        lora.init(CONFIG.lora, jax.random.key(1), rest),
    )
    low = jax.jit(gradient(config))(adapters, half)
    full = plain_gradient(adapters, rest)
    for a, b in zip(*map(jax.tree.leaves, (low, full)), strict=True):
        assert a.dtype == jnp.float32
        assert 0 < np.linalg.norm(a - b) < 0.1 * np.linalg.norm(b)
    merged = lora.merge(CONFIG.lora, {**half, **adapters})
    assert {x.dtype for x in jax.tree.leaves(merged)} == {jnp.dtype("bfloat16")}


@pytest.mark.parametrize("unstacked", [False, True])
def test_decoding_uses_adapters(unstacked):
    params, (tokens, positions, _) = adapted_params(), texts()
    given = POLICY.unstack_layers(params) if unstacked else params
    cache, parts = POLICY.init_cache(3, [8, 4]), []
    for columns in (tokens[:, :7], tokens[:, 7:8], tokens[:, 8:]):
        num_new = jnp.full(3, columns.shape[1])
        hidden, cache = jax.jit(POLICY.extend)(given, cache, columns, num_new)
        parts.append(hidden)
    expected = POLICY.hidden(params, tokens, positions, positions >= 0)
    np.testing.assert_allclose(jnp.concatenate(parts, 1), expected, atol=1e-5)


@pytest.mark.parametrize("settings", [CONFIG.lora, SOME], ids=["all", "some"])
def test_merged_parameters_are_a_plain_model(settings, tmp_path):
    config = dataclasses.replace(CONFIG, lora=settings)
    params = adapted_params(settings)
    expected = logits(params, *texts(), config=config)
    hf.save(tmp_path, config, lora.merge(settings, params))
    loaded_config, loaded = hf.load(tmp_path)
    assert loaded_config.lora is None and lora.LORA not in loaded
    got = logits(loaded, *texts(), config=loaded_config)
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())
    assert np.abs(got - logits(lora.base(params), *texts())).max() > 0.1


def test_merging_parameters_without_adapters_returns_them():
    params = lora.base(adapted_params())
    assert lora.merge(None, params) is lora.merge(CONFIG.lora, params) is params


@pytest.mark.parametrize("sizes", [(1, 8, 1), (2, 2, 2)])
def test_every_mesh_computes_the_same(sizes):
    adapters, rest = split(noisy(adapted_params()))
    mesh = sharding.make_mesh(*sizes)
    axes = transformer.logical_axes(CONFIG)
    jax.tree.map(
        lambda x, y: np.testing.assert_equal(x.ndim, len(y)), adapted_params(), axes
    )
    shardings = sharding.state_shardings(mesh, axes, (adapters, rest))
    spec = shardings[0][lora.LORA]["layers"]["up"]["b"].spec
    assert spec == PartitionSpec(None, None, "tensor")
    placed = jax.device_put((adapters, rest), shardings)
    got = jax.jit(gradient(), out_shardings=shardings[0])(*placed)
    assert_close(got, plain_gradient(adapters, rest), rtol=1e-4, atol=1e-6)


def test_adapters_are_not_silently_ignored():
    with pytest.raises(ValueError, match="their config has no lora settings"):
        logits(
            adapted_params(), *texts(), config=dataclasses.replace(CONFIG, lora=None)
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank=0 must be positive"),
        ({"alpha": 0.0}, "alpha=0.0 must be more than 0"),
        ({"targets": ()}, "targets is empty; name some of q, k, v"),
        ({"targets": ("q", "head")}, 'targets: "head" is not one of q, k, v, o'),
    ],
)
def test_bad_settings(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG.lora, **change)
