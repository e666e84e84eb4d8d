"""Perturbations and their algebra.

A perturbation is a pure function of one task, `(key, task, strength) -> task`. Its
result has the same tree structure, shapes and dtypes as the task. `strength` is a
traced scalar in [0, 1]; strength 0 is the identity. There are no environment wrappers
and there is no state. Perturbations are combined by functions:

    chain(a, b)          a, then b, each with its own key
    sometimes(a, rate)   a with probability `rate`
    all_of(a, b)         a, then b, if both find something to change
    one_of(a, b)         one of the two, chosen by the key
    batched(a)           a on the leading axis of keys and tasks
    on_trajectory(a, f)  a on `trajectory.task`, which `f` then demonstrates again

Each environment has a catalogue of perturbations, one `Entry` for each. The texts that
they draw from (synonyms, names) are the pools of the environment. Configs name a
perturbation by its name, a composition by the names of its parts, such as
`semantic_trap+runtime_error`, and either at a share of the strength that is asked for
by a number, such as `runtime_error@0.5`. Some can be placed in the episode, such as
`runtime_error:late`.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from openagent_jax.types import Environment, Tables, Task, Trajectory

Perturbation = Callable[[jax.Array, Task, jax.Array], Task]


class HasCatalogue(Protocol):
    """An `Environment` or an `EnvironmentSpec`."""

    @property
    def perturbations(self) -> tuple[Any, ...]: ...
    @property
    def suite(self) -> tuple[str, ...]: ...


TIERS = ("perception", "interaction", "reasoning", "internalization")  # deepest last
SHIFTS = ("query", "action", "observation", "domain")
UNSEEN = ("domain", "entities")
# What is right to do under a perturbation: the values of `Entry.response`, and what
# they mean in words.
RESPONSES = {
    "proceed": "Do the task as before; what has changed does not matter.",
    "understand": "Do what the text means, whatever its form.",
    "read": "Follow the documents as they are now.",
    "ask": "Ask the user for the value.",
    "retry": "Call the tool again.",
    "follow": "Do what the feedback says.",
    "switch": "Use the documented alternative.",
    "revise": "Do what the user wants by now.",
    "refuse": "Refuse the task.",
}
# Where an entry can be placed: at the first step of the goal, at one in between, or at
# the last one.
POSITIONS = ("early", "mid", "late")
WHOLE = ""  # the path of all fields of a task, in `Entry.touches`
# Between the parts of a composition; before a strength; before a position.
_JOIN, _AT, _IN = "+", "@", ":"


@dataclass(frozen=True)
class Entry:
    """A perturbation in a catalogue, with its properties."""

    name: str
    make: Callable[[Any], Perturbation]  # takes the pools of the environment
    tier: str  # one of TIERS
    shift: str  # what shifts: one of SHIFTS
    part: str  # part of the POMDP: observation, action, transition, reward or task
    touches: tuple[str, ...]  # paths of the task's fields that it may change
    explicit: bool = True  # whether the documents or the feedback reveal it
    transient: bool = False  # whether it goes away within the episode
    # When in the episode it takes effect: "start", "any", or one of POSITIONS.
    position: str = "start"
    # Whether one of POSITIONS can be chosen. The pools have a field `position` then,
    # which is "" for no choice.
    placeable: bool = False
    solvable: bool = True  # whether solvable tasks stay solvable
    response: str = ""  # what is right to do: one of RESPONSES
    # For an entry whose tasks cannot be solved: the entry whose tasks can be, but look
    # the same. Only a reader of both request and documents tells the two apart.
    counterpart: str = ""
    # "domain" or "entities" if its tasks have a domain or entities that training does
    # not have. Such an entry cannot be trained on.
    unseen: str = ""
    includes: tuple[str, ...] = ()  # names of entries, one of which it applies
    parts: tuple["Entry", ...] = ()  # of a composition, in the order of `all_of`

    @property
    def kind(self) -> str:
        """The name in the catalogue, without a position; "" for a composition."""
        return "" if self.parts else self.name.partition(_IN)[0]

    @property
    def summary(self) -> str:
        """What it does: the first line of its docstring; "" for a composition."""
        return (
            "" if self.parts else (self.make.__doc__ or "").strip().partition("\n")[0]
        )


def catalogue(environment: "HasCatalogue") -> dict[str, Entry]:
    """Return the catalogue of an environment or of its spec, by name."""
    return {entry.name: entry for entry in environment.perturbations}


def entry(environment: HasCatalogue, name: str) -> Entry:
    """Return the catalogue entry with this name, or the composition of several.

    Args:
      environment: the environment whose catalogue is used.
      name: a name, or several joined by `+`, each with a position after `:` if one is
        chosen; a strength after it is ignored.

    Raises:
      ValueError: the environment has no perturbation of a name, it cannot be placed
        there, or they cannot be composed.
    """
    entries, parts = catalogue(environment), []
    for part in split_strength(name)[0].split(_JOIN):
        kind, chosen, position = part.partition(_IN)
        if kind not in entries:
            known = ", ".join(sorted(entries)) or "none"
            raise ValueError(f'unknown perturbation "{kind}"; there are {known}')
        found = entries[kind]
        parts.append(place(found, position) if chosen else found)
    return compose(*parts)


def place(one: Entry, position: str) -> Entry:
    """Return an entry that takes effect at a chosen step of the goal.

    It changes no task that has too few steps: fewer than two, or than three for "mid".

    Args:
      one: an entry of a catalogue.
      position: one of POSITIONS.

    Raises:
      ValueError: there is no such position, or the entry cannot be placed.
    """
    name = f"{one.name}{_IN}{position}"
    if position not in POSITIONS:
        known = ", ".join(POSITIONS)
        raise ValueError(
            f'"{name}": there is no position "{position}"; there are {known}'
        )
    if not one.placeable:
        raise ValueError(
            f'"{name}": {one.name} cannot be placed; leave out "{_IN}{position}"'
        )

    @functools.wraps(one.make)
    def make(pools: Any) -> Perturbation:
        return one.make(replace(pools, position=position))

    return replace(one, name=name, make=make, position=position)


def split_strength(name: str) -> tuple[str, float]:
    """Return the name of a perturbation, and its share of the strength.

    >>> split_strength("runtime_error@0.5"), split_strength("runtime_error")
    (('runtime_error', 0.5), ('runtime_error', 1.0))

    Raises:
      ValueError: what follows `@` is not a number from 0 to 1.
    """
    plain, at, text = name.partition(_AT)
    if not at:
        return plain, 1.0
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:  # NaN is not
        raise ValueError(f'"{name}": the strength "{text}" is not a number from 0 to 1')
    return plain, share


def part_names(name: str) -> list[str]:
    """Return the catalogue names of the parts of a composition, or of a single name.

    >>> part_names("semantic_trap+runtime_error:late@0.5")
    ['semantic_trap', 'runtime_error']

    Raises:
      ValueError: as for `split_strength`.
    """
    parts = split_strength(name)[0].split(_JOIN)
    return [part.partition(_IN)[0] for part in parts]


def compose(*entries: Entry) -> Entry:
    """Return the entry of a composition, with properties that follow from its parts.

    Its tier is the deepest one of its parts. It is solvable, explicit or transient if
    all of them are; the certificate of a task can say otherwise, since what one part
    takes away, another may need, or make needless. Its counterpart has the counterparts
    of the parts whose tasks cannot be solved. One entry alone is returned as it is.

    Raises:
      ValueError: an entry occurs twice, two of them are counterparts, or one would undo
        those before it.
    """
    if len(entries) == 1:
        return entries[0]
    names = [part.kind for part in entries]
    name = _JOIN.join(part.name for part in entries)
    for part in entries:
        if names.count(part.kind) > 1:
            raise ValueError(f'"{name}" names {part.kind} twice; name it once')
        if part.counterpart in names:
            raise ValueError(
                f'"{name}": {part.name} and {part.counterpart} exclude each other; '
                "name one of them"
            )
    for part in entries[1:]:
        if WHOLE in part.touches:
            raise ValueError(
                f'"{name}": {part.name} replaces the whole task and would undo what '
                "comes before it; name it first"
            )
    solvable = all(part.solvable for part in entries)
    others = [part.name if part.solvable else part.counterpart for part in entries]
    return Entry(
        name=name,
        make=lambda pools: all_of(*(part.make(pools) for part in entries)),
        tier=max((part.tier for part in entries), key=TIERS.index),
        shift=_joined(part.shift for part in entries),
        part=_joined(part.part for part in entries),
        touches=(*dict.fromkeys(path for part in entries for path in part.touches),),
        explicit=all(part.explicit for part in entries),
        transient=all(part.transient for part in entries),
        position=_joined(part.position for part in entries),
        solvable=solvable,
        response=_joined(part.response for part in entries),
        counterpart="" if solvable or "" in others else _JOIN.join(others),
        unseen=next((x for x in UNSEEN if x in [part.unseen for part in entries]), ""),
        parts=entries,
    )


def kinds(environment: HasCatalogue, names: Iterable[str]) -> set[str]:
    """Return what perturbations consist of, by the names of catalogue entries.

    A composition consists of its parts, and an entry that applies one of several others
    of these. What cannot be trained on is left out.

    Raises:
      ValueError: as for `entry`.
    """
    return {kind for name in names for kind in kinds_of(entry(environment, name))}


def kinds_of(one: Entry) -> set[str]:
    """Return what one perturbation consists of; see `kinds`."""
    parts = [part for part in one.parts or (one,) if not part.unseen]
    return {kind for part in parts for kind in part.includes or (part.kind,)}


def training_mix(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the perturbations that PAFT draws from by default.

    They are all kinds that can be trained on, in forms of the training split. A name
    that occurs more than once is drawn more often:

    - A fifth as many as the others are unsolvable tasks, and as many again are their
      counterparts, so that the look alone is no reason to refuse.
    - A fifth as many need a question to the user, which is right in no other task.

    Refusing and asking are learned slowly, since each is right in tasks of few kinds.
    The others are still five eighths of the draws: if they are rare, what is learned
    slowly among them, such as to obey an inverted rule, is not learned at all.
    """
    within = {name for one in entries for name in one.includes}
    usable = [one for one in entries if not one.unseen and one.name not in within]
    pairs = [(one.name, one.counterpart) for one in usable if not one.solvable]
    paired = {name for pair in pairs for name in pair}
    asking = [
        one.name for one in usable if one.response == "ask" and one.name not in paired
    ]
    others = [one.name for one in usable if one.name not in {*paired, *asking}]
    wanted = len(others) / 5
    refusing = [name for pair in pairs for name in pair]
    return (
        *others,
        *(asking * _repeats(wanted, len(asking))),
        *(refusing * _repeats(wanted, len(pairs))),
    )


