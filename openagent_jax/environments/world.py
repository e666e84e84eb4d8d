"""What an environment needs besides its pure functions: settings, and the host side."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
from jaxtyping import Array, Int
from tokenizers import Tokenizer

from openagent_jax.perturb import Entry
from openagent_jax.text import style as styles
from openagent_jax.types import (
    Action,
    Environment,
    Observation,
    Sizes,
    Tables,
    Task,
)

Message = dict[str, Any]  # of OpenAI's chat protocol
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Settings:
    """What a config says of an environment (`config.sandbox`)."""

    domain: str = "poi"  # a name of the registry, a JSON file, or a log
    transfer: str = "medical"  # where `domain_transfer` leads
    num_visible: int = 5  # tools in the documents, if the goal needs no more
    min_visible: int = 3  # the same at least; for random worlds
    # Room of an episode.
    max_turns: int = 10
    prompt_tokens: int = 224
    action_tokens: int = 60
    result_tokens: int = 36
    context_tokens: int = 512
    # Room in the arrays of a task of tool worlds; see `tools.types.Limits`.
    num_tools: int = 16
    num_args: int = 3
    num_fields: int = 2
    num_steps: int = 5
    num_constants: int = 4

    @property
    def sizes(self) -> Sizes:
        """Room of an episode."""
        return Sizes(**{name: getattr(self, name) for name in Sizes._fields})


@dataclass(frozen=True)
class Spelling:
    """How texts become tokens."""

    tokenizer: Tokenizer
    style: styles.Style[str] | None = None  # None is our compact style
    vocab_size: int = 0  # of the model, where it is larger than the tokenizer's
    # Room of an episode by keys of a config, for environments that leave out what is
    # too long. See `environments.tools.logs.logs.load`.
    room: Mapping[str, int] = field(default_factory=dict)


class Transcriber(Protocol):
    """Writes episodes as OpenAI messages and tools, for people and for agents that are
    reached by messages. It runs on the host and takes tasks and actions in NumPy."""

    def tools(self, task: Task) -> list[dict[str, Any]]:
        """The tools that the agent is shown, in OpenAI's function format."""
        ...

    def opening(self, task: Task) -> list[Message]:
        """The messages before the agent's first one."""
        ...

    def message(self, task: Task, action: Action) -> Message:
        """An action as a message of the agent."""
        ...

    def observe(self, task: Task, observation: Observation) -> Int[Array, "P"]:
        """Pieces of what the agent is shown after an action; a pure JAX function."""
        ...

    def shown(self, pieces: Any) -> tuple[str, str] | None:
        """Role and content of what `observe` returned; None if it is nothing."""
        ...

    def goal(self, task: Task) -> str:
        """A name for what is asked for."""
        ...


class World(NamedTuple):
    """An environment under one tokenizer, ready to be played."""

    environment: Environment
    tables: Tables
    transcriber: Transcriber
    # Tokens whose embeddings carry no meaning, and their shapes; None: there are none.
    free_tokens: tuple[jax.Array, jax.Array] | None = None
    source: str = ""  # the file that tasks are from, where that leaves some out
    summary: str = ""  # what it has left out, in a line
    skipped: tuple[Any, ...] = ()  # each, with its reason
    notes: tuple[str, ...] = ()  # the reasons in lines, and what would help

    def check(self, split: str) -> None:
        """
        Raises:
          ValueError: the split has no task.
        """
        sample = self.environment.sample
        jax.eval_shape(
            lambda tables, key: sample(tables, key, split),
            self.tables,
            jax.random.key(0),
        )


class EnvironmentSpec(NamedTuple):
    """What a folder of `environments` offers to the registry.

    What a config may name is known before a world is made.
    """

    make: Callable[[Settings, Spelling], World]
    perturbations: tuple[Entry, ...] = ()
    training_mix: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    rewards: tuple[tuple[str, str], ...] = ()
    # (domain, settings, room) -> None; raises a ValueError that says what is wrong with
    # the domain, such as a file with faults
    check: Callable[[str, Settings, Mapping[str, int]], None] = (
        lambda domain, settings, room: None
    )
