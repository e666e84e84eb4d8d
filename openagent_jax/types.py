"""Every noun of openagent_jax: frozen pytree dataclasses, one file.

What only one family of environments knows (tools, recipes) is in a `types.py` of its
folder. Letters used in shapes, here and everywhere:

    B trajectories         P pieces of a text     D width, L layers
    G samples of a task    S tokens of a row      H heads, K head size
    T turns                V vocabulary           M cache slots of a row
    Z bytes of a text

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

A *piece* of a text is a symbol: an index into the `Lexicon` of an environment, which
knows how the tokenizer in use spells it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
from jaxtyping import Array, Bool, Float, Int

Params = Any  # a pytree of arrays
Metrics = dict[str, jax.Array]

# What an environment makes, and what others only hand on: any pytrees of arrays. A
# batch of them has a leading axis on every leaf.
Task = Any
State = Any
Action = Any
Observation = Any


def batch_size(tree: Any) -> int:
    """Length of the leading axis that all leaves of a batch share."""
    return jax.tree.leaves(tree)[0].shape[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimeStep:
    """What an environment returns for one action."""

    observation: Observation
    reward: dict[str, Float[Array, ""]]  # by component, before any weight
    terminated: Bool[Array, ""]  # the agent has ended the episode
    truncated: Bool[Array, ""]  # there was no room or no turn left


class Outcome(NamedTuple):
    """What reports need to know of an episode at its end."""

    success: Bool[Array, ""]
    solvable: Bool[Array, ""]  # by the oracle
    refused: Bool[Array, ""]
    num_calls: Int[Array, ""]  # actions that call a tool, unreadable ones included
    num_errors: Int[Array, ""]  # calls that were answered by an error
    num_questions: Int[Array, ""]  # to the user
    fewest_calls: Int[Array, ""]  # of the shortest solution; 0 if there is none


class Certificate(NamedTuple):
    """What the oracle knows of a task before it is played."""

    solvable: Bool[Array, ""]
    fewest_calls: Int[Array, ""]  # of the shortest solution; 0 if there is none
    reason: Int[Array, ""]  # why it is unsolvable: an index into `Environment.reasons`


class Sizes(NamedTuple):
    """Room of an episode (static)."""

    max_turns: int
    prompt_tokens: int
    action_tokens: int
    result_tokens: int
    context_tokens: int  # the whole episode


class Tables(NamedTuple):
    """The arrays of an environment, a pytree. They are arguments of its functions and
    not part of them, so that one compiled program serves all tables of one shape."""

    lexicon: Any  # `text.lexicon.Lexicon`: surface forms under one tokenizer
    source: Any = ()  # what tasks are drawn from


class Environment(NamedTuple):
    """A family of worlds as pure functions of one task; `jax.vmap` makes batches.

    Rollout, algorithms, curriculum, data, evaluation and serving know this interface
    and no world behind it. A text is a row of pieces, `Int[Array, "P"]`; piece 0 is
    empty.
    """

    name: str
    sizes: Sizes
    # (tables, key, split "train" or "test") -> task
    sample: Callable[[Tables, jax.Array, str], Task]
    reset: Callable[[Tables, Task], State]  # (tables, task) -> state
    # (tables, task, state, action) -> (state, timestep)
    step: Callable[[Tables, Task, State, Action], tuple[State, TimeStep]]
    prompt: Callable[[Tables, Task], jax.Array]  # (tables, task) -> pieces
    # What the agent would write for an action: (tables, task, action) -> pieces
    utterance: Callable[[Tables, Task, Action], jax.Array]
    # (tables, task, text [Z], num_bytes) -> action; of any bytes
    parse: Callable[[Tables, Task, jax.Array, jax.Array], Action]
    # What the agent reads next: (tables, task, observation) -> pieces
    observe: Callable[[Tables, Task, Observation], jax.Array]
    # The next action of an agent that reads without fault: (tables, task, state)
    expert: Callable[[Tables, Task, State], Action]
    blank: Callable[[Tables, Task], Action]  # an action that could not be read
    certificate: Callable[[Tables, Task], Certificate]
    outcome: Callable[[Tables, Task, State], Outcome]
    # What perturbations of a task draw from: (tables, task, split)
    pools: Callable[[Tables, Task, str], Any]
    perturbations: tuple[Any, ...] = ()  # the catalogue: rows of `perturb.Entry`
    training_mix: tuple[str, ...] = ()  # what PAFT draws from unless told otherwise
    suite: tuple[str, ...] = ()  # what evaluation plays unless told otherwise
    rewards: tuple[tuple[str, str], ...] = ()  # components: (name, what it pays)
    reasons: tuple[str, ...] = ("",)  # why a task is unsolvable; "" for solvable ones


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """One episode by turns. `valid[t]` is False after its end."""

    task: Task
    action: Action  # leading axis T
    timestep: TimeStep  # leading axis T
    valid: Bool[Array, "T"]
    state: State  # at the end


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """What a loss is computed of: rows of tokens, with three masks (see `losses`)."""

    tokens: Int[Array, "B S"]
    positions: Int[Array, "B S"]
    # Attention: a token attends to those before it of its own segment; 0 is padding. A
    # row may hold several texts, end to end, each with positions from 0 on.
    segments: Int[Array, "B S"]
    loss_mask: Bool[Array, "B S"]  # policy loss: tokens that the policy produces
    divisor: Float[Array, "B"]  # what each row adds to the divisor of the loss
    # What else the loss of the algorithm needs: arrays [B] or [B S ...].
    extra: Any = ()

    @property
    def valid(self) -> Bool[Array, "B S"]:
        """Tokens that are not padding."""
        return self.segments > 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prefix:
    """Keys and values of the prompt that each of P groups of rows shares; B / P
    consecutive rows are a group. It never changes, so that attention to it is one
    matrix product for each group (Hydragen, arXiv 2402.05099)."""

    keys: tuple[Float[Array, "P H K _"], ...]  # [layer]
    values: tuple[Float[Array, "P H _ K"], ...]
    length: Int[Array, "B"]  # tokens, for each row


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far, those of each row from slot 0 on.

    The slots are divided into blocks; the first blocks alone are a smaller cache. Each
    block and layer has an array of its own, so that a loop that carries the cache
    updates it in place. H is the number of heads of keys and values.
    """

    keys: tuple[tuple[Float[Array, "B H K _"], ...], ...]  # [block][layer]
    values: tuple[tuple[Float[Array, "B H _ K"], ...], ...]
    length: Int[Array, "B"]  # tokens of each row, those of the prefix included
    prefix: Prefix | None = None  # comes before slot 0

    @property
    def block_sizes(self) -> list[int]:
        """Slots of each block."""
        return [layer[0].shape[-1] for layer in self.keys]

    @property
    def num_used(self) -> Int[Array, "B"]:
        """Slots of each row that are in use."""
        return self.length - self.prefix.length if self.prefix else self.length

    def first(self, num_blocks: int) -> "Cache":
        """The cache of the first `num_blocks` blocks alone."""
        return replace(
            self, keys=self.keys[:num_blocks], values=self.values[:num_blocks]
        )


