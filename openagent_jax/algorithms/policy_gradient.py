"""What the algorithms that learn from their own episodes have in common."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from openagent_jax import losses, rewards, rollout, types
from openagent_jax.models import lora
from openagent_jax.rollout import Rollout, Sampling, Sizes
from openagent_jax.sandbox import lexicon
from openagent_jax.types import Batch, Metrics, Params, Policy, Task

GAP_ROWS = 8  # of so many rows one is scored again, to see that sampling was right
REFERENCE = "reference"  # of the parameters: those at the start; see `optim`


class Surrogate(NamedTuple):
    """What is optimised (static)."""

    loss: str = "dapo"  # of losses.NORMALISERS
    normaliser: str = ""  # of losses.row_weights; "": the one of the loss
    clip_low: float = 0.2
    clip_high: float = 0.28
    kl: float = 0.0  # weight of the divergence from the frozen reference


class Extra(NamedTuple):
    """What the loss needs besides the tokens."""

    log_prob: Float[Array, "B S"]  # as the tokens were sampled
    advantage: Float[Array, "B S"]
    weight: Float[Array, "B"]  # of a token of the row
    reference: Float[Array, "B S"]  # log-probabilities; zeros without a reference
    critic: Any = ()


class Learner(NamedTuple):
    """Episodes, batches and losses under one policy and one surrogate."""

    policy: Policy
    lexicon: lexicon.Lexicon
    sizes: Sizes
    weights: dict[str, float]  # of the components of the reward
    temperature: float
    surrogate: Surrogate

    def play(
        self, params: Params, key: jax.Array, tasks: Task, num_samples: int = 1
    ) -> tuple[Rollout, Float[Array, "B T"], Metrics]:
        """Episodes, `num_samples` of each task in a row, and what each turn earned."""
        index = jnp.arange(tasks.world.shape[0] * num_samples)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, index)
        played = rollout.rollout(
            self.policy,
            self.lexicon,
            params,
            keys,
            tasks,
            self.sizes,
            Sampling(self.temperature),
        )
        earned = jax.vmap(
            lambda episode: rewards.by_turn(self.lexicon, episode, self.sizes.max_turns)
        )(played.trajectory)
        reward = rewards.total(earned, self.weights)
        means = {name: jnp.mean(jnp.sum(x, axis=1)) for name, x in earned.items()}
        metrics = {"reward": jnp.mean(jnp.sum(reward, axis=1))}
        metrics |= {f"rewards/{name}/mean": x for name, x in means.items()}
        if len(self.weights) > 1:
            weighted = {name: abs(w) * means[name] for name, w in self.weights.items()}
            whole = jnp.maximum(sum(weighted.values()), 1e-8)
            shares = {
                f"rewards/{name}/share": x / whole for name, x in weighted.items()
            }
            metrics |= shares
        return played, reward, metrics | monitor(played)

    def score(
        self, params: Params, batch: Batch, hidden: jax.Array | None = None
    ) -> Float[Array, "B S"]:
        """Log-probabilities of the loss tokens, as they are sampled."""
        return losses.token_log_probs(
            self.policy, params, batch, self.temperature, hidden
        )[0]

    def batch(
        self,
        params: Params,
        played: Rollout,
        mask: Bool[Array, "B S"],
        advantage: Float[Array, "B S"],
        critic: Any = (),
    ) -> tuple[Batch, Metrics]:
        """The rows of a rollout, as the loss eats them.

        Args:
          params: that they were played with.
          played: its rows.
          mask: the sampled tokens that count.
          advantage: of each of them.
          critic: what else the loss needs.
        """
        surrogate = self.surrogate
        normaliser = surrogate.normaliser or losses.NORMALISERS[surrogate.loss]
        # The longest that an episode can say, so that rows differ by what they said.
        constant = self.sizes.max_turns * self.sizes.action_tokens
        weight, divisor = losses.row_weights(normaliser, mask, constant)
        positions = jnp.arange(mask.shape[1])
        positions = jnp.broadcast_to(positions, mask.shape)
        none = jnp.zeros_like(played.log_prob)
        extra = Extra(played.log_prob, advantage, weight, none, critic)
        segments = played.valid.astype(jnp.int32)
        batch = Batch(played.tokens, positions, segments, mask, divisor, extra)
        all_said = dataclasses.replace(batch, loss_mask=played.sampled)
        some = jax.tree.map(lambda x: x[::GAP_ROWS], all_said)
        gap = jnp.abs(self.score(params, some) - some.extra.log_prob)
        gap = jnp.max(gap, where=some.loss_mask, initial=0)
        metrics = {"sampler_trainer/logp_abs_diff_max": gap}
        if surrogate.kl:
            # A model with adapters has its start within itself.
            own = lora.LORA in params and REFERENCE not in params
            held = lora.base(params) if own else params[REFERENCE]
            extra = extra._replace(reference=self.score(held, batch))
            batch = dataclasses.replace(batch, extra=extra)
        return batch, metrics

    def loss(
        self,
        params: Params,
        batch: Batch,
        divisor: jax.Array,
        hidden: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """The surrogate of the policy."""
        extra, surrogate = batch.extra, self.surrogate
        log_prob = self.score(params, batch, hidden)
        loss, clipped = losses.policy_gradient(
            surrogate.loss,
            log_prob,
            extra.log_prob,
            extra.advantage,
            batch.loss_mask,
            surrogate.clip_low,
            surrogate.clip_high,
        )
        metrics = {"clip_ratio": jnp.sum(clipped)}
        if surrogate.kl:
            kl = losses.kl_to(log_prob, extra.reference, batch.loss_mask)
            loss = loss + surrogate.kl * kl
            metrics["kl"] = jnp.sum(kl)
        return jnp.sum(extra.weight[:, None] * loss) / divisor, metrics


def monitor(played: Rollout) -> Metrics:
    """What episodes were like, whatever they earned."""
    episode = played.trajectory
    kind, valid, state = episode.action.kind, episode.valid, episode.state
    num_actions = jnp.maximum(jnp.sum(valid), 1)
    num_calls = jnp.maximum(jnp.sum(state.num_calls), 1)
    refused = jnp.any((kind == types.REFUSE) & valid, axis=1)

    def share(of, among):
        return jnp.sum(of & among) / jnp.maximum(jnp.sum(among), 1)

    num_sampled = jnp.sum(played.sampled)
    return {
        # The mean of -log p of what is sampled estimates the entropy of a token.
        "entropy": -jnp.sum(played.log_prob) / jnp.maximum(num_sampled, 1),
        "success": jnp.mean(state.success),
        "refusal/refused": share(refused, ~state.solvable),
        "refusal/false_refusal": share(refused, state.solvable),
        "tools/call_frequency": jnp.sum(state.num_calls) / num_actions,
        "tools/failure_frequency": jnp.sum(state.num_errors) / num_calls,
        "completions/mean_length": jnp.mean(jnp.sum(played.sampled, axis=1)),
        "completions/clipped_ratio": jnp.mean(played.cut),
        "completions/num_turns": num_actions / valid.shape[0],
        "num_sampled_tokens": num_sampled,
    }
