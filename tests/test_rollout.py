"""Tokens in, tokens out: a rollout stores exactly the tokens that training reads."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import expert, rollout
from openagent_jax.environments.tools import make
from openagent_jax.evaluation import evaluate
from openagent_jax.text import reply_scan
from openagent_jax.types import Sizes
from tests import helpers

NUM, TURNS, ACTION, RESULT = 16, 4, 8, 32
CONTEXT = 3 * (ACTION + RESULT) // 2  # besides the prompt: not always four turns
WARM = 1.0  # a temperature
# Likely tokens: without them, a random policy would never end, refuse or ask.
LIKELY = {"<|end|>": 9.5, "Refuse": 9, "Ask": 10, "Answer: ": 9}


@pytest.fixture(scope="module")
def tables():
    return helpers.world("poi").tables


@pytest.fixture(scope="module")
def tasks():
    return jax.tree.map(lambda x: x[:NUM], helpers.tasks("poi"))


@pytest.fixture(scope="module")
def lengths(tables, tasks):
    """The number of tokens of each prompt."""

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(None, 0))
    def length(tables, task):
        return expert.num_tokens(tables, helpers.ENVIRONMENT.prompt(tables, task))

    return np.asarray(length(tables, tasks))


@pytest.fixture(scope="module")
def prompt_limit(lengths):
    """The limit on prompt tokens: enough for all prompts but the longest."""
    return int(np.sort(lengths)[-2])


@pytest.fixture(scope="module")
def agent():
    return helpers.biased_policy(LIKELY)


@pytest.fixture(scope="module")
def environment(prompt_limit):
    sizes = Sizes(TURNS, prompt_limit, ACTION, RESULT, prompt_limit + CONTEXT)
    return make.functions(sizes, helpers.NUM_VISIBLE)


@pytest.fixture(scope="module")
def play(agent, environment, tables, tasks):
    """`keys -> (sampled, greedy, log-probabilities, best tokens)`, one program.

    The last two come from the trainer's forward pass on the sampled tokens and on the
    greedy ones.
    """
    policy, params = agent

    def trainer_log_probs(played):
        """The trainer's log-probabilities of the next token at each position."""
        positions = jnp.broadcast_to(
            jnp.arange(played.tokens.shape[1])[None], played.tokens.shape
        )
        hidden = policy.hidden(params, played.tokens, positions, played.valid)
        return jax.nn.log_softmax(policy.head(params, hidden))

    @jax.jit
    def run(tables, keys):
        runner = functools.partial(
            rollout.rollout, policy, environment, tables, params, keys, tasks
        )
        warm, greedy = runner(WARM), runner()
        following = warm.tokens[:, 1:, None]
        log_probs = jnp.take_along_axis(
            trainer_log_probs(warm)[:, :-1], following, axis=-1
        )
        best = jnp.argmax(trainer_log_probs(greedy)[:, :-1], axis=-1)
        return warm, greedy, log_probs[..., 0], best

    return lambda seed: helpers.host(run(tables, helpers.keys(seed, num=NUM)))


@pytest.fixture(scope="module")
def played(play):
    return play(0)


def sampled_turns(played, i):
    """The policy's tokens of row i, a list for each turn."""
    tokens, sampled = played.tokens[i], played.sampled[i]
    starts = np.flatnonzero(sampled & ~np.roll(sampled, 1))
    ends = np.flatnonzero(sampled & ~np.roll(sampled, -1)) + 1
    return [tokens[a:b].tolist() for a, b in zip(starts, ends, strict=True)]


