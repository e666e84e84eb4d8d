"""From a config to the parts of a run."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from ml_collections import ConfigDict

from launch import backbones, settings
from launch.cli import BadUse
from openagent_jax import (
    monitors,
    sharding,
    train,
    worlds,
)
from openagent_jax.algorithms import grpo, paft, policy_gradient, ppo, sft
from openagent_jax.data.demonstrations import Recipe
from openagent_jax.interop import chat_template
from openagent_jax.models import lora, shuffle, transformer
from openagent_jax.sandbox import chat, domain, domain_file, style
from openagent_jax.sandbox.lexicon import Lexicon
from openagent_jax.types import Algorithm, Metrics, Params, Policy


def task_worlds(c: ConfigDict, model: backbones.Backbone, domain: str) -> worlds.Worlds:
    """Tasks as the model reads them."""
    if c.sandbox.context_tokens > model.config.max_positions:
        raise BadUse(
            f"sandbox.context_tokens={c.sandbox.context_tokens} is more than the "
            f"{model.config.max_positions} positions that {model.folder} knows"
        )
    _, form = form_of(c, model)
    with settings.blamed_on(f"sandbox, with the domain {domain}"):
        made = worlds.build(
            domain,
            model.tokenizer,
            settings.limits(c),
            num_visible=c.sandbox.num_visible,
            min_visible=c.sandbox.min_visible,
            transfer=c.sandbox.transfer,
            form=form,
            vocab_size=model.config.vocab_size,
            room=settings.room(c),
        )
    if model.template:  # documents are long
        _check_room(c, made)
    return made


def form_of(
    c: ConfigDict, model: backbones.Backbone
) -> tuple[chat.Template | None, style.Style[str]]:
    """How episodes are written: the model's chat template, or our compact form."""
    max_args = settings.limits(c).num_args
    if model.template:
        with settings.blamed_on("model.chat_template"):
            template = chat_template.load(model.tokenizer, model.template, model.folder)
            return template, chat.read(template, max_args)
    if model.tokenizer.token_to_id(style.END) is None:
        raise BadUse(
            f"{model.folder} has no chat template; name one by model.chat_template: "
            f"{', '.join(backbones.TEMPLATES)}, or a .jinja file"
        )
    return None, style.compact(max_args)


def _check_room(c: ConfigDict, source: worlds.Worlds) -> None:
    """Prompts fit; a few tasks are looked at."""
    longest = source.longest_prompt(jax.random.key(c.seed), num=64)
    rooms = {"sandbox.prompt_tokens": c.sandbox.prompt_tokens}
    if c.algorithm.name == "sft":
        rooms["algorithm.num_tokens"] = c.algorithm.num_tokens
    for key, room in rooms.items():
        if longest > room:
            raise BadUse(
                f"{key}={room} is too short for the prompts of these tasks, which take "
                f"{longest} tokens and more; raise it, and sandbox.context_tokens too"
            )


def algorithm(c: ConfigDict, policy: Policy, source: worlds.Worlds) -> Algorithm:
    inner = _inner(c, policy, source.lexicon)
    if c.paft.alpha == 0:
        return inner
    mix = worlds.perturbation(source, c.paft.perturbations, "train")
    strength = paft.ramp(c.paft.strength, c.paft.ramp_steps)
    return paft.paft(inner, mix, c.paft.alpha, strength, c.paft.twins)


def _inner(c: ConfigDict, policy: Policy, lexicon: Lexicon) -> Algorithm:
    turns = c.sandbox.max_turns
    if c.algorithm.name == "sft":
        num_tokens, num_rows = c.algorithm.num_tokens, c.algorithm.num_rows
        return sft.sft(policy, lexicon, turns, num_tokens, num_rows)
    weights = {name: weight for name, weight in c.reward.items() if weight}
    names = policy_gradient.Surrogate._fields
    surrogate = policy_gradient.Surrogate(*(c.surrogate[name] for name in names))
    learner = policy_gradient.Learner(
        policy, lexicon, settings.sizes(c), weights, c.algorithm.temperature, surrogate
    )
    if c.algorithm.name == "grpo":
        return grpo.grpo(learner, grpo.Groups(**c.grpo))
    return ppo.ppo(learner, ppo.Critic(**c.ppo))


def start(
    c: ConfigDict, model: backbones.Backbone, laid_out: Mesh
) -> tuple[Params, Params]:
    """What is trained, and what is only used beside it, where they are to lie."""
    placed = backbones.shardings_of(model.config, laid_out)
    params, frozen = backbones.first_params(c, model, placed), {}
    if adapted := model.config.lora:
        key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 2)  # of no step
        abstract, frozen = backbones.shapes(model.config), params
        params, _ = sharding.init_sharded(
            laid_out,
            transformer.logical_axes(model.config),
            lambda key: lora.init(adapted, key, abstract),
            key,
        )
    if c.algorithm.name != "sft" and c.surrogate.kl:
        other = backbones.reference(c, model)
        held = backbones.first_params(c, other, placed) if other else None
        if not frozen:
            # The state will own what it is made of.
            held = held or jax.tree.map(jnp.copy, params)
            params = {**params, policy_gradient.REFERENCE: held}
        elif held:  # else it is what the adapters stand beside
            frozen = {**frozen, policy_gradient.REFERENCE: held}
    if c.algorithm.name == "ppo":
        params = ppo.with_value(params, model.config.width)
    return params, frozen


