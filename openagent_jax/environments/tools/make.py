"""Make tool worlds: lexicon, domains, and the pools of perturbations.

`make_domain` and `make_random` run on the host, once for each run. They return arrays
and pure functions.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from openagent_jax import expert
from openagent_jax.environments import grading
from openagent_jax.environments.tools import (
    conversation,
    environment,
    oracle,
    parse,
    perturb,
    render,
)
from openagent_jax.environments.tools.logs import logged_worlds, logs
from openagent_jax.environments.tools.perturb.edits import Pools
from openagent_jax.environments.tools.types import Action, Limits, State, Task
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds import (
    domain_file,
    random_words,
    random_worlds,
)
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.environments.world import (
    SPLITS,
    EnvironmentSpec,
    Settings,
    Spelling,
    World,
)
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import style
from openagent_jax.types import Environment, Sizes, Tables

# Keys of a config that limit numbers of tokens. `algorithm.num_tokens` is not in every
# config.
TOKENS = {f"sandbox.{x}_tokens" for x in ("prompt", "action", "result", "context")}
TOKENS |= {"algorithm.num_tokens"}

Tasks = domains.Domain | logged_worlds.LoggedWorlds


class Source(NamedTuple):
    """The data that tasks and perturbations are sampled from."""

    tasks: Tasks
    transfer: Tasks  # another domain, from which `domain_transfer` takes tasks
    opaque: Int[Array, "2 2"]  # by split: range of names without meaning
    gates: Int[Array, "2 R 2"]  # by split: names and descriptions of gates; see `Pools`


def limits_of(settings: Settings) -> Limits:
    """Return the sizes of the arrays of a task."""
    names = ("tools", "args", "fields", "steps", "constants")
    return Limits(**{f"num_{name}": getattr(settings, f"num_{name}") for name in names})


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
        prompt=lambda tables, task: render.prompt(tables.lexicon.style, task),
        utterance=lambda tables, task, action: render.action(
            tables.lexicon.style, task, action
        ),
        parse=lambda tables, task, text, num_bytes: parse.parse_bytes(
            tables.lexicon, task, text, num_bytes
        ),
        observe=lambda tables, task, result: render.observation(
            tables.lexicon.style, task, result
        ),
        expert=_expert,
        blank=lambda tables, task: environment.no_action(task.tools.arg_name.shape[-1]),
        certificate=lambda tables, task: oracle.certificate(task),
        outcome=lambda tables, task, state: grading.outcome(state),
        pools=partial(_pools, num_visible=num_visible),
        perturbations=perturb.CATALOGUE,
        training_mix=perturb.TRAINING_MIX,
        suite=perturb.SUITE,
        rewards=grading.REWARDS,
        reasons=oracle.REASONS,
    )


def check(domain: str, settings: Settings, room: Mapping[str, int]) -> None:
    """Check that the file of a domain can be used.

    Args:
      domain: a builtin domain, a domain file, or a log.
      settings: give the sizes of the arrays.
      room: the maximum sizes of an episode, by the keys of a config.

    Raises:
      domain_spec.DomainError: the file has faults, or no conversation of the log can be
        mapped.
    """
    limits = limits_of(settings)
    if logs.is_log(domain):
        logs.load(domain, logs.room(limits) | dict(room)).checked()
    else:
        domain_file.load(domain, limits)


def make_random(settings: Settings, spelling: Spelling) -> World:
    """Return random tool worlds, a new one for each task.

    Raises:
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    limits, table = limits_of(settings), ToolSymbols()
    builtin = domain_file.builtins()
    code = {style.CODE}  # reserved: no argument may have this name
    avoid = code.union(*(domains.words(domain_file.load(d)) for d in builtin))
    words = random_words.compile(table, spelling.tokenizer, avoid)
    source = random_worlds.RandomWorlds(
        words, settings.min_visible, settings.num_visible
    )
    lexicon = _lexicon(table, spelling, limits)
    tokens, shapes = words.free_tokens(lexicon)
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
        free_tokens=(jnp.asarray(tokens), jnp.asarray(shapes)),
    )


def make_domain(settings: Settings, spelling: Spelling) -> World:
    """Return the world of a domain: a builtin domain, a domain file, or a log.

    Raises:
      domain_spec.DomainError: the file has faults, or no conversation of the log can be
        mapped.
      ValueError: the tokenizer cannot be used, or not with this style.
    """
    limits, table = limits_of(settings), ToolSymbols()
    names = [str(settings.domain), str(settings.transfer)]
    room = logs.room(limits) | dict(spelling.room)
    found = {
        name: logs.load(name, room).spelled_by(spelling.tokenizer).checked()
        for name in names
        if logs.is_log(name)
    }
    if found:
        limits = logged_worlds.fitted(
            limits, [task for log in found.values() for _, task in log.tasks]
        )
    tasks, transfer = (
        logged_worlds.compile([task for _, task in found[name].tasks], table, limits)
        if name in found
        else domains.compile(domain_file.load(name, limits), table, limits)
        for name in names
    )
    lexicon = _lexicon(table, spelling, limits)
    made = functions(settings.sizes, settings.num_visible)
    opaque = [(table.opaque[split].low, table.opaque[split].high) for split in SPLITS]
    gates = [table.gates[split] for split in SPLITS]

    def tables(tasks: Tasks) -> Tables:
        source = Source(
            tasks, transfer, jnp.array(opaque), jnp.asarray(gates, jnp.int32)
        )
        return Tables(lexicon, source)

    log, goals = found.get(names[0]), ["recorded"]
    if log and isinstance(tasks, logged_worlds.LoggedWorlds):
        log, tasks = _with_room(log, tasks, made, tables(tasks), room)
    else:
        goals = [goal.name for goal in domain_file.load(names[0], limits).goals]
    transcriber = conversation.Transcriber(table, limits.num_args, goals)
    world = World(made, tables(tasks), transcriber)
    if log:
        world = world._replace(
            source=log.file,
            summary=log.summary(),
            skipped=log.skipped,
            notes=tuple(log.report()),
        )
    return world