class TestTokens:
    def test_log_probs_match_the_trainer(self, played):
        sampled, _, log_probs, _ = played
        own = sampled.sampled[:, 1:]
        assert own.sum() > 100
        difference = np.abs(sampled.log_prob[:, 1:] - log_probs)[own]
        assert difference.max() < 1e-4
        assert np.ptp(log_probs[own]) > 3  # they are not all alike
        assert not np.any(sampled.log_prob[~sampled.sampled])

    def test_greedy_tokens_match_the_trainer(self, played):
        _, greedy, _, best = played
        own = greedy.sampled[:, 1:]
        assert own.any()
        assert np.array_equal(greedy.tokens[:, 1:][own], best[own])

    def test_rows_are_dense_prefixes(self, played):
        for rolled in played[:2]:
            length = rolled.valid.sum(axis=1)
            slots = np.arange(rolled.valid.shape[1])
            assert np.array_equal(rolled.valid, slots < length[:, None])
            assert not np.any(rolled.sampled & ~rolled.valid)
        assert len(set(length)) > NUM // 3
        assert played[0].valid.sum(axis=1).max() > length.min()

    def test_sampled_marks_exactly_the_tokens_of_the_policy(self, played):
        """All other tokens spell the prompt and the observations of plain Python."""
        sampled = played[0]
        closed, fitting = 0, 0
        for i, episode in enumerate(helpers.rows(sampled.trajectory)):
            if sampled.overflow[i]:
                continue
            fitting += 1
            writer = helpers.Writer("poi", episode)
            turns, runs = np.flatnonzero(episode.valid), sampled_turns(sampled, i)
            assert len(turns) == len(runs)
            expected = writer.prompt()
            for t, run in zip(turns, runs, strict=True):
                ended = helpers.spell(run[-1:]) == helpers.END
                assert ended or len(run) == ACTION
                if t + 1 < len(turns):
                    expected += ("" if ended else helpers.END) + writer.reply_text(t)
                    closed += not ended
            rest = sampled.valid[i] & ~sampled.sampled[i]
            assert helpers.spell(sampled.tokens[i][rest]) == expected
        assert closed > 0
        assert fitting > NUM // 2

    def test_actions_match_the_tokens(self, play):
        said = {"Refuse<|end|>": reply_scan.REFUSE, "Ask<|end|>": reply_scan.ASK}
        kinds = set()
        for rolled in (play(seed)[0] for seed in range(8)):
            for i, episode in enumerate(helpers.rows(rolled.trajectory)):
                for t, run in enumerate(sampled_turns(rolled, i)):
                    text, kind = helpers.spell(run), episode.action.kind[t]
                    answers = text.startswith("Answer: ") and text.endswith(helpers.END)
                    other = reply_scan.ANSWER if answers else reply_scan.MALFORMED
                    assert kind == said.get(text, other), text
                    kinds.add(int(kind))
        assert kinds >= {
            reply_scan.REFUSE,
            reply_scan.ASK,
            reply_scan.ANSWER,
            reply_scan.MALFORMED,
        }

    def test_overflow_is_reported(self, played, lengths, prompt_limit):
        for rolled in played[:2]:
            assert np.array_equal(rolled.overflow, lengths > prompt_limit)
        assert played[0].overflow.any()


class TestEpisodes:
    def test_finished_rows_idle(self, played):
        """After a refusal, nothing is generated, shown or counted."""
        early = 0
        for i, episode in enumerate(helpers.rows(played[0].trajectory)):
            turns = int(episode.valid.sum())
            assert episode.valid[:turns].all()
            assert episode.state.turn == turns
            over = episode.timestep.terminated | episode.timestep.truncated
            assert over[:turns].tolist() == [False] * (turns - 1) + [True]
            ends = np.isin(episode.action.kind, (reply_scan.REFUSE, reply_scan.ANSWER))
            assert not np.any(ends[: turns - 1])
            cut = played[0].cut[i]
            assert episode.state.finished == (not cut)
            assert episode.timestep.terminated[turns - 1] == ends[turns - 1]
            assert bool(turns == TURNS or ends[turns - 1]) is not bool(cut)
            if turns < TURNS and not cut:
                early += 1
                last = np.flatnonzero(played[0].valid[i])[-1]
                assert helpers.spell([played[0].tokens[i, last]]) == helpers.END
                assert played[0].sampled[i, last]
        assert 0 < early < NUM

    def test_episodes_end_when_the_context_is_full(self, played, prompt_limit):
        sampled = played[0]
        length, cut = sampled.valid.sum(axis=1), sampled.cut
        assert cut.any() and not cut.all()
        assert (length[cut] + RESULT + ACTION + RESULT > prompt_limit + CONTEXT).all()
        assert length.max() <= prompt_limit + CONTEXT
        assert not sampled.trajectory.state.success[cut].any()

    def test_states_match_the_environment(self, played):
        """The recorded actions are replayed one by one."""
        lexicon = helpers.lexicon("poi")
        for episode in helpers.rows(played[0].trajectory)[:4]:
            state = helpers.reset(lexicon, episode.task)
            for t in np.flatnonzero(episode.valid):
                action = helpers.row(episode.action, t)
                state, timestep = helpers.step(
                    lexicon, episode.task, state, action, TURNS
                )
                seen = helpers.row(episode.timestep, t)
                # The rollout truncates an episode that has no room for another turn.
                truncated = timestep.truncated | (seen.truncated & ~state.finished)
                timestep = dataclasses.replace(timestep, truncated=truncated)
                jax.tree.map(np.testing.assert_array_equal, timestep, seen)
            jax.tree.map(np.testing.assert_array_equal, state, episode.state)

    def test_keys(self, play, played):
        """Greedy play is independent of keys; sampled play is a function of them."""
        again, other = play(0), play(1)
        jax.tree.map(np.testing.assert_array_equal, again, played)
        jax.tree.map(np.testing.assert_array_equal, other[1], played[1])
        assert np.any(other[0].tokens != played[0].tokens)


@pytest.mark.slow
def test_a_result_that_is_too_long_is_no_lack_of_room(agent, lengths, tables, tasks):
    """There is room for two turns with results of the size that is allowed."""
    policy, params = agent
    size, longest = 2, int(lengths.max())
    sizes = Sizes(TURNS, longest, ACTION, size, longest + 2 * (ACTION + size))
    environment = make.functions(sizes, helpers.NUM_VISIBLE)
    play = functools.partial(rollout.rollout, policy, environment)
    rolled = jax.jit(lambda tables, keys: play(tables, params, keys, tasks, WARM))(
        tables, helpers.keys(0, num=NUM)
    )
    assert np.any(rolled.cut) and not np.any(rolled.cut & ~rolled.overflow)


