"""Make tool worlds: lexicon, domains, and the pools of perturbations.

`make_domain` and `make_random` run on the host, once for each run. They return arrays
and pure functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from openagent_jax import hashing
from openagent_jax.domains import (
    development,
    domain_file,
    domain_needs,
)
from openagent_jax.domains.domain_spec import DomainError, DomainSpec
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.environments import grading
from openagent_jax.environments.tools import (
    conversation,
    environment,
    oracle,
    parse,
    perturb,
    render,
)
from openagent_jax.environments.tools.perturb.edits import Pools
from openagent_jax.environments.tools.types import Action, Split, State, Task, Tasks
from openagent_jax.environments.tools.worlds import (
    documents,
    fixed_tokens,
    mixture,
    noise,
    random_words,
    random_worlds,
)
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.noise import Noise
from openagent_jax.environments.tools.worlds.symbols import (
    CHANGES,
    JOINTS,
    LISTERS,
    NOTES,
    VAGUE,
    ToolSymbols,
)
from openagent_jax.environments.world import (
    SPLITS,
    EnvironmentSpec,
    Settings,
    Spelling,
    World,
    names_of,
)
from openagent_jax.text import (
    error_texts,
    key_forms,
    reply_scan,
    result_forms,
    scalars,
    style,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.types import Environment, Sizes, Tables


class Source(NamedTuple):
    """The data that tasks and perturbations are sampled from."""

    tasks: Tasks
    transfer: Tasks  # other domains, from which `domain_transfer` takes tasks
    opaque: Int[Array, "2 2"]  # by split: range of names without meaning
    gates: Int[Array, "2 R 2"]  # by split: names and descriptions of gates; see `Pools`
    documents: Int[Array, "K D"]  # see `worlds.documents.Documents.table`
    notes: Int[Array, "2 2 X"]  # by split; see `Pools`
    joints: Int[Array, "2 X"]
    listers: Int[Array, "2 X 2"]
    changes: Int[Array, "2 X 3"]
    vague: Int[Array, "2 X"]
    noise: Noise
    keys: key_forms.KeyForms  # of results
    special: Int[Array, "Y"]  # number of earlier texts that not all forms can write


DEFAULT_GOALS = 1024  # sampled from a domain


def limits_of(settings: Settings) -> Limits:
    """Return the sizes of the arrays of a task.

    Domains whose results are lists make room for their records. Limits of 0 are what
    the domains need.
    """
    every = (settings.domain, settings.test_domains, settings.transfer)
    files = [x for domain in every for x in names_of(domain) if _is_file(x)]
    needs = domain_needs.most(map(domain_file.needs, files))
    names = ("tools", "args", "steps", "constants")
    sizes = {f"num_{name}": getattr(settings, f"num_{name}") for name in names}
    return Limits(
        **sizes,
        num_fields=max(settings.num_fields, needs.num_fields),
        depth=settings.depth or needs.depth,
        num_derived=settings.num_derived or needs.num_derived,
        value_bytes=settings.value_bytes,
        conditions=settings.conditions,
        paging=settings.paging,
    )


def _is_file(domain: str) -> bool:
    name = domain.removesuffix(development.SUFFIX)
    return name.endswith(".json") or domain_file.is_builtin(name)


@cache  # equal environments share compiled programs
def functions(sizes: Sizes, num_visible: int) -> Environment:
    """Return the environment of a domain or a log as pure functions.

    Args:
      sizes: the maximum sizes of an episode.
      num_visible: number of documented tools, unless the goal needs more.
    """
    return Environment(
        name="tools",
        sizes=sizes,
        sample=partial(_sample, num_visible=num_visible),
        reset=lambda tables, task: environment.reset(tables.lexicon, task),
        step=lambda tables, task, state, action: environment.step(
            tables.lexicon, task, state, action, sizes.max_turns
        ),
        prompt=lambda tables, task: render.prompt(
            tables.lexicon.style, task, getattr(tables.source, "documents", None)
        ),
        utterance=lambda tables, task, action: render.action(
            tables.lexicon.style, task, action
        ),
        parse=lambda tables, task, text, num_bytes: parse.parse(
            tables.lexicon, task, text, num_bytes
        ),
        observe=lambda tables, task, result: render.observation(
            tables.lexicon.style, task, result
        ),
        expert=_expert,
        blank=_blank,
        refuse=lambda tables, task: replace(
            _blank(tables, task), kind=jnp.int32(reply_scan.REFUSE)
        ),
        ask=lambda tables, task: replace(
            _blank(tables, task), kind=jnp.int32(reply_scan.ASK)
        ),
        certificate=lambda tables, task: environment.certificate(task),
        outcome=lambda tables, task, state: grading.outcome(state),
        counts=lambda tables, task: jnp.sum(task.tools.visible)[None],
        phrasing=lambda tables, task: hashing.fingerprint(task.phrase),
        pools=partial(_pools, num_visible=num_visible),
        perturbations=perturb.CATALOGUE,
        training_mix=perturb.TRAINING_MIX,
        suite=perturb.SUITE,
        rewards=grading.REWARDS,
        reasons=oracle.REASONS,
        documented=lambda tables, task: environment.documented(task),
        remembered=lambda tables, clean, task: environment.remembered(clean, task),
        domain=lambda tables, task: tables.source.tasks.goal_domain[task.goal.kind],
    )


def check(domain: str, settings: Settings, max_sizes: Mapping[str, int]) -> None:
    """Check that the files of domains can be used.

    Args:
      domain: a builtin domain, a domain file, or a list of them.
      settings: give the sizes of the arrays.
      max_sizes: ignored; it limits logs.

    Raises:
      ValueError: a file has faults.
    """
    del max_sizes
    mixture.load(names_of(domain), limits_of(settings.of(domain)))


def make_random(settings: Settings, spelling: Spelling) -> World:
    """Return random tool worlds, a new one for each task.

    Raises:
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    limits, table = limits_of(settings).flat(), ToolSymbols()
    # Words of domains that a policy is tested on, and one that no argument may have.
    avoid = {*domain_file.evaluated_words(), style.CODE}
    words = random_words.compile(table, spelling.tokenizer, avoid)
    source = random_worlds.RandomWorlds(
        words, settings.min_visible, settings.num_visible
    )
    lexicon = _lexicon(table, spelling, style_of(spelling, limits), limits)
    goals = [f"{1 + i} steps" for i in range(limits.num_steps)]
    return World(
        environment=functions(settings.sizes, settings.num_visible)._replace(
            sample=lambda tables, key, split: random_worlds.sample_task(
                source, key, limits
            ),
            perturbations=(),
            training_mix=(),
            suite=(),
        ),
        tables=Tables(lexicon),
        transcriber=conversation.Transcriber(table, limits.num_args, goals),
        fixed_tokens=cache(partial(words.fixed_tokens, lexicon)),
    )