class Policy(NamedTuple):
    """A language model as pure functions of `params`; hides the model library."""

    init: Callable[..., Params]  # (key) -> params
    # (params, tokens, positions, segments) -> [B S D]
    hidden: Callable[..., jax.Array]
    init_cache: Callable[..., Cache]  # (num_rows, slots of each block) -> cache
    # (params, cache, tokens [B S], num_new [B]) -> (hidden [B S D], cache); of each row
    # the first num_new tokens count, and tokens without a slot are not written
    extend: Callable[..., tuple[jax.Array, Cache]]
    head: Callable[..., jax.Array]  # (params, hidden [... D]) -> logits [... V]
    # params -> params with a list of layers in place of stacked layers, for `extend`
    # and `head`: slicing the stacks in every call costs a short program too much time
    unstack_layers: Callable[[Params], Params] = lambda params: params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    step: Int[Array, ""]
    params: Params
    opt_state: Any
    key: Any  # the root of all randomness of the run; never changes
    # More branches of the parameters: used, but neither trained nor saved.
    frozen: Params = field(default_factory=dict)
    curriculum: Any = ()  # state of the curriculum


class Curriculum(NamedTuple):
    """Which tasks come next: three pure functions over a state that is part of the
    `TrainState`."""

    init: Callable[[], Any]  # () -> state
    # (state, tables, task_key, edit_key, step, num_tasks) -> tasks, leading axis
    # num_tasks. Tasks are drawn by the first key and perturbed by the second.
    sample: Callable[..., Task]
    # (state, tasks, metrics of the batch that was made of them) -> state
    update: Callable[[Any, Task, Metrics], Any]


class Algorithm(NamedTuple):
    """A pair of pure functions."""

    # (state, tables, key, tasks) -> (Batch, metrics of the making); the state is read
    # only
    make_batch: Callable[..., tuple[Batch, Metrics]]
    # (params, part of a batch, sum of the divisors of the whole batch) ->
    # (loss, metrics); the losses of the parts add up to that of the batch, and metrics
    # are sums over loss tokens, to become means
    loss_fn: Callable[..., tuple[jax.Array, Metrics]]
