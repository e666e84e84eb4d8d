"""The data types of openagent_jax: pytree dataclasses and tuples of pure functions.

Types that belong to one environment (tools, recipes) are defined in the `types.py` of
its folder. Letters used in shapes, here and everywhere:

    B rows or trajectories   P pieces of a text     D width, L layers
    G samples of a task      S tokens of a row      H heads, K head size
    T turns                  V vocabulary           M tokens of a context
    Z bytes of a text

In a batch, P also stands for tasks or prompts, each of which B / P rows share.

Shapes in annotations are of ONE element; `jax.vmap` adds leading axes.

A *piece* of a text is a symbol: an index into the `Lexicon` of an environment, which
knows how the tokenizer in use spells it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Params = Any  # a pytree of arrays
# A transformation of functions `(shared, rows) -> rows`, pytrees of arrays, where each
# array of rows has a leading axis of tasks, episodes or the like. Each device computes
# its own rows, without waiting for those of others (see `sharding.local`).
Local = Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]
Metrics = dict[str, jax.Array]

# Pytrees of arrays that each environment defines; all other code passes them on without
# looking inside. A batch of them has a leading axis on every leaf.
Task = Any
State = Any
Action = Any
Observation = Any


def undivided(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the function as it is: the `Local` of a single device."""
    return function


def batch_size(tree: Any) -> int:
    """Return the length of the leading axis that all leaves of a batch share."""
    return jax.tree.leaves(tree)[0].shape[0]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TimeStep:
    """What an environment returns for one action."""

    observation: Observation
    reward: dict[str, Float[Array, ""]]  # by component, unweighted
    terminated: Bool[Array, ""]  # the agent has ended the episode
    truncated: Bool[Array, ""]  # no turn or no room for tokens was left


class Outcome(NamedTuple):
    """A summary of a finished episode, for metrics and reports."""

    success: Bool[Array, ""]
    solvable: Bool[Array, ""]  # according to the oracle
    refused: Bool[Array, ""]
    num_calls: Int[Array, ""]  # tool calls, and actions that could not be parsed
    num_errors: Int[Array, ""]  # calls that returned an error
    num_questions: Int[Array, ""]  # questions to the user
    num_needless_questions: Int[Array, ""]  # those that could tell nothing new
    fewest_calls: Int[Array, ""]  # calls of the shortest solution; 0 if unsolvable


class Certificate(NamedTuple):
    """What the oracle proves about a task before it is played."""

    solvable: Bool[Array, ""]
    fewest_calls: Int[Array, ""]  # calls of the shortest solution; 0 if unsolvable
    reason: Int[Array, ""]  # why it is unsolvable: an index into `Environment.reasons`


class Sizes(NamedTuple):
    """The maximum sizes of an episode (static: they determine array shapes)."""

    max_turns: int
    prompt_tokens: int
    action_tokens: int  # of one action
    result_tokens: int  # of what the environment writes after one action
    context_tokens: int  # of the whole episode


class Tables(NamedTuple):
    """The arrays of an environment.

    They are passed to its functions as arguments rather than closed over, so that one
    compiled program serves all tables of the same shapes.
    """

    lexicon: Any  # `text.lexicon.Lexicon`: all surface forms under one tokenizer
    source: Any = ()  # the data that tasks are sampled from