def make_domain(settings: Settings, spelling: Spelling) -> World:
    """Return the world of domains, each a builtin one or a file.

    Raises:
      ValueError: a file has faults, the weights of the domains do not fit them, or the
        tokenizer cannot be used, or not with this style.
    """
    limits, table = limits_of(settings), ToolSymbols()
    made = Documents(style_of(spelling, limits))
    tasks, transfer, goals, limits, units = _compiled(settings, table, limits, made)
    tasks = tasks, transfer
    return world_of(*tasks, goals, table, limits, settings, spelling, made, units)


def _compiled(
    settings: Settings, table: ToolSymbols, limits: Limits, made: Documents
) -> tuple[Tasks, Tasks, list[str], Limits, dict[str, str]]:
    """Return the domains of tasks and those of `domain_transfer` as arrays, a name for
    each kind of goal of the tasks, fitted limits, and the units of results.

    Goals are sampled and compiled for one domain after another, since those of 26
    domains take much more memory as objects than as arrays.
    """
    shares = mixture.shares(settings), mixture.equal(settings.transfer)
    specs = mixture.load((*shares[0].names, *shares[1].names), limits)
    sizes = replace(documents.fitted(limits, [*specs.values()]), conditions=True)
    compiled: dict[str, domains.Domain] = {}
    names: dict[str, list[str]] = {}
    for name, spec in specs.items():
        own = with_sampled(settings, spec, limits)
        compiled[name] = domains.compile(own, table, sizes, made)
        names[name] = [goal.name for goal in own.goals]
    compiled, conditions = mixture.without_unused_conditions(compiled)
    tasks, transfer = (mixture.joined(compiled, chosen) for chosen in shares)
    goals = mixture.goals([(specs[x].name, names[x]) for x in shares[0].names])
    sizes = replace(sizes, conditions=conditions)
    return tasks, transfer, goals, sizes, mixture.units(specs.values())