def _lexicon(
    table: ToolSymbols, spelling: Spelling, limits: Limits
) -> lexicons.Lexicon:
    chosen = spelling.style or style.compact(limits.num_args)
    return lexicons.build(table, spelling.tokenizer, chosen, spelling.vocab_size)


def _sample(tables: Tables, key: jax.Array, split: str, num_visible: int) -> Task:
    return _sample_from(tables.source.tasks, key, split, num_visible)


def _sample_from(tasks: Tasks, key: jax.Array, split: str, num_visible: int) -> Task:
    which = domains.SPLITS[split]
    if isinstance(tasks, logged_worlds.LoggedWorlds):
        return logged_worlds.sample_task(tasks, key, which)
    return domains.sample_task(tasks, key, which, num_visible)


def _expert(tables: Tables, task: Task, state: State) -> Action:
    return oracle.expert(tables.lexicon, task, state)


def _pools(tables: Tables, task: Task, split: str, num_visible: int) -> Pools:
    """Return the pools of a split, from which perturbations of a task draw."""
    source, s = tables.source, domains.SPLITS[split]
    num_trained, num_styles = style.NUM_TRAIN_STYLES, len(style.RESULT_STYLES)
    styles = (1, num_trained) if split == "train" else (num_trained, num_styles)
    shared: dict[str, Any] = dict(
        opaque=source.opaque[s],
        styles=jnp.array(styles),
        transfer=lambda key: _sample_from(source.transfer, key, split, num_visible),
    )
    tasks, gates = source.tasks, source.gates[s]
    if isinstance(tasks, logged_worlds.LoggedWorlds):
        own = logged_worlds.pools(tasks, task, s, gates)
        return Pools(**own._asdict(), **shared)
    rewrite = domains.REWRITE + s
    return Pools(
        names=tasks.variants.name[s],
        descriptions=tasks.variants.description[s],
        arg_names=tasks.variants.arg_name[s],
        gates=gates,
        phrases=tasks.phrases[rewrite],
        num_phrases=tasks.num_phrases[rewrite],
        shifted=tasks.result_range[domains.SHIFT],
        constant_range=tasks.constant_range[domains.SHIFT],
        **shared,
    )


def _with_room(
    log: logs.Log,
    source: logged_worlds.LoggedWorlds,
    made: Environment,
    tables: Tables,
    room: Mapping[str, int],
) -> tuple[logs.Log, logged_worlds.LoggedWorlds]:
    """Return a log without the conversations that have too many tokens."""
    tasks = [task for _, task in log.tasks]
    if tokens := TOKENS & room.keys():
        # The limit on turns in `room` may be larger than that of the settings.
        sizes = made.sizes._replace(max_turns=room["sandbox.max_turns"])
        measure = partial(_num_tokens, functions(sizes, 0), tables)
        found = logged_worlds.measured(source, measure, len(tasks))
        needs = [{key: int(found[key][i]) for key in tokens} for i in range(len(tasks))]
        log, kept = log.with_room(needs, room)
        source = logged_worlds.only(source, tasks, kept) if kept else source
    return log.checked(), source


def _num_tokens(
    made: Environment, tables: Tables, task: Task
) -> dict[str, Int[Array, ""]]:
    """Count the tokens of the expert's episode on a task, and of its parts."""
    num = partial(expert.num_tokens, tables)

    def longest(write, parts):
        lengths = jax.vmap(lambda part: num(write(tables, task, part)))(parts)
        return jnp.max(jnp.where(episode.valid, lengths, 0))

    episode = expert.demonstrate(made, tables, task)
    total = expert.write(made, tables, episode, 1)[3]
    return {
        "sandbox.prompt_tokens": num(made.prompt(tables, task)),
        "sandbox.action_tokens": longest(made.utterance, episode.action),
        "sandbox.result_tokens": longest(made.observe, episode.timestep.observation),
        "sandbox.context_tokens": total,
        "algorithm.num_tokens": total,
    }


DOMAINS = EnvironmentSpec(
    make_domain,
    perturb.CATALOGUE,
    perturb.TRAINING_MIX,
    perturb.SUITE,
    grading.REWARDS,
    check,
)
RANDOM_WORLDS = EnvironmentSpec(make_random, rewards=grading.REWARDS)
