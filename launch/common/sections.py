"""The typed sections of a config, and their conversion to types of the library.

Each property converts the values of a section to a type of the library (`Grpo.groups`,
`Ppo.critic`, ...), so that a key is converted in one place only. The fields have no
comments and no defaults here, because `configs/base.py` has both for every key.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh as DeviceMesh

from launch.common import errors
from openagent_jax import monitors, optim, sharding
from openagent_jax.algorithms import grpo, policy_gradient, ppo
from openagent_jax.curriculum import mix
from openagent_jax.models import initial_heads, lora, transformer


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters of the model; rank 0 means none."""

    rank: int
    alpha: float
    targets: tuple[str, ...]

    @property
    def adapters(self) -> lora.Lora | None:
        """The adapters that are trained, or None where the whole model is.

        Raises:
          UsageError: a value is out of its range.
        """
        if not self.rank:
            return None
        with errors.blame("model.lora"):
            return lora.Lora(self.rank, self.alpha, self.targets)


@dataclass(frozen=True)
class Model:
    """The decoder, its tokenizer, and how its text is formatted."""

    tokenizer: str
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    mlp_width: int
    rope_theta: float
    tied: bool
    look_back_heads: int
    match_heads: int
    copy_heads: int
    word_forms: bool
    chat_template: str
    param_dtype: str
    dtype: str
    remat: str
    lora: Lora

    @property
    def heads(self) -> initial_heads.Heads:
        """The heads that are built into random weights."""
        return initial_heads.Heads(
            self.look_back_heads, self.match_heads, self.copy_heads
        )

    def decoder(self, vocab_size: int) -> transformer.ModelConfig:
        """The decoder of a model that starts from random weights.

        Raises:
          ValueError: the sizes do not fit together.
        """
        return transformer.ModelConfig(
            vocab_size=vocab_size,
            width=self.width,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            head_size=self.head_size,
            mlp_width=self.mlp_width,
            rope_theta=self.rope_theta,
            tied=self.tied,
            **self.overrides,
        )

    @property
    def overrides(self) -> dict[str, Any]:
        """Fields of a `ModelConfig` that hold for every backbone."""
        return {
            "dtype": self.dtype,
            "param_dtype": self.param_dtype,
            "remat": self.remat,
            "lora": self.lora.adapters,
        }


@dataclass(frozen=True)
class Algorithm:
    """The algorithm, its sampling temperature, and the rows of SFT."""

    name: str
    temperature: float
    num_tokens: int
    num_rows: int

    @property
    def is_reinforcement(self) -> bool:
        """Whether it trains on episodes of the policy instead of demonstrations."""
        return self.name != "sft"


@dataclass(frozen=True)
class Data:
    """Stored demonstrations."""

    path: str
    num_threads: int
    num_train: int
    num_test: int


@dataclass(frozen=True)
class Grpo:
    """The groups of GRPO."""

    size: int
    oversample: int
    std: str
    paired: bool

    @property
    def groups(self) -> grpo.Groups:
        """How episodes are grouped and compared."""
        return grpo.Groups(**vars(self))


@dataclass(frozen=True)
class Ppo:
    """The critic of PPO."""

    discount: float
    gae_lambda: float
    weight: float
    clip: float
    normalise: bool

    @property
    def critic(self) -> ppo.Critic:
        """How the value function is learned and advantages are estimated."""
        return ppo.Critic(**vars(self))


@dataclass(frozen=True)
class Surrogate:
    """The objective of reinforcement learning."""

    loss: str
    normaliser: str
    clip_low: float
    clip_high: float
    kl: float
    reference: str

    @property
    def objective(self) -> policy_gradient.Surrogate:
        """The surrogate loss. The reference model is found by `backbones.reference`."""
        return policy_gradient.Surrogate(
            loss=self.loss,
            normaliser=self.normaliser,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            kl=self.kl,
        )


