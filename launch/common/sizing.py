"""Fit the limits on tokens to a user's own tools, before the long work begins.

The defaults suit `poi` and `medical`. For other domains, for files and for logs, limits
that nobody has set are raised to what their tasks need. A limit that was set is kept:
longer conversations of a log are skipped, and it is an error if any other prompt or
result would not fit, since the evaluation could not be finished.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from launch.common import build, errors, preflight, scenarios
from launch.common.config import Config, defaults, flat
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from openagent_jax.curriculum import draw
from openagent_jax.domains import development, library
from openagent_jax.environments import registry
from openagent_jax.environments.logs import logs
from openagent_jax.environments.world import names_of
from openagent_jax.expert import Lengths
from openagent_jax.types import Sizes

STEP = 32  # limits are raised to multiples of this, so that few programs are compiled
# Policies make calls that the expert does not make, and read other results.
MARGIN = 1.5
# A text that exceeds one of these ends an evaluation.
FATAL = ("sandbox.prompt_tokens", "sandbox.result_tokens")
KEYS = {f"sandbox.{name}": name for name in Sizes._fields if name != "max_turns"}

NUM_TOKENS = "algorithm.num_tokens"  # of a row of supervised training


class Longest(NamedTuple):
    """The most tokens of a part of the expert's episodes, and where it has them."""

    tokens: int
    scenario: str


def as_stored(
    c: Config, stored: Mapping[str, Any] | None, given: Collection[str]
) -> Config:
    """Return the config of a run that goes on, with the limits that it began with.

    Args:
      c: the config.
      stored: the config that the run has stored; None for a run that begins.
      given: the keys that flags have set.
    """
    if stored is None or not any(map(_outgrows, _domains(c))):
        return c
    old, kept = flat(stored), fixed(c, given)
    keys = [key for key in (*KEYS, NUM_TOKENS) if key not in kept]
    return c.replace({key: old[key] for key in keys if key in old})


def fitted(
    c: Config,
    model: Backbone,
    given: Collection[str],
    default: str,
    trains: bool = False,
) -> Config:
    """Return the config of an evaluation, or of a run, with room for its tasks.

    A limit counts as set if it is in `given`, or differs from `configs/base.py`.

    Args:
      c: the config.
      model: the model of the policy; its context bounds all limits.
      given: the keys that flags have set.
      default: what "default" stands for in `eval.scenarios`; see `draw.expand`.
      trains: whether the policy is trained, on the tasks of `sandbox.domain`.

    Raises:
      UsageError: a limit that was set is too small, or the model's context is.
    """
    usually, values = defaults(), flat(c)
    domains = _domains(c) if trains else [c.eval_domain, c.suite]
    outgrows = any(map(_outgrows, domains))
    if not outgrows and all(values[x] >= usually[x] for x in FATAL):
        return c
    kept = fixed(c, given) if outgrows else {*KEYS, NUM_TOKENS}
    longest = measure(c, model, default, kept)
    training = _of_training(c, model, kept) if trains and outgrows else longest
    both = {part: max(longest[part], training[part]) for part in longest}
    _check_set(c, longest, kept)
    sizes = needed(c.sandbox.sizes, both, model.config.max_positions)
    changes = {key: getattr(sizes, name) for key, name in KEYS.items()}
    of_log = any(map(logs.is_log, domains))
    if (trains or of_log) and not c.algorithm.is_reinforcement:
        # Longer conversations of a log are left out of an evaluation too.
        rows = both if of_log else training
        changes[NUM_TOKENS] = _raised(values[NUM_TOKENS], rows["episode"].tokens)
    changes = {
        key: value
        for key, value in changes.items()
        if key not in kept and value != values[key]
    }
    made = c.replace(changes)
    _check_context(made, model, longest)
    if changes:
        said = ", ".join(f"{key}={value}" for key, value in changes.items())
        print(f"{c.eval_domain}: {said}, so that its texts fit", flush=True)
    return made