def _repeats(wanted: float, num: int) -> int:
    """Return how often so many names are repeated to be about as many as wanted."""
    return max(1, round(wanted / num)) if num else 0


def glossary(entries: Iterable[Entry]) -> dict[str, dict[str, str]]:
    """Return what perturbations do, and what is right to do then, in words, by name.

    A composition is explained by its parts.
    """
    parts = [part for one in entries for part in one.parts or (one,)]
    return {
        one.kind: {"summary": one.summary, "right": RESPONSES.get(one.response, "")}
        for one in parts
    }


def _joined(words: Iterable[str]) -> str:
    return _JOIN.join(dict.fromkeys(words))


def entries(environment: HasCatalogue, names: Iterable[str]) -> dict[str, Entry]:
    """Return the entries of some names, which may be compositions, by these names."""
    return {name: entry(environment, name) for name in names}


def make(
    environment: Environment, tables: Tables, name: str, split: str
) -> Perturbation:
    """Return a perturbation of the catalogue that draws from the pools of a split.

    Args:
      environment: the environment whose catalogue is used.
      tables: the arrays of the environment.
      name: the name of the catalogue entry, or of a composition.
      split: "train" or "test".

    Raises:
      ValueError: the environment has no perturbation of that name.
    """
    row = entry(environment, name)

    def apply(key: jax.Array, task: Task, strength: jax.Array) -> Task:
        return row.make(environment.pools(tables, task, split))(key, task, strength)

    return apply