class Environment(NamedTuple):
    """An environment as pure functions of one task; `jax.vmap` makes batches.

    Rollouts, algorithms, curricula, data, evaluation and serving depend only on this
    interface, not on any particular world. A text is a row of pieces,
    `Int[Array, "P"]`; piece 0 is the empty text.
    """

    name: str
    sizes: Sizes
    # (tables, key, split "train" or "test") -> task. Worlds of tools take the index of
    # a split too, 0 or 1, which may be traced.
    sample: Callable[[Tables, jax.Array, str], Task]
    reset: Callable[[Tables, Task], State]  # (tables, task) -> state
    # (tables, task, state, action) -> (state, timestep)
    step: Callable[[Tables, Task, State, Action], tuple[State, TimeStep]]
    prompt: Callable[[Tables, Task], jax.Array]  # (tables, task) -> pieces
    # The text that an agent would write for an action: (tables, task, action) -> pieces
    utterance: Callable[[Tables, Task, Action], jax.Array]
    # (tables, task, text [Z], num_bytes) -> action; accepts any bytes
    parse: Callable[[Tables, Task, jax.Array, jax.Array], Action]
    # The text that the agent reads next: (tables, task, observation) -> pieces
    observe: Callable[[Tables, Task, Observation], jax.Array]
    # The next action of an agent that reads everything correctly:
    # (tables, task, state) -> action
    expert: Callable[[Tables, Task, State], Action]
    blank: Callable[[Tables, Task], Action]  # stands for a reply that cannot be parsed
    refuse: Callable[[Tables, Task], Action]
    ask: Callable[[Tables, Task], Action]  # a question to the user
    certificate: Callable[[Tables, Task], Certificate]
    outcome: Callable[[Tables, Task, State], Outcome]
    # What can be counted in the prompt without reading it, such as the number of
    # documents: (tables, task) -> [K]. Agents that go by it bound what reading gains.
    counts: Callable[[Tables, Task], jax.Array]
    # A number that tasks share if their requests are worded alike: (tables, task) -> []
    phrasing: Callable[[Tables, Task], jax.Array]
    # What perturbations of a task draw from: (tables, task, split) -> pools
    pools: Callable[[Tables, Task, str], Any]
    perturbations: tuple[Any, ...] = ()  # the catalogue, of `perturb.Entry`
    training_mix: tuple[str, ...] = ()  # perturbations that PAFT uses by default
    suite: tuple[str, ...] = ()  # perturbations that evaluation uses by default
    rewards: tuple[tuple[str, str], ...] = ()  # (component, what it pays for)
    reasons: tuple[str, ...] = ("",)  # why a task is unsolvable; "" for solvable ones
    # How many different tasks a split has, if they can be counted: (tables, split) ->
    # int; 0 if there are endlessly many.
    num_tasks: Callable[[Tables, str], int] = lambda tables, split: 0
    # (tables, key, index, split) -> task. The index chooses the task, if the tasks can
    # be counted (`num_tasks`), or else its domain. The key draws everything else.
    nth_task: Callable[[Tables, jax.Array, jax.Array, str], Task] | None = None
    # Which of the domains of a mixture a sampled task is of: (tables, task) -> []
    domain: Callable[[Tables, Task], jax.Array] = lambda tables, task: jnp.int32(0)
    # What agents that lack a skill believe; see `evaluation.simple_agents`. The task if
    # everything were as its documents say, and nothing failed: (tables, task) -> task
    documented: Callable[[Tables, Task], Task] = lambda tables, task: task
    # The task as it looks to an agent that knows the tools from before a perturbation:
    # names, arguments and rules are those of the task before, and the request and what
    # can be looked up are those of the task: (tables, task before, task) -> task
    remembered: Callable[[Tables, Task, Task], Task] = lambda tables, clean, task: clean


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Trajectory:
    """One episode, turn by turn. `valid[t]` is False for turns after its end."""

    task: Task
    action: Action  # leading axis T
    timestep: TimeStep  # leading axis T
    valid: Bool[Array, "T"]
    state: State  # at the end of the episode


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Batch:
    """The input of a loss: rows of tokens with their masks (see `losses`)."""

    tokens: Int[Array, "B S"]
    positions: Int[Array, "B S"]
    # Attention mask: a token attends to itself and to earlier tokens of its segment; 0
    # is padding. A row may hold several texts end to end, each with positions from 0.
    segments: Int[Array, "B S"]
    loss_mask: Bool[Array, "B S"]  # tokens that the policy is trained to produce
    divisor: Float[Array, "B"]  # contribution of each row to the divisor of the loss
    # Anything else that the loss of the algorithm needs: arrays [B] or [B S ...].
    extra: Any = ()

    @property
    def valid(self) -> Bool[Array, "B S"]:
        """Which tokens are not padding."""
        return self.segments != 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Cache:
    """A key-value cache of B rows, each of which fills its slots from 0 on.

    The slots are divided into blocks, so that the first blocks alone form a smaller
    cache. Each block and layer has its own array, so that a loop that carries the cache
    updates it in place. H is the number of key-value heads.
    """

    keys: tuple[tuple[Float[Array, "B H K _"], ...], ...]  # [block][layer]
    values: tuple[tuple[Float[Array, "B H _ K"], ...], ...]
    length: Int[Array, "B"]  # tokens of each row

    @property
    def block_sizes(self) -> list[int]:
        """The number of slots of each block."""
        return [layer[0].shape[-1] for layer in self.keys]

    def first(self, num_blocks: int) -> "Cache":
        """Return the cache that consists of the first `num_blocks` blocks."""
        return replace(
            self, keys=self.keys[:num_blocks], values=self.values[:num_blocks]
        )


class Policy(NamedTuple):
    """A language model as pure functions of `params`; hides the model library."""

    init: Callable[..., Params]  # (key) -> params
    # (params, tokens, positions, segments) -> [B S D]
    hidden: Callable[..., jax.Array]
    init_cache: Callable[..., Cache]  # (num_rows, slots of each block) -> cache
    # (params, cache, tokens [B S], num_new [B]) -> (hidden [B S D], cache): appends the
    # first num_new tokens of each row; tokens for which no slot is left are not written
    extend: Callable[..., tuple[jax.Array, Cache]]
    head: Callable[..., jax.Array]  # (params, hidden [... D]) -> logits [... V]
    # params -> params with a list of layers instead of stacked layers, for `extend` and
    # `head`: in a short program, slicing the stack in every call would dominate
    unstack_layers: Callable[[Params], Params] = lambda params: params


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """The state of a training run after `step` steps."""

    step: Int[Array, ""]
    params: Params
    opt_state: Any
    key: Any  # the root of all randomness of the run; never changes
    # Further branches of the parameters, which are neither trained nor saved.
    frozen: Params = field(default_factory=dict)
    curriculum: Any = ()  # state of the curriculum


class Curriculum(NamedTuple):
    """Chooses the tasks of each step: pure functions of a state in the `TrainState`."""

    init: Callable[[], Any]  # () -> state
    # (state, tables, task_key, edit_key, step, num_tasks) -> tasks, leading axis
    # num_tasks. The first key draws the tasks, the second perturbs them.
    sample: Callable[..., Task]
    # (state, tasks, metrics of making the batch from them) -> state
    update: Callable[[Any, Task, Metrics], Any]


class Algorithm(NamedTuple):
    """A training algorithm: how tasks become a batch, and the loss of that batch."""

    # (state, tables, key, tasks) -> (batch, metrics of making it); the state is only
    # read
    make_batch: Callable[..., tuple[Batch, Metrics]]
    # (params, part of a batch, sum of the divisors of the whole batch) ->
    # (loss, metrics). The losses of the parts add up to the loss of the batch. Metrics
    # are sums over loss tokens; the training loop divides them by their number.
    loss_fn: Callable[..., tuple[jax.Array, Metrics]]
    needs_policy: bool = True  # whether `make_batch` uses the parameters of the state
