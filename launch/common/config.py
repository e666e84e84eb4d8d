"""The config of a run: a frozen dataclass of typed sections (`sections.py`).

The files of `configs/` build a ConfigDict and the flags override its values. `resolve`
checks the types once and returns a `Config`. Only this file and the definitions of the
flags handle a ConfigDict.
"""

import dataclasses
import difflib
import hashlib
import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from absl import flags
from ml_collections import ConfigDict, config_flags

from configs import base
from launch.common import cli, errors, sections
from launch.common.errors import UsageError
from openagent_jax.environments.world import Settings

TYPE_NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
}


@dataclass(frozen=True)
class Config:
    """All settings of a run. The fields are the keys of `configs/base.py`."""

    name: str
    seed: int
    init_from: str
    compile_cache: str
    sandbox: Settings
    model: sections.Model
    algorithm: sections.Algorithm
    rollout: sections.Rollout
    data: sections.Data
    grpo: sections.Grpo
    ppo: sections.Ppo
    surrogate: sections.Surrogate
    reward: sections.Reward
    paft: sections.Paft
    optim: sections.Optim
    train: sections.Train
    monitor: sections.Monitor
    mesh: sections.Mesh
    eval: sections.Eval
    checkpoint: sections.Checkpoint
    profile: sections.Profile

    def replace(self, changes: Mapping[str, Any]) -> "Config":
        """Return a copy with some values changed, by dotted key.

        >>> c = resolve(base.get_config()).replace({"train.num_steps": 3, "seed": 1})
        >>> c.train.num_steps, c.seed, c.train.batch_size
        (3, 1, 8)

        Raises:
          UsageError: a key does not exist, or a value has the wrong type.
        """
        values = to_dict(self)
        for key, value in changes.items():
            *path, name = key.split(".")
            section = values
            for part in path:
                section = section.setdefault(part, {})
            section[name] = value
        return _typed(Config, values)

    @property
    def eval_domain(self) -> str:
        """The domain of the tasks of an evaluation."""
        return self.eval.domain or self.sandbox.domain

    @property
    def suite(self) -> str:
        """The domains that the tasks of an evaluation are of."""
        tested = self.sandbox.test_domains if self.eval.split == "test" else ""
        return self.eval.domain or tested or self.sandbox.domain

    @property
    def has_tasks(self) -> bool:
        """Whether the run trains on tasks, and not on exercises alone."""
        return self.train.lookup_share < 1

    @property
    def num_rows(self) -> int:
        """Rows of a batch."""
        if not self.algorithm.is_reinforcement:
            return self.algorithm.num_rows or self.train.batch_size
        size = self.grpo.size if self.algorithm.name == "grpo" else 1
        return self.train.batch_size * size

    @property
    def num_updates(self) -> int:
        """Updates of the optimizer in the whole run."""
        return self.train.num_steps * self.train.num_epochs * self.train.num_minibatches

    @property
    def num_columns(self) -> int:
        """Columns of a batch."""
        if self.algorithm.is_reinforcement:
            return self.sandbox.context_tokens
        return self.algorithm.num_tokens

    @property
    def num_sampled_tasks(self) -> int:
        """Tasks that are sampled for a step; GRPO may leave some out of the batch."""
        oversample = self.grpo.oversample if self.algorithm.name == "grpo" else 1
        return self.train.batch_size * oversample

    @property
    def max_sizes(self) -> dict[str, int]:
        """The limits on the size of an episode, by config key."""
        sizes = self.sandbox.sizes._asdict()
        found = {f"sandbox.{name}": size for name, size in sizes.items()}
        if not self.algorithm.is_reinforcement:
            found["algorithm.num_tokens"] = self.algorithm.num_tokens
        return found


def resolve(c: ConfigDict) -> Config:
    """Check the keys and the types of a ConfigDict, and freeze it.

    >>> resolve(base.get_config()).sandbox.sizes.max_turns
    10

    Raises:
      UsageError: a key is unknown, renamed or missing, or a value has the wrong type.
    """
    return _typed(Config, c.to_dict())


