"""Previous-token heads at initialisation attend as they should, in a plain Llama."""

import jax
import jax.numpy as jnp
import pytest

from openagent_jax.models import previous_token_heads, transformer


def _config(**changes):
    sizes = dict(
        vocab_size=97,
        width=64,
        num_layers=1,
        num_heads=2,
        num_kv_heads=2,
        head_size=32,
        mlp_width=64,
    )
    return transformer.ModelConfig(**sizes | changes)


def _influence(params, config):
    """Return how much hidden states change, by their distance from a changed token."""
    tokens = jax.random.randint(jax.random.key(5), (16, 12), 0, config.vocab_size)
    other = tokens.at[:, 4].set((tokens[:, 4] + 1) % config.vocab_size)
    positions = jnp.broadcast_to(jnp.arange(12), tokens.shape)
    valid = jnp.ones(tokens.shape, bool)
    hidden = transformer.make_policy(config).hidden
    change = hidden(params, other, positions, valid) - hidden(
        params, tokens, positions, valid
    )
    return jnp.mean(jnp.linalg.norm(change, axis=-1), axis=0)[4:]


@pytest.mark.parametrize("num_kv_heads", [1, 2])
@pytest.mark.slow
def test_heads_attend_one_and_two_tokens_back(num_kv_heads):
    config = _config(num_kv_heads=num_kv_heads)
    plain = transformer.make_policy(config).init(jax.random.key(0))
    initialised = previous_token_heads.add(config, plain, jax.random.key(1), 2)
    assert jax.tree.map(jnp.shape, plain) == jax.tree.map(jnp.shape, initialised)
    by_distance = _influence(initialised, config)
    assert jnp.min(by_distance[1:3]) > 8 * jnp.max(by_distance[3:])
    by_distance = _influence(plain, config)
    assert jnp.min(by_distance[1:3]) < 4 * jnp.max(by_distance[3:])


def test_zero_heads_change_nothing():
    config = _config()
    plain = transformer.make_policy(config).init(jax.random.key(0))
    same = previous_token_heads.add(config, plain, jax.random.key(1), 0)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, plain, same))


@pytest.mark.parametrize(
    ("heads", "changes", "names"),
    [(3, {}, "model.look_back_heads=3"), (1, dict(num_kv_heads=1), "multiple of 2")],
)
def test_bad_numbers_of_heads(heads, changes, names):
    config = _config(**changes)
    plain = transformer.make_policy(config).init(jax.random.key(0))
    with pytest.raises(ValueError, match=names):
        previous_token_heads.add(config, plain, jax.random.key(1), heads)