@pytest.fixture
def replay(agent, environment, tables, tasks):
    """`num_rows -> episodes`, those of `played` with so many rows at once."""
    policy, params = agent

    def replay(num_rows):
        run = jax.jit(
            lambda tables, keys: rollout.rollout(
                policy, environment, tables, params, keys, tasks, WARM, False, num_rows
            )
        )
        return helpers.host(run(tables, helpers.keys(0, num=NUM)))

    return replay


def num_read(played):
    """The tokens that each row reads: all after its prompt, up to its last action."""
    slots = np.arange(played.tokens.shape[1])
    last = np.max(np.where(played.sampled, slots, 0), axis=1)
    return last + 1 - np.argmax(played.sampled, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [1, 5, NUM])
def test_rows_at_once_change_nothing(replay, played, num_rows):
    got = replay(num_rows)
    (num_steps,), (idle,) = set(got.num_steps), set(got.idle)
    read = num_read(got)
    assert idle == pytest.approx(1 - read.sum() / (num_steps * num_rows), abs=1e-6)
    if num_rows == 1:
        assert num_steps == read.sum() and idle == 0
    elif num_rows == NUM:
        assert num_steps == read.max()  # no answer has to be waited for
    else:  # rows read one after the other, and the last ones alone
        assert read.sum() / num_rows < num_steps < read.sum() / num_rows + read.max()
    same = dict(num_steps=0, idle=0)
    jax.tree.map(
        # A matrix product of fewer rows may round differently.
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5),
        got._replace(**same),
        played[0]._replace(**same),
    )


@pytest.mark.slow
def test_rows_that_are_refilled_wait_for_each_other(replay, played, monkeypatch):
    """Two of five rows are answered at once, and take the next episodes."""
    monkeypatch.setattr(rollout, "ROWS_PER_ANSWER", 2)
    got = replay(5)
    np.testing.assert_array_equal(got.tokens, played[0].tokens)
    jax.tree.map(np.testing.assert_array_equal, got.trajectory, played[0].trajectory)


def test_the_environment_answers_several_rows_at_once(replay, played, monkeypatch):
    """If all wait for each other, all are at the same turn; the episodes stay equal."""
    monkeypatch.setattr(rollout, "ROWS_PER_ANSWER", 1)
    got = replay(NUM)
    longest = np.zeros(TURNS, int)
    for sampled in got.sampled:
        start = np.argmax(sampled)
        for t, end in enumerate(np.flatnonzero(sampled & ~np.append(sampled[1:], 0))):
            longest[t] = max(longest[t], end + 1 - start)
            start = end + 1
    assert got.num_steps[0] == longest.sum() > num_read(got).max()
    np.testing.assert_array_equal(got.tokens, played[0].tokens)
    jax.tree.map(np.testing.assert_array_equal, got.trajectory, played[0].trajectory)


@pytest.mark.slow
def test_a_group_prefills_its_prompt_once(agent, environment, tables, tasks):
    """Four episodes per task equal those of four rows with the same task and keys."""
    policy, params = agent
    few = jax.tree.map(lambda x: x[: NUM // 4], tasks)
    each = jax.tree.map(lambda x: jnp.repeat(x, 4, axis=0), few)
    num_read = []  # shapes of the tokens that are read at once

    def extend(params, cache, tokens, length):
        num_read.append(tokens.shape)
        return policy.extend(params, cache, tokens, length)

    @jax.jit
    def run(tables, keys, tasks):
        reader = policy._replace(extend=extend)
        return rollout.rollout(reader, environment, tables, params, keys, tasks, WARM)

    keys = helpers.keys(0, num=NUM)
    grouped, single = helpers.host((run(tables, keys, few), run(tables, keys, each)))
    prompts = [shape[0] for shape in num_read if shape[1] == rollout.PROMPT_CHUNK]
    assert prompts == [NUM // 4, NUM]
    # A matrix product of fewer rows may round differently.
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5),
        grouped,
        single,
    )
    said = [row[own].tolist() for row, own in zip(grouped.tokens, grouped.sampled)]
    assert all(a != b for a, b in zip(said[::4], said[1::4]))  # each has its own key


def test_evaluation_samples_at_its_temperature(monkeypatch):
    def stop(*args, num_rows):
        raise InterruptedError(args[-1])

    monkeypatch.setattr(evaluate, "rollout", stop)
    world, zero = helpers.world("poi"), jnp.int32(0)
    play = evaluate.make_player(None, world, (), 2, temperature=0.5)
    with pytest.raises(InterruptedError, match="^0.5"):
        play(world.tables, {}, zero, jax.random.key(0), zero, jnp.float32(1))