@dataclass(frozen=True, eq=False)  # hashable, although `which` may be traced
class Variant:
    """One of several perturbations that are the same function with another argument.

    `switch` computes those of a family once.
    """

    apply: Callable[[jax.Array, Task, jax.Array, Any], Task]  # takes `which` last
    family: Any  # equal for those that differ in `which` only
    which: int | Int[Array, ""]  # or a Boolean

    def __call__(self, key: jax.Array, task: Task, strength: jax.Array) -> Task:
        return self.apply(key, task, strength, self.which)


def switch(
    index: Int[Array, ""],
    perturbations: Sequence[Perturbation],
    key: jax.Array,
    task: Task,
    strength: jax.Array,
) -> Task:
    """Apply the perturbation of an index.

    Under `jax.vmap` all are computed. Those of one family become one branch.
    """
    which = [getattr(made, "which", False) for made in perturbations]
    is_which = jnp.array(which, jnp.int32)[index]
    families = [getattr(made, "family", made) for made in perturbations]
    branches: dict[Any, Perturbation] = {}
    for made, family in zip(perturbations, families, strict=True):
        if isinstance(made, Variant) and families.count(family) > 1:
            kind = jnp.asarray(made.which).dtype
            made = replace(made, which=is_which.astype(kind))
        branches.setdefault(family, made)
    order = list(branches)
    branch = jnp.array([order.index(family) for family in families])[index]
    return jax.lax.switch(branch, list(branches.values()), key, task, strength)