def with_sampled(settings: Settings, spec: DomainSpec, limits: Limits) -> DomainSpec:
    """Return a domain with the goals that are sampled for a world after its own ones.

    They are kept in the folder of compiled programs, if there is one.

    Raises:
      DomainError: it has no goals then.
    """
    folder = jax.config.values["jax_compilation_cache_dir"]
    num = num_goals(settings, spec)
    made = goal_sampling.with_goals(spec, limits, num, cache=folder)
    if not made.goals:
        raise DomainError(
            f'the domain "{spec.name}" has no goals of its own, and {num} are sampled; '
            "raise sandbox.num_goals"
        )
    return made


def num_goals(settings: Settings, spec: DomainSpec) -> int:
    """Return how many goals are sampled from a domain of a world, at most.

    Unless that is set, there are none in a world of one domain that has its own goals.
    """
    alone = settings.num_goals < 0 and len(names_of(settings.domain)) == 1
    return 0 if alone and spec.goals else num_sampled(settings)


def num_sampled(settings: Settings) -> int:
    """Return how many goals are sampled from each domain of several, at most."""
    return DEFAULT_GOALS if settings.num_goals < 0 else settings.num_goals


def world_of(
    tasks: Tasks,
    transfer: Tasks,
    goals: Sequence[str],
    table: ToolSymbols,
    limits: Limits,
    settings: Settings,
    spelling: Spelling,
    made: Documents,
    units: Mapping[str, str] = MappingProxyType({}),
) -> World:
    """Return the world of a domain or a log.

    Args:
      tasks: what tasks are sampled from.
      transfer: what the perturbation `domain_transfer` takes tasks from.
      goals: a name for each kind of goal of `tasks`.
      table: the symbols of both.
      limits: the sizes of the arrays of both.
      settings: the settings of the environment.
      spelling: how its texts are written as tokens.
      made: the documents of its tools, in the style of the spelling.
      units: the unit of each result that has one, by its key.

    Raises:
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    opaque = [(table.opaque[split].low, table.opaque[split].high) for split in SPLITS]
    gates = [table.gates[split] for split in SPLITS]
    # After the texts that worlds are drawn from, and before those of the style: neither
    # worlds nor perturbed tasks depend on what comes later.
    notes = jnp.asarray([[list(map(table.one, x)) for x in NOTES[s]] for s in SPLITS])
    joints = jnp.asarray([list(map(table.one, JOINTS[s])) for s in SPLITS])
    listers, changes = (
        jnp.asarray([[list(map(table.one, x)) for x in texts[s]] for s in SPLITS])
        for texts in (LISTERS, CHANGES)
    )
    vague = jnp.asarray([list(map(table.one, VAGUE[s])) for s in SPLITS])
    noises = noise.compile([tasks, transfer], table, made, limits.value_bytes)
    keys = key_forms.tables(table, _result_keys((tasks, transfer)), units)
    source = Source(
        tasks,
        transfer,
        jnp.array(opaque),
        jnp.asarray(gates, jnp.int32),
        jnp.asarray(made.table(table, limits)),
        notes,
        joints,
        listers,
        changes,
        vague,
        noises,
        keys,
        jnp.zeros(1, jnp.int32),
    )
    num_texts = len(table.texts)  # those of the style follow
    lexicon = _lexicon(table, spelling, made.style, limits)
    special = [not result_forms.is_plain(text) for text in table.texts]
    special = np.cumsum([0, *special], dtype=np.int32)
    source = source._replace(special=jnp.asarray(special))
    made_of = functions(settings.sizes, settings.num_visible)
    names = mixture.shares(settings).names
    if len(names) > 1:
        nth = partial(_nth, num_visible=settings.num_visible)
        made_of = made_of._replace(nth_task=nth)
    return World(
        made_of,
        Tables(lexicon, source),
        conversation.Transcriber(table, limits.num_args, goals, made),
        fixed_tokens=cache(
            partial(_fixed_tokens, lexicon, table, num_texts, spelling.tokenizer)
        ),
        domains=names if len(names) > 1 else (),
    )


def _fixed_tokens(
    lexicon: lexicons.Lexicon, table: ToolSymbols, num_texts: int, tokenizer: Any
) -> set[int]:
    """Return the tokens of texts that are the same in all domains.

    These are syntax, numbers, what the user and the documents say of changes, and
    general words.

    Args:
      lexicon: the spelling of all symbols.
      table: the symbols.
      num_texts: the number of symbols before those of the style.
      tokenizer: a `tokenizers.Tokenizer`.
    """
    fixed = np.arange(len(table.texts)) >= num_texts
    fixed[: table.numbers.high] = True
    for text in jax.tree.leaves((NOTES, JOINTS, LISTERS, CHANGES, VAGUE)):
        fixed[table.one(text)] = True
    used = fixed_tokens.of_symbols(lexicon, fixed)
    return used | fixed_tokens.of_general_words(tokenizer)


def _result_keys(tree: Any) -> set[int]:
    """Return the symbols of all parts of paths of results."""
    found: set[int] = set()
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        if getattr(path[-1], "name", "") in ("result_name", "result_path"):
            found |= {*np.unique(leaf).tolist()}
    return {key for key in found if 0 < key < scalars.UNQUOTED}


def style_of(spelling: Spelling, limits: Limits) -> style.Style[str]:
    """Return the style in which episodes are written."""
    form = spelling.style or style.compact(limits.num_args)
    return style.with_nesting(form) if limits.depth > 1 else form


def _lexicon(
    table: ToolSymbols, spelling: Spelling, form: style.Style[str], limits: Limits
) -> lexicons.Lexicon:
    sizes = spelling.vocab_size, limits.value_bytes
    return lexicons.build(table, spelling.tokenizer, form, *sizes)


def _sample(
    tables: Tables, key: jax.Array, split: str | Split, num_visible: int
) -> Task:
    return tables.source.tasks.sample(key, domains.index(split), num_visible)


def _nth(
    tables: Tables,
    key: jax.Array,
    index: jax.Array,
    split: str | Split,
    num_visible: int,
) -> Task:
    tasks = tables.source.tasks
    return tasks.nth(key, index, domains.index(split), num_visible)


def _expert(tables: Tables, task: Task, state: State) -> Action:
    return oracle.expert(tables.lexicon, task, state)


def _blank(tables: Tables, task: Task) -> Action:
    del tables
    return environment.no_action(task.tools.arg_name.shape[-1])


def _pools(tables: Tables, task: Task, split: str | Split, num_visible: int) -> Pools:
    """Return the pools of a split, from which perturbations of a task draw."""
    source, s = tables.source, domains.index(split)
    return Pools(
        **vars(source.tasks.pools(task, s, source.gates[s])),
        opaque=source.opaque[s],
        notes=source.notes[s],
        joints=source.joints[s],
        listers=source.listers[s],
        changes=source.changes[s],
        vague=source.vague[s],
        misspelt=source.noise.requests.of(s, task.phrase),
        noisy_names=source.noise.names.of(s, task.tools.name),
        worse_descriptions=source.noise.descriptions.of(
            s, task.tools.description[:, 0]
        ),
        asides=jax.tree.map(lambda x: x[s], source.noise.asides),
        forms=jnp.array(result_forms.RANGES)[s],
        key_range=jnp.array(key_forms.RANGES)[s],
        keys=source.keys,
        special=source.special,
        tabled=jnp.asarray(s == domains.TRAIN),
        wordings=jnp.array(error_texts.RANGES)[s],
        transfer=lambda key: source.transfer.sample(key, s, num_visible),
    )


DOMAINS = EnvironmentSpec(
    make_domain,
    perturb.CATALOGUE,
    perturb.TRAINING_MIX,
    perturb.SUITE,
    grading.REWARDS,
    check,
)
RANDOM_WORLDS = EnvironmentSpec(make_random, rewards=grading.REWARDS)