def fits(asked: Config, made: Config, model: Backbone, given: Collection[str]) -> bool:
    """Tell whether `fitted` made room for every task that a run trains on.

    Args:
      asked: the config that `fitted` got.
      made: the config that it returned.
      model: the model of the policy.
      given: the keys that flags have set.
    """
    is_measured = any(map(_outgrows, _domains(asked))) and not fixed(asked, given)
    return is_measured and made.sandbox.context_tokens < model.config.max_positions


def _outgrows(domain: str) -> bool:
    """Tell whether the tasks of a domain may need more room than the defaults give.

    >>> [_outgrows(x) for x in ("poi:dev", "crafting", "poi,banking", "mine.json")]
    [False, True, True, True]
    """
    names = {name.removesuffix(development.SUFFIX) for name in names_of(domain)}
    large = {*library.TRAIN, *library.HELD_OUT, *library.INVENTED} - {*library.SMALL}
    large.add("crafting")  # its items have rare names
    return registry.is_own(domain) or bool(names & large)


def _domains(c: Config) -> list[str]:
    return [c.sandbox.domain, c.eval_domain, c.suite]


def fixed(c: Config, given: Collection[str]) -> set[str]:
    """Return the keys of the limits that somebody has set."""
    usually, values = defaults(), flat(c)
    keys = (*KEYS, NUM_TOKENS)
    return {key for key in keys if key in given or values[key] != usually[key]}


def measure(
    c: Config, model: Backbone, default: str, kept: Collection[str] = ()
) -> dict[str, Longest]:
    """Measure the tasks of an evaluation, by the fields of `expert.Lengths`.

    Args:
      c: the config.
      model: the model of the policy.
      default: what "default" stands for in `eval.scenarios`; see `draw.expand`.
      kept: the limits that are not raised; see `wide`.
    """
    domain = c.eval_domain
    source = build.world(wide(c, model, domain, kept), model, domain)
    with errors.blame("eval.split"):  # a log may have no task of this split
        source.check(c.eval.split)
    environment, tables = source.environment, source.tables
    left_out = registry.left_out(c.suite)
    drawn = scenarios.Drawn(
        scenarios.choose(environment, c.eval.scenarios, default, left_out).names,
        c.eval.split,
        c.eval.seed,
        draw.num_tasks(environment, tables, c.eval.split, c.eval.num_tasks),
        c.eval.strength,
        c.eval.repeats,
    )
    sized = c.replace({"sandbox.domain": domain})
    return _longest(preflight.of_tasks(sized, source, drawn))


def _of_training(
    c: Config, model: Backbone, kept: Collection[str]
) -> dict[str, Longest]:
    """Measure tasks that a run trains on, as `measure` does."""
    domain = c.sandbox.domain
    source = build.world(wide(c, model, domain, kept), model, domain)
    return _longest(preflight.measure(c, source))


def wide(c: Config, model: Backbone, domain: str, kept: Collection[str]) -> Config:
    """Return the config of a world in which no text is refused for its length.

    Args:
      c: the config.
      model: the model of the policy.
      domain: the domain of the world.
      kept: the limits that are not raised. They choose which conversations of a log
        are used, and leave out nothing of any other domain.
    """
    most, of_log = model.config.max_positions, logs.is_log(domain)
    sizes = dict.fromkeys((*KEYS, NUM_TOKENS), most)
    if of_log:  # beside a prompt, episodes need as much room as those of any domain
        beside = c.sandbox.context_tokens - c.sandbox.prompt_tokens
        sizes["sandbox.prompt_tokens"] = most - beside
    raised = {
        key: max(size, c.max_sizes.get(key, 0))
        for key, size in sizes.items()
        if not (of_log and key in kept)
    }
    return c.replace(raised)


