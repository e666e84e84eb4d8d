"""The host side of an environment: settings, transcription, and what a world holds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import jax
from jaxtyping import Array, Int
from tokenizers import Tokenizer

from openagent_jax.domains import library
from openagent_jax.perturb import Entry
from openagent_jax.text import style as styles
from openagent_jax.types import (
    Action,
    Environment,
    Observation,
    Sizes,
    State,
    Tables,
    Task,
)

Message = dict[str, Any]  # of OpenAI's chat protocol
SPLITS = ("train", "test")


@dataclass(frozen=True)
class Settings:
    """The settings of an environment in a config (`config.sandbox`)."""

    # Name in the registry, builtin domain, JSON file or log; or several domains of
    # tools, divided by commas.
    domain: str = "poi"
    domain_weights: str = ""  # how often each is trained on; "" means equally often
    test_domains: str = ""  # the domains of the test split; "" means those of `domain`
    transfer: str = "medical"  # the domains whose tasks `domain_transfer` uses
    num_visible: int = 5  # number of documented tools, unless the goal needs more
    # How many goals are sampled for a domain whose tools have `requests`; 0 for none.
    num_goals: int = -1  # -1: see `tools.make.num_goals`
    min_visible: int = 3  # the least number of documented tools, for random worlds
    # The maximum sizes of an episode; see `types.Sizes`.
    max_turns: int = 10
    prompt_tokens: int = 320
    action_tokens: int = 60
    result_tokens: int = 64
    context_tokens: int = 640
    # Sizes of the arrays of a task in tool worlds; see `domains.limits.Limits`.
    num_tools: int = 16
    num_args: int = 3
    depth: int = 0  # 0: what the domains need
    num_fields: int = 2
    num_steps: int = 5
    num_constants: int = 4
    value_bytes: int = 64
    num_derived: int = 0  # 0: what the domains need
    conditions: bool = True
    paging: bool = True

    def of(self, domain: str) -> "Settings":
        """Return the settings for the tasks of some domain, also for the test split."""
        if domain == self.domain:
            return self
        return replace(self, domain=domain, domain_weights="", test_domains="")

    @property
    def sizes(self) -> Sizes:
        """The maximum sizes of an episode."""
        return Sizes(**{name: getattr(self, name) for name in Sizes._fields})


def names_of(domains: str) -> tuple[str, ...]:
    """Return the domains of a list that is divided by commas.

    `all_train`, `all_held_out`, `all_pretrain`, `all_dev` and `all_invented` stand for
    the domains of a group.

    >>> names_of("poi, medical"), names_of("")
    (('poi', 'medical'), ())
    >>> len(names_of("all_train")), names_of("all_held_out")[0]
    (18, 'medical')
    """
    names = (name.strip() for name in domains.split(",")) if domains else ()
    return tuple(x for name in names for x in library.GROUPS.get(name, (name,)))


@dataclass(frozen=True)
class Spelling:
    """How texts are written as tokens."""

    tokenizer: Tokenizer
    style: styles.Style[str] | None = None  # None is our compact style
    vocab_size: int = 0  # of the model, if it is larger than that of the tokenizer
    # The maximum sizes of an episode, by the keys of a config, for environments that
    # leave out tasks that are too long. See `environments.logs.logs.load`.
    max_sizes: Mapping[str, int] = field(default_factory=dict)


class Transcriber(Protocol):
    """Writes episodes as OpenAI messages and tools.

    They are read by people, and by agents that communicate by messages. A transcriber
    runs on the host and takes tasks and actions as NumPy arrays.
    """

    def tools(self, task: Task, state: State | None = None) -> list[dict[str, Any]]:
        """Return the documented tools, in OpenAI's function format.

        Args:
          task: the task.
          state: the state that the episode is in; None is its beginning. An agent can
            only call the tools that it is given, so those that it has been told of
            since then are listed too, after the others.
        """
        ...

    def opening(self, task: Task) -> list[Message]:
        """Return the messages before the first message of the agent."""
        ...

    def message(self, task: Task, action: Action) -> Message:
        """Return an action as a message of the agent."""
        ...

    def observe(self, task: Task, observation: Observation) -> Int[Array, "P"]:
        """Return the pieces of the text shown after an action; a pure JAX function."""
        ...

    def shown(self, pieces: Any) -> tuple[str, str] | None:
        """Return role and content for the result of `observe`; None if it is empty."""
        ...

    def goal(self, task: Task) -> str:
        """Return a name for the kind of goal of a task."""
        ...


class World(NamedTuple):
    """An environment under one tokenizer, ready to use."""

    environment: Environment
    tables: Tables
    transcriber: Transcriber
    # Return the tokens whose embeddings cannot be exchanged, as they occur in texts of
    # all worlds; None if none can be exchanged. See `models.embedding_shuffle`.
    fixed_tokens: Callable[[], set[int]] | None = None
    # The domains of a mixture, to which `Environment.domain` is an index. Empty for a
    # single domain.
    domains: tuple[str, ...] = ()
    # The remaining fields are set for logs, some conversations of which may be skipped.
    source: str = ""  # the file that the tasks are from
    summary: str = ""  # one line with the counts of mapped and skipped conversations
    skipped: tuple[Any, ...] = ()  # the skipped conversations, each with its reason
    notes: tuple[str, ...] = ()  # lines of text: the reasons, and limits that would do

    def check(self, split: str) -> None:
        """Check that a split has tasks.

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
    """What an environment offers to the registry.

    It tells which names a config may use, before a world is made.
    """

    make: Callable[[Settings, Spelling], World]
    perturbations: tuple[Entry, ...] = ()
    training_mix: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    rewards: tuple[tuple[str, str], ...] = ()
    # (domain, settings, max_sizes) -> None; raises a ValueError that says what is wrong
    # with the domain, for example with its file
    check: Callable[[str, Settings, Mapping[str, int]], None] = (
        lambda domain, settings, max_sizes: None
    )