@dataclass(frozen=True)
class Reward:
    """Weights of the components of the reward."""

    outcome: float
    refusal: float
    abstain: float
    wrong: float
    effect: float
    format: float
    step: float
    detour: float
    needless_question: float
    progress: float

    @property
    def weights(self) -> dict[str, float]:
        """The weights that are not zero, by component."""
        return {name: weight for name, weight in vars(self).items() if weight}


@dataclass(frozen=True)
class Paft:
    """Which tasks of a batch are perturbed, and how."""

    alpha: float
    strength: float
    ramp_steps: int
    paired: bool
    perturbations: tuple[str, ...]
    leave_out: tuple[str, ...]

    @property
    def schedule(self) -> Callable[[jax.Array], jax.Array | float]:
        """The strength of the perturbations as a function of the step."""
        return mix.ramp(self.strength, self.ramp_steps)


@dataclass(frozen=True)
class Optim:
    """The optimizer."""

    name: str
    learning_rate: float
    muon_learning_rate: float
    train_embedding: bool
    schedule: str
    warmup_steps: int
    end_factor: float
    weight_decay: float
    clip_norm: float
    master_copy: bool

    def optimizer(self, num_updates: int) -> optim.Optimizer:
        """Make the optimizer of a run of `num_updates` updates.

        Raises:
          ValueError: a name is unknown, or a value is out of its range.
        """
        return optim.make_optimizer(**vars(self), num_updates=num_updates)


@dataclass(frozen=True)
class Train:
    """The training loop."""

    num_steps: int
    max_tokens: int
    batch_size: int
    num_tasks: int
    num_micro_batches: int
    num_epochs: int
    num_minibatches: int
    other_domains: tuple[str, ...]
    other_share: float
    lookup_share: float
    lookup_steps: int
    num_ahead: int
    shuffle_vectors: bool
    log_every: int


@dataclass(frozen=True)
class Monitor:
    """Bounds of the metrics of reinforcement learning."""

    min_entropy: float
    max_entropy: float
    min_calls: float
    max_reward_drop: float
    max_refusal_drift: float
    max_zero_variance: float
    max_log_prob_gap: float
    max_reward_share: float
    patience: int
    stop: tuple[str, ...]

    @property
    def bounds(self) -> dict[str, float]:
        """The bound of each entry of `monitors.MONITORS`."""
        return {name: getattr(self, name) for name in monitors.MONITORS}


@dataclass(frozen=True)
class Rollout:
    """How a policy plays episodes."""

    num_rows: int


@dataclass(frozen=True)
class Mesh:
    """Number of devices along each axis of the mesh."""

    data: int
    fsdp: int
    tensor: int

    @property
    def splits_params(self) -> bool:
        """Whether parameters are split, rather than replicated on each device."""
        return self.fsdp != 1 or self.tensor != 1

    def devices(self, devices: Sequence[Any] | None = None) -> DeviceMesh:
        """Return a mesh of the given devices, by default all.

        Raises:
          ValueError: the sizes do not fit the number of devices.
        """
        return sharding.make_mesh(**vars(self), devices=devices)


@dataclass(frozen=True)
class Eval:
    """What a policy is evaluated on."""

    every: int
    domain: str
    num_tasks: int
    repeats: int
    batch_size: int
    strength: float
    temperature: float
    seed: int
    split: str
    scenarios: tuple[str, ...]
    keep: int
    keep_tokens: bool
    simple_agents: bool


@dataclass(frozen=True)
class Profile:
    """Which steps are traced."""

    steps: str

    @property
    def traced(self) -> range:
        """The steps that are traced.

        Raises:
          UsageError: `steps` is not two numbers, or holds no step.
        """
        first, _, stop = self.steps.partition(":")
        if not self.steps:
            return range(0)
        if not (first.isdecimal() and stop.isdecimal()) or int(first) >= int(stop):
            raise errors.UsageError(
                f'profile.steps="{self.steps}" is not the first step and the one after '
                'the last, such as "10:13"'
            )
        return range(int(first), int(stop))


@dataclass(frozen=True)
class Checkpoint:
    """How often a run is saved, and how many checkpoints are kept."""

    every: int
    keep_last: int
