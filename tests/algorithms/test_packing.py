"""Packed rows: where each text goes, that no text attends to another one, and that the
loss and its gradient equal those of one text per row."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from openagent_jax import log_probs, losses, sharding, train_step
from openagent_jax.algorithms import sft
from openagent_jax.curriculum import mix
from openagent_jax.models import layers, transformer
from openagent_jax.types import Algorithm, Batch, Curriculum
from tests import tiny

CONFIG = transformer.ModelConfig(
    vocab_size=17,
    width=16,
    num_layers=2,
    num_heads=2,
    num_kv_heads=1,
    head_size=8,
    mlp_width=16,
)
POLICY = transformer.make_policy(CONFIG)
LENGTHS = np.array([40, 90, 31, 100, 60, 9])
NUM_COLUMNS = 130  # three blocks of queries, the last one not full
WHERE = [(0, 0), (0, 40), (1, 0), (2, 0), (1, 31), (1, 91)]  # row and column


def texts():
    """`(tokens, loss mask, lengths)`; the first tokens are a prompt, without loss."""
    random = np.random.default_rng(0)
    tokens = random.integers(0, CONFIG.vocab_size, (len(LENGTHS), NUM_COLUMNS))
    here = np.arange(NUM_COLUMNS) < LENGTHS[:, None]
    mask = here & (random.random(tokens.shape) < 0.4)
    mask[:, :3] = False
    return jnp.asarray(np.where(here, tokens, 0)), jnp.asarray(mask), LENGTHS


def unpacked() -> Batch:
    """One row for each text."""
    tokens, mask, lengths = texts()
    positions = jnp.broadcast_to(jnp.arange(NUM_COLUMNS)[None], tokens.shape)
    segments = (positions < lengths[:, None]).astype(jnp.int32)
    return Batch(tokens, positions, segments, mask, jnp.sum(mask, 1) * 1.0)


def packed(num_rows=3) -> tuple[Batch, int]:
    batch, placed = jax.jit(sft.pack, static_argnums=3)(*texts(), num_rows)
    return batch, np.sum(~placed)


@pytest.fixture(scope="module")
def params():
    # Larger than at initialisation, so that attention makes a difference.
    return jax.tree.map(lambda x: 4 * x, POLICY.init(jax.random.key(1)))


def test_by_hand():
    tokens = [[1, 1, 1, 0], [2, 2, 2, 2], [3, 0, 0, 0], [4, 4, 0, 0], [5, 0, 0, 0]]
    tokens = jnp.array(tokens)
    mask = tokens % 2 == 1
    lengths = jnp.array([3, 5, 1, 2, 1])  # the second text is longer than a row
    batch, placed = sft.pack(tokens, mask, lengths, 2)
    assert batch.tokens.tolist() == [[1, 1, 1, 3], [4, 4, 5, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 0], [0, 1, 0, 0]]
    assert batch.segments.tolist() == [[1, 1, 1, 3], [4, 4, 5, 0]]
    assert batch.loss_mask.tolist() == [[True] * 4, [False, False, True, False]]
    assert batch.divisor.tolist() == [4, 1]
    assert placed.tolist() == [True, False, True, True, True]
    # The fourth text has no room, so the fifth, which has room, is dropped too.
    lengths = jnp.array([2, 5, 1, 2, 1])
    batch, placed = sft.pack(tokens, mask, lengths, 1)
    assert batch.tokens.tolist() == [[1, 1, 3, 0]]
    assert placed.tolist() == [True, False, True, False, False]


def test_blocks_are_packed_separately():
    """Two blocks of two texts, with a row each: the row of the first stays half empty,
    although the third text would fit."""
    tokens = jnp.arange(1, 5)[:, None] * jnp.ones((1, 4), jnp.int32)
    batch, placed = sft.pack(tokens, tokens > 0, jnp.array([2, 3, 2, 1]), 2)
    assert batch.tokens.tolist() == [[1, 1, 0, 0], [3, 3, 4, 0]]
    assert batch.segments.tolist() == [[1, 1, 0, 0], [3, 3, 4, 0]]
    assert placed.tolist() == [True, False, True, True]


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_too_few_rows_keep_the_share_of_perturbed_texts(getkey, num_rows):
    """Although perturbed texts are longer. Their tokens are 2, and 1 in clean ones."""

    def one(key):
        start, lengths = jax.random.split(key)
        noisy = mix.is_perturbed(np.arange(16), 0.3, jax.random.uniform(start))
        most = jnp.where(noisy, 120, 90)
        lengths = most - jax.random.randint(lengths, (16,), 0, 60)
        tokens = jnp.broadcast_to(1 + noisy[:, None], (16, 240)).astype(jnp.int32)
        batch, placed = sft.pack(tokens, tokens > 0, lengths, num_rows)
        first = batch.valid & (batch.positions == 0)
        return jnp.sum(first & (batch.tokens == 2)), jnp.sum(first), jnp.sum(~placed)

    keys = jax.random.split(getkey(), 3000)
    noisy, kept, dropped = map(np.asarray, jax.jit(jax.vmap(one))(keys))
    assert np.all(kept + dropped == 16) and np.mean(dropped) > 3
    assert abs(np.sum(noisy) / np.sum(kept) - 0.3) < 0.01
    # Without the rule for texts after the first that is dropped, it is 0.25 to 0.284.


def test_devices_change_nothing(getkey):
    """Eight rows on eight devices, where each packs its own texts."""
    lengths = jax.random.randint(getkey(), (16,), 20, 90)
    tokens = jnp.arange(1, 17)[:, None] * jnp.ones((1, 128), jnp.int32)
    texts = tokens, tokens % 2 == 0, lengths
    placed = sharding.batch_sharding(sharding.make_mesh())
    pack = jax.jit(sft.pack, static_argnums=3)
    expected = pack(*texts, 8)
    assert 8 < np.sum(expected[1]) < 16
    compiled = pack.lower(*jax.device_put(texts, placed), 8).compile()
    got = compiled(*jax.device_put(texts, placed))
    jax.tree.map(np.testing.assert_array_equal, got, expected)
    assert "all-gather" not in compiled.as_text()
    assert "all-to-all" not in compiled.as_text()


def test_first_fit_keeps_every_text():
    tokens, mask, _ = texts()
    batch, num_dropped = packed()
    for i, ((row, start), size) in enumerate(zip(WHERE, LENGTHS)):
        there = row, slice(start, start + size)
        np.testing.assert_array_equal(batch.tokens[there], tokens[i, :size])
        np.testing.assert_array_equal(batch.loss_mask[there], mask[i, :size])
        np.testing.assert_array_equal(batch.positions[there], np.arange(size))
        assert np.all(batch.segments[there] == i + 1)
    assert num_dropped == 0 and np.sum(batch.valid) == LENGTHS.sum()
    np.testing.assert_array_equal(batch.divisor, np.sum(batch.loss_mask, axis=1))
    assert not np.any(batch.loss_mask & ~batch.valid)


def test_dropped_texts_are_counted():
    batch, num_dropped = packed(num_rows=1)
    assert num_dropped == 4
    assert set(np.unique(batch.segments)) == {1, 2}


def test_texts_do_not_attend_to_each_other(params):
    """A changed token affects the later tokens of its own text, and no others."""
    assert NUM_COLUMNS > 2 * layers.QUERY_BLOCK
    batch, _ = packed()
    hidden = jax.jit(POLICY.hidden)

    def hidden_of(tokens):
        return hidden(params, tokens, batch.positions, batch.segments)

    before = hidden_of(batch.tokens)
    for row, column in ((0, 2), (0, 45), (1, 35), (1, 95)):
        token = (batch.tokens[row, column] + 1) % CONFIG.vocab_size
        after = hidden_of(batch.tokens.at[row, column].set(token))
        reached = np.any(np.asarray(before != after), axis=-1)
        own = batch.segments == batch.segments[row, column]
        own &= batch.positions >= batch.positions[row, column]
        own &= np.arange(3)[:, None] == row
        np.testing.assert_array_equal(reached, own)


def test_hidden_states_equal_unpacked(params):
    alone, batch = unpacked(), packed()[0]
    expected = POLICY.hidden(params, alone.tokens, alone.positions, alone.segments)
    got = POLICY.hidden(params, batch.tokens, batch.positions, batch.segments)
    for i, ((row, start), size) in enumerate(zip(WHERE, LENGTHS)):
        here = got[row, start : start + size]
        np.testing.assert_allclose(here, expected[i, :size], rtol=1e-5, atol=1e-5)


def test_the_first_token_of_a_text_is_not_a_target(params):
    """It is not predicted even if it is a loss token, because nothing precedes it."""
    batch, _ = packed()
    every = Batch(
        batch.tokens, batch.positions, batch.segments, batch.valid, batch.divisor
    )
    log_prob, best = log_probs.token_log_probs(POLICY, params, every)
    first = np.asarray(batch.valid & (batch.positions == 0))
    assert first.sum() == len(LENGTHS)
    assert not np.any(log_prob[first]) and not np.any(best[first])
    assert np.all(log_prob[np.asarray(batch.valid) & ~first] < 0)


def update(params, batch, num_micro_batches):
    """Metrics and gradient of one step on a batch."""
    algorithm = Algorithm(
        lambda state, tables, key, tasks: (batch, {}),
        lambda params, part, divisor: losses.cross_entropy(
            POLICY, params, part, divisor
        ),
    )
    optimizer = optax.chain(optax.trace(0.0), optax.scale(0.0))  # updates nothing
    nothing = Curriculum(
        init=lambda: (),
        sample=lambda state, tables, task_key, *_: task_key,
        update=lambda state, tasks, metrics: state,
    )
    step = train_step.make_step(nothing, algorithm, optimizer, 1, num_micro_batches)
    state, metrics = jax.jit(step)(
        train_step.init_state(params, optimizer, jax.random.key(0)), ()
    )
    return metrics, state.opt_state[0].trace


@pytest.mark.parametrize("num_micro_batches", [1, 3])
def test_loss_and_gradient_equal_unpacked(params, num_micro_batches):
    expected, gradient = update(params, unpacked(), 1)
    metrics, other = update(params, packed()[0], num_micro_batches)
    for name in expected:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=1e-6)
    difference = optax.tree.norm(jax.tree.map(jnp.subtract, gradient, other))
    assert difference < 1e-6 * optax.tree.norm(gradient)


@pytest.mark.slow
def test_a_full_training_step():
    """Demonstrations, half of them perturbed, in two micro-batches of 2 rows."""
    longer = dict(algorithm__num_tokens=512, paft__alpha=0.5)
    longer |= dict(paft__perturbations=tiny.FEW)
    few = dict(algorithm__num_rows=4, train__num_micro_batches=2)
    both = []
    for changes in (longer, longer | few):
        step, state = tiny.trainer(tiny.config("sft", **changes))
        both.append(step(state)[1])
    expected, metrics = both
    assert metrics.pop("train/num_dropped") == 0
    assert expected.keys() == metrics.keys()
    for name in expected:
        np.testing.assert_allclose(metrics[name], expected[name], rtol=2e-6)
