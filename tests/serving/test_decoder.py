"""Prefilling and decoding rows, compared with the same model without a cache."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.serving import decoder as decoders
from tests import helpers
from tests.serving import host

LIKELY = {"<|end|>": 2.0}
SLOTS = 320


@functools.cache
def policy_and_params():
    return helpers.biased_policy(LIKELY)


@functools.cache
def shared_decoder():
    return host.decode(*policy_and_params(), num_slots=SLOTS)


@jax.jit
def forward(params, tokens):
    policy, _ = policy_and_params()
    positions = jnp.arange(SLOTS)[None]
    hidden = policy.hidden(params, tokens, positions, jnp.ones_like(positions))
    return policy.head(params, hidden)[0]


def greedy(prompt, num):
    """Generate greedily, with all earlier tokens read again for each token."""
    _, params = policy_and_params()
    said, end = [], shared_decoder().end_token
    while len(said) < num and end not in said:
        tokens = [*prompt, *said]
        row = np.zeros((1, SLOTS), np.int32)
        row[0, : len(tokens)] = tokens
        said.append(int(np.argmax(forward(params, row)[len(tokens) - 1])))
    return said


def prompt(length, seed=0):
    return np.random.default_rng(seed).integers(6, 6000, length).tolist()


class Bench:
    """A decoder whose rows are managed by hand."""

    def __init__(self):
        self.made = shared_decoder()
        self.cache = self.made.empty()
        self.rows = decoders.idle_rows(self.made.num_rows)

    def prefill(self, row, tokens, num_left=0, **how):
        """Prefill a row, and return the next token."""
        for name, value in how.items():
            getattr(self.rows, name)[row] = value
        size = decoders.MAX_PREFILL
        for start in range(0, len(tokens), size):
            piece = np.full(size, 7, np.int32)  # padding, which is ignored
            some = tokens[start : start + size]
            piece[: len(some)] = some
            self.rows.length[row] = start
            self.cache, token = self.made.prefill(
                self.cache, row, piece, len(some), self.rows
            )
        self.rows.length[row] = len(tokens)
        ended = token == shared_decoder().end_token
        self.rows.token[row], self.rows.remaining[row] = token, 0 if ended else num_left
        return int(token)

    def decode(self, num_steps=decoders.MAX_STEPS):
        """Return what each row generates."""
        self.cache, said = self.made.decode(self.cache, self.rows, num_steps)
        said = [row[row != decoders.NO_TOKEN].tolist() for row in np.asarray(said)]
        for i, row in enumerate(said):
            if row:
                ended = row[-1] == shared_decoder().end_token
                self.rows.token[i] = row[-1]
                self.rows.remaining[i] = (
                    0 if ended else self.rows.remaining[i] - len(row)
                )
                self.rows.length[i] += len(row)
        return said

    def finish(self, row):
        """Generate all remaining tokens of a row."""
        said = []
        while self.rows.remaining[row]:
            said += self.decode()[row]
        return said


# The last case begins in the first block of the cache and ends in the third.
@pytest.mark.parametrize("length", [1, 31, 32, 33, 128, 129, 250, 30])
@pytest.mark.slow
def test_greedy_rows_equal_decoding_without_a_cache(length):
    bench, tokens = Bench(), prompt(length, length)
    num = 100 if length == 30 else 40
    first = bench.prefill(2, tokens, num - 1)
    assert [first, *bench.finish(2)][:num] == greedy(tokens, num)


def test_rows_of_different_lengths_at_once():
    bench = Bench()
    prompts = [prompt(n, seed) for n, seed in ((5, 41), (200, 10), (31, 28))]
    said = [[bench.prefill(i, tokens, 29)] for i, tokens in enumerate(prompts)]
    while bench.rows.remaining.any():
        for row, more in zip(said, bench.decode()):
            row += more
    assert said == [greedy(tokens, 30) for tokens in prompts]
    assert len({*map(len, said)}) > 1  # one row ends before the others


def test_decoding_stops_when_a_row_ends():
    bench = Bench()
    bench.prefill(0, prompt(40), 3)
    bench.prefill(1, prompt(40), 20)
    said = bench.decode()
    assert [len(row) for row in said] == [3, 3, 0, 0]
    assert len(bench.decode(5)[1]) == 5
    assert bench.rows.remaining.tolist() == [0, 12, 0, 0]


HOT = {"temperature": 1.5, "seed": 11}


def sampled(row, others=0, length=40, **how):
    bench = Bench()
    for other in range(others):
        bench.prefill(
            (row + 1 + other) % 4, prompt(70, other), 50, temperature=1, seed=9
        )
    first = bench.prefill(row, prompt(length), 24, **how)
    return [first, *bench.finish(row)]


def test_sampled_rows_are_functions_of_their_seed():
    said = sampled(0, **HOT)
    assert len({*said}) > 5
    assert sampled(3, others=3, **HOT) == said
    assert sampled(0, **(HOT | {"seed": 12})) != said
    assert sampled(0, length=41, **HOT) != said


def test_greedy_rows_do_not_depend_on_others():
    assert sampled(1, others=3) == sampled(0)


def test_top_p():
    """A tiny top-p leaves only the most likely token."""
    assert sampled(0, top_p=1e-6, **HOT) == sampled(0)
    # Every token is among the fewest that make up half of the probability.
    said, policy = sampled(0, top_p=0.5, **HOT), policy_and_params()
    assert said != sampled(0)
    row = np.zeros((1, SLOTS), np.int32)
    row[0, : 40 + len(said)] = [*prompt(40), *said]
    logits = forward(policy[1], row)[39 : 39 + len(said)]
    mass = jax.nn.softmax(logits / HOT["temperature"])
    own = np.take_along_axis(np.asarray(mass), np.array(said)[:, None], 1)
    more_likely = np.where(mass > own, mass, 0).sum(axis=1)
    assert (more_likely < 0.5 + 1e-4).all()
    assert (more_likely > 0.01).any()


@pytest.mark.slow
def test_a_sharded_model():
    policy, params = policy_and_params()
    mesh = jax.make_mesh((2,), ("tensor",), axis_types=(jax.sharding.AxisType.Auto,))

    def split(x):
        axes = [None] * (x.ndim - 1) + ["tensor"]
        placed = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
        return jax.device_put(x, placed)

    other = host.decode(policy, jax.tree.map(split, params), num_slots=SLOTS)
    bench, tokens = Bench(), prompt(140)
    bench.made, bench.cache = other, other.empty()
    first = bench.prefill(1, tokens, 19)
    assert [first, *bench.finish(1)] == greedy(tokens, 20)
