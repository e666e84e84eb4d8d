"""What GRPO and PPO share: playing episodes, making batches, and the policy loss."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from openagent_jax import log_probs, losses, rewards, rollout
from openagent_jax.models import lora
from openagent_jax.optim import REFERENCE
from openagent_jax.rollout import Rollout
from openagent_jax.types import (
    Batch,
    Environment,
    Local,
    Metrics,
    Outcome,
    Params,
    Policy,
    Tables,
    Task,
    batch_size,
    undivided,
)

GAP_ROWS = 8  # one row in this many is scored again, to check its log-probs


class Surrogate(NamedTuple):
    """The surrogate objective of the policy (static)."""

    loss: str = "dapo"  # one of `losses.LOSSES`
    normaliser: str = ""  # see `losses.row_weights`; "" is the usual one of the loss
    clip_low: float = 0.0  # see `losses.policy_gradient`; 0 is the usual one
    clip_high: float = 0.0  # likewise
    kl: float = 0.0  # weight of the KL penalty towards the frozen reference


class Extra(NamedTuple):
    """`Batch.extra` of GRPO and PPO: what the loss needs besides tokens and masks."""

    log_prob: Float[Array, "B S"]  # at sampling time
    advantage: Float[Array, "B S"]
    weight: Float[Array, "B"]  # of each token of the row; see `losses.row_weights`
    reference: Float[Array, "B S"]  # log-probs of the reference; 0 if unused
    critic: Any = ()  # what the value loss of PPO needs


class Learner(NamedTuple):
    """Plays episodes, makes batches and computes losses for one policy."""

    policy: Policy
    environment: Environment
    weights: dict[str, float]  # of the reward components, by name
    temperature: float
    surrogate: Surrogate
    local: Local = undivided  # lets each device play its own episodes
    num_rows: int = 0  # episodes that are played at once; see `rollout.rollout`

    def play(
        self,
        params: Params,
        tables: Tables,
        key: jax.Array,
        tasks: Task,
        num_samples: int = 1,
        show_end: bool = False,
    ) -> tuple[Rollout, Float[Array, "B T"], Metrics]:
        """Play episodes of tasks with the current policy.

        Args:
          params: the parameters of the policy.
          tables: the arrays of the environment.
          key: PRNG key; episode i is sampled with `fold_in(key, i)`.
          tasks: leading axis P.
          num_samples: number of consecutive episodes of each task; B is P times this.
          show_end: see `rollout.rollout`.

        Returns:
          The episodes, the weighted reward of each turn, and metrics.
        """

        @self.local
        def episodes(shared, rows):
            (params, tables), (keys, tasks) = shared, rows
            played = rollout.rollout(
                self.policy,
                self.environment,
                tables,
                params,
                keys,
                tasks,
                self.temperature,
                show_end,
                self.num_rows,
            )
            episode = played.trajectory
            outcome = jax.vmap(self.environment.outcome, (None, 0, 0))(
                tables, episode.task, episode.state
            )
            return played, outcome

        index = jnp.arange(batch_size(tasks) * num_samples)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(key, index)
        played, outcome = episodes((params, tables), (keys, tasks))
        valid = played.trajectory.valid
        earned = {
            name: jnp.where(valid, x, 0)
            for name, x in played.trajectory.timestep.reward.items()
        }
        reward = rewards.total(earned, self.weights)
        means = {name: jnp.mean(jnp.sum(x, axis=1)) for name, x in earned.items()}
        metrics = {"reward": jnp.mean(jnp.sum(reward, axis=1))}
        metrics |= {f"rewards/{name}/mean": x for name, x in means.items()}
        if len(self.weights) > 1:
            weighted = {name: abs(w) * means[name] for name, w in self.weights.items()}
            total = jnp.maximum(sum(weighted.values()), 1e-8)
            shares = {
                f"rewards/{name}/share": x / total for name, x in weighted.items()
            }
            metrics |= shares
        return played, reward, metrics | _monitored(played, outcome)

    def score(
        self, params: Params, batch: Batch, hidden: jax.Array | None = None
    ) -> Float[Array, "B S"]:
        """Return the log-probs of the loss tokens at the sampling temperature."""
        return log_probs.token_log_probs(
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
        """Return the batch of a rollout, and metrics.

        Args:
          params: the parameters with which the episodes were sampled.
          played: B episodes.
          mask: the sampled tokens to train on. Those of an episode that was shown a
            truncated text (`overflow`) are left out.
          advantage: the advantage of each of these tokens.
          critic: see `Extra.critic`.
        """
        surrogate = self.surrogate
        usual = losses.LOSSES[surrogate.loss]
        # What was truncated is not the task that the rewards are for.
        mask = mask & ~played.overflow[:, None]
        # The largest number of tokens that an episode can sample.
        sizes = self.environment.sizes
        constant = sizes.max_turns * sizes.action_tokens
        weight, divisor = losses.row_weights(
            surrogate.normaliser or usual.normaliser, mask, constant
        )
        positions = jnp.arange(mask.shape[1])
        positions = jnp.broadcast_to(positions, mask.shape)
        none = jnp.zeros_like(played.log_prob)
        extra = Extra(played.log_prob, advantage, weight, none, critic)
        segments = played.valid.astype(jnp.int32)
        batch = Batch(played.tokens, positions, segments, mask, divisor, extra)
        all_sampled = dataclasses.replace(batch, loss_mask=played.sampled)

        @self.local
        def gaps(params: Params, rows: Batch):
            some = jax.tree.map(lambda x: x[::GAP_ROWS], rows)
            gap = jnp.abs(self.score(params, some) - some.extra.log_prob)
            return jnp.max(gap, axis=1, where=some.loss_mask, initial=0)

        gap = jnp.max(gaps(params, all_sampled))
        metrics = {"sampler_trainer/logp_abs_diff_max": gap}
        if surrogate.kl:
            # A model with LoRA adapters contains the base model, its reference.
            own = lora.LORA in params and REFERENCE not in params
            held = lora.base(params) if own else params[REFERENCE]
            extra = extra._replace(reference=self.local(self.score)(held, batch))
            batch = dataclasses.replace(batch, extra=extra)
        return batch, metrics

    def loss(
        self,
        params: Params,
        batch: Batch,
        divisor: jax.Array,
        hidden: jax.Array | None = None,
    ) -> tuple[jax.Array, Metrics]:
        """Return the policy loss of a part of a batch, and metrics."""
        extra, surrogate = batch.extra, self.surrogate
        usual = losses.LOSSES[surrogate.loss]
        log_prob = self.score(params, batch, hidden)
        loss, clipped = losses.policy_gradient(
            surrogate.loss,
            log_prob,
            extra.log_prob,
            extra.advantage,
            batch.loss_mask,
            surrogate.clip_low or usual.clip_low,
            surrogate.clip_high or usual.clip_high,
        )
        metrics = {"clip_ratio": jnp.sum(clipped)}
        if surrogate.kl:
            kl = losses.kl_estimate(log_prob, extra.reference, batch.loss_mask)
            loss = loss + surrogate.kl * kl
            metrics["kl"] = jnp.sum(kl)
        return jnp.sum(extra.weight[:, None] * loss) / divisor, metrics


def _monitored(played: Rollout, outcome: Outcome) -> Metrics:
    """Return the metrics of a rollout that do not depend on the reward."""
    episode = played.trajectory
    num_actions = jnp.maximum(jnp.sum(episode.valid), 1)
    num_calls = jnp.maximum(jnp.sum(outcome.num_calls), 1)

    def share(of, among):
        return jnp.sum(of & among) / jnp.maximum(jnp.sum(among), 1)

    num_sampled = jnp.sum(played.sampled)
    return {
        # The mean of -log p over sampled tokens estimates the entropy per token.
        "entropy": -jnp.sum(played.log_prob) / jnp.maximum(num_sampled, 1),
        "success": jnp.mean(outcome.success),
        "refusal/refused": share(outcome.refused, ~outcome.solvable),
        "refusal/false_refusal": share(outcome.refused, outcome.solvable),
        "tools/call_frequency": jnp.sum(outcome.num_calls) / num_actions,
        "tools/failure_frequency": jnp.sum(outcome.num_errors) / num_calls,
        "completions/mean_length": jnp.mean(jnp.sum(played.sampled, axis=1)),
        "completions/clipped_ratio": jnp.mean(played.cut),
        "rollout/num_overflow": jnp.sum(played.overflow),
        "rollout/idle": jnp.mean(played.idle),
        "completions/num_turns": num_actions / episode.valid.shape[0],
        "num_sampled_tokens": num_sampled,
    }