def trainer(
    c: ConfigDict,
    model: backbones.Backbone,
    source: worlds.Worlds,
    devices: Sequence[Any] | None = None,
    fed: Any = None,
):
    """`(step, state)`: one update, compiled, and the sharded start. Its batches come
    from `fed`, if that is given, and else from the algorithm."""
    laid_out = settings.mesh(c, devices)
    tx = settings.optimizer(c)
    step = train.make_step(
        lambda key: source.sample(key, "train"),
        algorithm(c, model.policy, source),
        tx,
        _num_sampled(c),
        c.train.num_micro_batches,
        c.train.num_epochs,
        c.train.num_minibatches,
        # Demonstrations have a room of their own; few episodes need all of theirs.
        0 if c.algorithm.name == "sft" else c.sandbox.context_tokens * 5 // 8,
        partial(
            jax.lax.with_sharding_constraint,
            shardings=sharding.batch_sharding(laid_out),
        ),
        _view(c, source),
    )
    params, frozen = start(c, model, laid_out)
    state, shardings = sharding.init_sharded(
        laid_out,
        transformer.logical_axes(model.config),
        lambda given: train.init_state(given[0], tx, *given[1:]),
        (params, jax.random.key(c.seed), frozen),
        donate=True,
    )
    outputs = shardings, sharding.replicated(laid_out)
    update = jax.jit(step, donate_argnums=0, out_shardings=outputs)
    if fed is None:
        return update.lower(state).compile(), state
    compiled = update.lower(state, fed.abstract).compile()
    return lambda state: compiled(state, next(fed)), state


def recipe(c: ConfigDict, source: worlds.Worlds, **about: Any) -> Recipe:
    """What a dataset is made of; `about` is told to its readers."""
    name, names = c.sandbox.domain, c.paft.perturbations
    families = [f"{1 + i} steps" for i in range(c.sandbox.num_steps)]
    if source.log:
        families = ["recorded"]
    elif name != worlds.RANDOM:
        families = [
            goal.name for goal in domain_file.load(name, settings.limits(c)).goals
        ]
    edits = {
        split: worlds.perturbation(source, names, split)
        for split in domain.SPLITS
        if c.paft.alpha
    }
    return Recipe(
        lexicon=source.lexicon,
        sample=source.sample,
        domain=name,
        families=families,
        max_turns=c.sandbox.max_turns,
        num_tokens=c.algorithm.num_tokens,
        seed=c.seed,
        alpha=c.paft.alpha,
        strength=c.paft.strength,
        perturbations=names,
        edits=edits,
        about=about | {"sandbox": c.sandbox.to_dict()},
    )


def feed(c: ConfigDict, source: worlds.Worlds, devices: Sequence[Any] | None = None):
    """Batches of a stored dataset; None where they are made on the devices."""
    if not c.data.path:
        return None
    with settings.needs_extra("data.path", "data"):
        from openagent_jax.data import demonstrations, feed, store
    rows, columns, count = (
        settings.num_rows(c),
        c.algorithm.num_tokens,
        jax.process_count(),
    )
    laid_out = settings.mesh(c, devices)
    with settings.blamed_on("data.path"):
        sharding.check_processes(laid_out, count)
        try:
            stored = store.read(c.data.path)
        except FileNotFoundError as error:
            raise BadUse(f"data.path: {error}") from None
        store.check(stored, demonstrations.fingerprints(source.lexicon), columns)
        batches = feed.batches(
            stored.splits["train"],
            c.seed,
            rows // count,
            columns,
            packed=c.algorithm.num_rows > 0,
            process=(jax.process_index(), count),
            num_threads=c.data.num_threads,
        )
    shape, layout = (rows, columns), sharding.batch_sharding(laid_out)
    return feed.Feed(batches, shape, layout, stored.metadata)


def watch(c: ConfigDict, say: Callable[[str], None]) -> Callable[[int, Metrics], None]:
    """What looks at the metrics of each step."""
    bounds = {name: c.monitor[name] for name in monitors.MONITORS}
    return monitors.Watch(bounds, c.monitor.patience, c.monitor.stop, say).see


def _num_sampled(c: ConfigDict) -> int:
    """Tasks of a step; some may be left out of the batch."""
    over = c.grpo.oversample if c.algorithm.name == "grpo" else 1
    return c.train.batch_size * over


def _view(c: ConfigDict, source: worlds.Worlds) -> train.View:
    """What the loss sees of the parameters."""

    def view(params: Params, key: jax.Array) -> Params:
        if not c.optim.train_embedding:  # its gradient would be made for nothing
            params = {**params, "embed": jax.lax.stop_gradient(params["embed"])}
        if c.train.shuffle_vectors and source.free_tokens:
            params = shuffle.shuffle_vectors(params, key, *source.free_tokens)
        return params

    return view