def _longest(found: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Longest]:
    return {
        part: max(
            Longest(int(sizes[part].max()), name) for name, sizes in found.items()
        )
        for part in Lengths._fields
    }


def needed(sizes: Sizes, longest: Mapping[str, Longest], context: int) -> Sizes:
    """Return the sizes of episodes that have room for the measured ones.

    No size becomes smaller. What an episode has beside its prompt stays the same, if
    that is enough.

    Args:
      sizes: the sizes that are set, or the defaults.
      longest: what `measure` returned.
      context: the most tokens that the model can read.

    >>> found = {"prompt": 271, "action": 40, "result": 30, "episode": 400}
    >>> found = {part: Longest(tokens, "clean") for part, tokens in found.items()}
    >>> needed(Sizes(10, 224, 60, 36, 512), found, 8192)
    Sizes(max_turns=10, prompt_tokens=288, action_tokens=60, result_tokens=64, \
context_tokens=576)
    """
    tokens = {part: found.tokens for part, found in longest.items()}
    prompt = _raised(sizes.prompt_tokens, tokens["prompt"])
    action = _raised(sizes.action_tokens, tokens["action"] * MARGIN)
    result = _raised(sizes.result_tokens, tokens["result"] * MARGIN)
    beside = sizes.context_tokens - sizes.prompt_tokens
    least = max(prompt + action + result, tokens["episode"] + action + result)
    episode = max(_raised(sizes.context_tokens, prompt + beside), _raised(0, least))
    return sizes._replace(
        prompt_tokens=min(prompt, context),
        action_tokens=action,
        result_tokens=result,
        context_tokens=min(episode, context),
    )


def _raised(size: int, tokens: float) -> int:
    """Return `size` if `tokens` fit, else `tokens` rounded up to whole `STEP`s."""
    return size if tokens <= size else STEP * -(-int(tokens) // STEP)


def _check_set(c: Config, longest: Mapping[str, Longest], is_set: set[str]) -> None:
    """Check that the limits that were set have room for every text."""
    short = {}
    for key, name in KEYS.items():
        part = name.removesuffix("_tokens").replace("context", "episode")
        size, found = getattr(c.sandbox, name), longest[part]
        if key not in is_set or found.tokens <= size:
            continue
        wanted = _raised(size, found.tokens)
        what = f"{key}={size} is too small for {c.eval_domain}: "
        what += f"{found.tokens} tokens in {found.scenario}"
        if key in FATAL:
            short[key] = what, wanted
        else:
            print(f"warning: {what}; the policy cannot solve these; give {wanted}")
    if short:
        what, _ = next(iter(short.values()))
        remedy = " ".join(f"--config.{key}={n}" for key, (_, n) in short.items())
        raise UsageError(f"{what}; give {remedy}")


def _check_context(c: Config, model: Backbone, longest: Mapping[str, Longest]) -> None:
    """Check that an episode can at least begin within the context of the model."""
    sizes = c.sandbox.sizes
    least = sizes.prompt_tokens + sizes.action_tokens + sizes.result_tokens
    if least <= sizes.context_tokens:
        return
    prompt, most = longest["prompt"], model.config.max_positions
    if sizes.context_tokens < most:
        raise UsageError(
            f"sandbox.context_tokens={sizes.context_tokens} has no room for a prompt, "
            f"an action and a result of {c.eval_domain}; give "
            f"--config.sandbox.context_tokens={min(most, _raised(0, least))}"
        )
    raise UsageError(
        f"{c.eval_domain}: a prompt of {prompt.scenario} has {prompt.tokens} tokens, "
        f"and {model.folder} reads {most} in all; show fewer tools "
        "(--config.sandbox.num_visible), shorten their descriptions, or take a model "
        "with a longer context"
        + (
            f"; --config.sandbox.prompt_tokens={prompt.tokens // 2} would skip long "
            "conversations"
            if logs.is_log(c.eval_domain)
            else ""
        )
    )