def from_flags(words: Sequence[str]) -> Config:
    """Return the config that the flags of a command name, without touching our flags.

    >>> words = ["--config=configs/paft.py:smoke", "--config.paft.alpha=0.4"]
    >>> from_flags(words).paft.alpha
    0.4

    Raises:
      UsageError: there is no such file or key, or a value has the wrong type.
    """
    values, argv = flags.FlagValues(), ["", *words]
    config_flags.DEFINE_config_file(
        "config", None, "", values, lock_config=True, sys_argv=argv
    )
    try:
        values(argv)
        made: Any = values["config"].value
        made.lock()  # raises if the file could not be read
    except Exception as error:  # flags and configs raise many kinds
        known = {f"--config.{key}" for key in defaults()}
        # Unknown keys come first, so that the message names one of them.
        argv.sort(key=lambda word: word.partition("=")[0] in known)
        raise UsageError(cli.explain(error, argv)) from error
    return resolve(made)


def defaults() -> dict[str, Any]:
    """Return the values of `configs/base.py`, by dotted key.

    >>> defaults()["sandbox.max_turns"]
    10
    """
    return flat(base.get_config().to_dict())


def to_dict(config: Config) -> dict[str, Any]:
    """Return the config as nested dicts."""
    return dataclasses.asdict(config)


def flat(tree: Config | Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of a config, or of nested dicts, by dotted key.

    >>> flat({"a": {"b": 1}, "c": 2})
    {'a.b': 1, 'c': 2}
    """
    pairs = {}
    for key, value in (to_dict(tree) if isinstance(tree, Config) else tree).items():
        inner = flat(value) if isinstance(value, Mapping) else {"": value}
        pairs |= {f"{key}.{name}".rstrip("."): leaf for name, leaf in inner.items()}
    return pairs


def config_hash(config: Config) -> str:
    """Return 16 hex digits that change when any value changes."""
    text = json.dumps(to_dict(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stored(workdir: Path) -> dict[str, Any] | None:
    """Return the config of the run in a workdir as it was written; None without a run.

    Raises:
      UsageError: the file is damaged, or has a key under its old name.
    """
    file = workdir / "config.json"
    if not file.exists():
        return None
    try:
        values = dict(json.loads(file.read_text("utf-8")))
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{file} is damaged ({error}); restore it, or use another --workdir"
        ) from None
    for key in flat(values).keys() & base.RENAMED.keys():
        raise UsageError(f"{file}: {_renamed(key)}; rename it there")
    return values


def stored_config(workdir: Path) -> Config:
    """Return the config of the run in a workdir, typed.

    Keys that did not exist when the run was made have their defaults.

    Raises:
      UsageError: there is no run, or its config cannot be read.
    """
    values = stored(workdir)
    if values is None:
        raise UsageError(f"{workdir} is not a workdir of a run: it has no config.json")
    with errors.blame(f"{workdir}/config.json"):
        return resolve(base.get_config()).replace(flat(values))


def _typed(kind: Any, value: Any, key: str = "") -> Any:
    """Return a value of the given type; a section becomes its dataclass."""
    if dataclasses.is_dataclass(kind):
        return _section(kind, value, key)
    if kind is float and type(value) is int:
        return float(value)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise UsageError(f'{key}={value!r} must be a tuple, such as ("a", "b")')
        for entry in value:
            if not isinstance(entry, str):
                raise UsageError(f'{key}: {entry!r} is not a string; write "{entry}"')
        return tuple(value)
    if type(value) is not kind:
        raise UsageError(f"{key}={value!r} must be {TYPE_NAMES[kind]}")
    return value


def _section(kind: Any, value: Any, key: str) -> Any:
    types, prefix = get_type_hints(kind), f"{key}." if key else ""
    if not isinstance(value, Mapping):
        raise UsageError(f"{key}={value!r} must be a section: set {prefix}NAME instead")
    for name in value:
        if name not in types:
            raise UsageError(_unknown(f"{prefix}{name}", types))
    for name in types:
        if name not in value:
            raise UsageError(f"{prefix}{name} is missing; configs/base.py has it")
    fields = {name: _typed(types[name], value[name], prefix + name) for name in types}
    return kind(**fields)


def _unknown(key: str, names: Mapping[str, Any]) -> str:
    """One line for a key that does not exist."""
    if key in base.RENAMED:
        return _renamed(key)
    close = difflib.get_close_matches(key.rpartition(".")[2], names, 1)
    hint = f'did you mean "{close[0]}"?' if close else f"known: {', '.join(names)}"
    return f'{key}: there is no key "{key.rpartition(".")[2]}"; {hint}'


def _renamed(key: str) -> str:
    return f"{key} is now called {base.RENAMED[key]}"