def identity(key: jax.Array, task: Task, strength: jax.Array) -> Task:
    """Return the task unchanged."""
    del key, strength
    return task


def chain(*perturbations: Perturbation) -> Perturbation:
    """Apply perturbations in sequence; perturbation i gets `fold_in(key, i)`."""

    def apply(key, task, strength):
        for i, perturbation in enumerate(perturbations):
            task = perturbation(jax.random.fold_in(key, i), task, strength)
        return task

    return apply


def all_of(*perturbations: Perturbation) -> Perturbation:
    """Apply perturbations as `chain` does, or none if one finds nothing to change.

    A task is then either clean or perturbed in every way that is named.
    """

    def apply(key, task, strength):
        new, hit = task, jnp.bool_(True)
        for i, perturbation in enumerate(perturbations):
            old, new = new, perturbation(jax.random.fold_in(key, i), new, strength)
            hit &= ~equal(new, old)
        return select(hit, new, task)

    return apply


def sometimes(perturbation: Perturbation, rate: float) -> Perturbation:
    """Apply a perturbation with probability `rate`."""

    def apply(key, task, strength):
        coin, key = jax.random.split(key)
        new = perturbation(key, task, strength)
        return select(jax.random.bernoulli(coin, rate), new, task)

    return apply


def one_of(*perturbations: Perturbation) -> Perturbation:
    """Apply one of several perturbations, chosen uniformly.

    Under `jax.vmap` all of them are computed, as with any branch; they are cheap.
    """

    def apply(key, task, strength):
        choice, key = choose(key, len(perturbations))
        return switch(choice, perturbations, key, task, strength)

    return apply


def choose(key: jax.Array, num: int) -> tuple[Int[Array, ""], jax.Array]:
    """Return the index of the perturbation that `one_of` applies, and its key."""
    coin, key = jax.random.split(key)
    return jax.random.randint(coin, (), 0, num), key


def batched(perturbation: Perturbation) -> Perturbation:
    """Map a perturbation over the leading axis of keys and tasks, at one strength.

    There is one key for each task (fold in its global index), so the result does not
    depend on how the batch is sharded.
    """
    return jax.vmap(perturbation, in_axes=(0, 0, None))


def on_trajectory(
    perturbation: Perturbation, demonstrate: Callable[[Task], Trajectory]
) -> Callable[[jax.Array, Trajectory, jax.Array], Trajectory]:
    """Perturb the task of a recorded episode, and demonstrate it again.

    A trajectory whose task does not change is returned as it is.

    Args:
      perturbation: the perturbation of the task.
      demonstrate: returns the expert's trajectory on a task.
    """

    def apply(key, trajectory, strength):
        task = perturbation(key, trajectory.task, strength)
        same = equal(task, trajectory.task)
        return select(same, trajectory, demonstrate(task))

    return apply


# Building blocks of perturbations.


def select(condition: Bool[Array, ""], new, old):
    """Return `new` if the condition holds, else `old`; both are pytrees."""

    def one(new, old):  # what is the same array either way needs no program
        return old if new is old else jnp.where(condition, new, old)

    return jax.tree.map(one, new, old)


def equal(a, b) -> Bool[Array, ""]:
    """Tell whether two pytrees of the same structure hold equal values.

    >>> bool(equal({"a": jnp.arange(2)}, {"a": jnp.array([0, 1])}))
    True
    """
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    same = [jnp.all(x == y) for x, y in pairs if x is not y]
    return jnp.all(jnp.stack(same)) if same else jnp.bool_(True)


def bernoulli(key: jax.Array, strength: jax.Array, shape=()) -> Bool[Array, "..."]:
    """Sample booleans: True with probability `strength`, never at 0, always at 1."""
    return jax.random.uniform(key, shape) < strength


def pick(key: jax.Array, among: Bool[Array, "R"]) -> Int[Array, ""]:
    """Sample an index at which `among` is True, uniformly; -1 if there is none."""
    uniforms = jnp.where(among, jax.random.uniform(key, among.shape), -1.0)
    return jnp.where(jnp.any(among), jnp.argmax(uniforms), -1).astype(jnp.int32)
