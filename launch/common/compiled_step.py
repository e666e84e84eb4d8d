"""Compile the training step of a run, or trace it for devices that are not here."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from launch.common import backbones, build, placement
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import fast_compile, optim, rollout, sharding, train_step
from openagent_jax.algorithms import ppo
from openagent_jax.curriculum import draw
from openagent_jax.environments.world import World
from openagent_jax.evaluation import evaluate
from openagent_jax.models import embedding_shuffle, lora, transformer
from openagent_jax.text import lexicon as lexicons
from openagent_jax.types import (
    Batch,
    Params,
    Tables,
    TrainState,
)

MAX_BUCKETS = 4  # more save little, see docs/speed.md
# Eighths of the columns that steps are compiled for, besides all of them. Few episodes
# are as long as the limit, and few demonstrations need all of the room that the longest
# perturbed ones do.
WIDTHS = 3, 4, 5, 6


class TracedStep(NamedTuple):
    """The programs of a step before they are lowered; see `train_step.Step`."""

    make: Any  # None if batches are not made here
    update: Any


class Abstract(NamedTuple):
    """The arrays of a training step: shapes, dtypes and shardings instead of values."""

    mesh: Mesh
    state: TrainState
    tables: Tables


def initial_state(
    c: Config,
    model: Backbone,
    params: Params,
    reference: Params | None,
    root: jax.Array,
    progress: Any = (),
) -> TrainState:
    """Return the state that training starts from. It can be traced.

    With adapters, the parameters of the model are frozen, as is the reference of a KL
    penalty if that is another model.

    Args:
      c: the config.
      model: the model that is trained.
      params: its parameters.
      reference: those of the model that `surrogate.reference` names, if any.
      root: the root key of the run.
      progress: the state of the curriculum.
    """
    frozen: Params = {}
    if adapters := model.config.lora:
        # No step has this number, so no step draws its tasks from this key.
        key = jax.random.fold_in(jax.random.key(c.seed), 2**32 - 2)
        params, frozen = lora.init(adapters, key, params), params
    if c.algorithm.is_reinforcement and c.surrogate.kl:
        if not frozen:
            # A copy, because the arrays in the train state must not be shared.
            reference = reference or jax.tree.map(jnp.copy, params)
            params = {**params, optim.REFERENCE: reference}
        elif reference:  # else the reference is the model without its adapters
            frozen = {**frozen, optim.REFERENCE: reference}
    if c.algorithm.name == "ppo":
        params = ppo.with_value(params, model.config.width)
    optimizer = c.optim.optimizer(c.num_updates)
    return train_step.init_state(params, optimizer, root, frozen, progress)


def root_key(c: Config, model: Backbone) -> jax.Array:
    """Return the root key of a run, which no other run of its chain has."""
    return train_step.root_key(c.seed, c.algorithm.name, model.stage)


def trainer(
    c: Config,
    model: Backbone,
    source: World,
    devices: Sequence[Any] | None = None,
    fed: Any = None,
):
    """Return `(step, state)`: one compiled update, and the sharded state to start from.

    Args:
      c: the config.
      model: the model that is trained.
      source: the world that tasks are drawn from.
      devices: the devices to train on; all by default.
      fed: the result of `batching.of_run`; if None, the algorithm makes the batches.
    """
    mesh = placement.mesh(c, devices)
    placed = placement.shardings(model.config, mesh)
    other = _reference(c, model)
    root = root_key(c, model)
    given = (
        backbones.first_params(c, model, placed),
        backbones.first_params(c, other, placed) if other else None,
        root,
        build.curriculum(c, source.environment, root).init(),
    )
    state, shardings = sharding.init_sharded(
        mesh,
        transformer.logical_axes(model.config),
        lambda given: initial_state(c, model, *given),
        given,
        donate=True,
    )
    tables = jax.device_put(source.tables, sharding.replicated(mesh))
    if fed is not None:
        given = mesh, shardings, state, tables, fed.abstract
        update = _traced(c, model, source, *given).update.lower().compile()
        return lambda state: update(
            state, tables, train_step.Made(batch=next(fed))
        ), state
    traced = _traced(c, model, source, mesh, shardings, state, tables)
    both = [program.lower() for program in traced]
    with ThreadPoolExecutor() as pool:  # XLA compiles outside of the interpreter's lock
        make, update = pool.map(lambda program: program.compile(), both)
    return lambda state: update(state, tables, make(state, tables)), state


def abstract(
    c: Config, model: Backbone, source: World, devices: Sequence[Any] | None = None
) -> Abstract:
    """Return the arrays of the step of `trainer`, without making any.

    The devices may be those of a topology that is not here.
    """
    mesh = placement.mesh(c, devices)
    other, root = _reference(c, model), root_key(c, model)
    given = (
        transformer.shapes(model.config),
        transformer.shapes(other.config) if other else None,
        root,
        build.curriculum(c, source.environment, root).init(),
    )
    state = jax.eval_shape(lambda given: initial_state(c, model, *given), given)
    axes = transformer.logical_axes(model.config)
    state = jax.tree.map(
        as_abstract, state, sharding.state_shardings(mesh, axes, state)
    )
    tables = jax.tree.map(
        lambda x: as_abstract(x, sharding.replicated(mesh)), source.tables
    )
    return Abstract(mesh, state, tables)


def traced(c: Config, model: Backbone, source: World, arrays: Abstract) -> TracedStep:
    """Return the step of `trainer` before it is lowered; it makes its own batches."""
    mesh, state, tables = arrays
    shardings = jax.tree.map(lambda x: x.sharding, state)
    return _traced(c, model, source, mesh, shardings, state, tables)


def traced_rollout(c: Config, model: Backbone, source: World, arrays: Abstract) -> Any:
    """Return the rollout of an evaluation before it is lowered.

    Args:
      c: the config.
      model: the model that is evaluated.
      source: the world of the evaluation.
      arrays: those of its training step, whose state and mesh it has.
    """
    environment, platform = source.environment, arrays.mesh.devices.flat[0].platform
    num_tasks = draw.num_tasks(
        environment, source.tables, c.eval.split, c.eval.num_tasks
    )
    num = min(c.eval.batch_size, num_tasks * c.eval.repeats)
    num = sharding.padded(arrays.mesh, num)
    tasks = draw.make_batch(environment, (), c.eval.split, num, c.eval.repeats)
    start, strength = jnp.int32(0), jnp.float32(c.eval.strength)
    edited, keys = jax.eval_shape(
        tasks, source.tables, start, jax.random.key(0), start, strength
    )
    roll = evaluate.make_roll(
        model.policy,
        environment,
        c.eval.temperature,
        sharding.local_then_shared(arrays.mesh),
        c.rollout.num_rows or rollout.usual_rows(platform),
    )
    whole = sharding.replicated(arrays.mesh)
    given = source.tables, keys, edited.task
    tables, keys, task = jax.tree.map(lambda x: as_abstract(x, whole), given)
    return roll.trace((tables, train_step.all_params(arrays.state)), (keys, task))


def as_abstract(x: Any, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
    """Return an array's shape, dtype and sharding."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)


def _traced(
    c: Config,
    model: Backbone,
    source: World,
    mesh: Mesh,
    shardings: TrainState,
    state: TrainState,
    tables: Tables,
    batch: Batch | None = None,
) -> TracedStep:
    """Return the programs of a step before they are lowered.

    Args:
      c: the config.
      model: the model that is trained.
      source: the world that tasks are drawn from.
      mesh: the devices.
      shardings: those of the state.
      state: the state, which the update will donate; it may be abstract.
      tables: the tables of the world; they may be abstract.
      batch: an abstract batch, if batches are not made here.
    """
    local, platform = sharding.local(mesh), mesh.devices.flat[0].platform
    step = train_step.make_step(
        build.curriculum(c, source.environment, root_key(c, model), local),
        build.algorithm(c, model.policy, source.environment, local, platform),
        c.optim.optimizer(c.num_updates),
        c.num_sampled_tasks,
        c.train.num_micro_batches,
        c.train.num_epochs,
        c.train.num_minibatches,
        _num_buckets(c, mesh),
        _widths(c),
        optim.untrained(c.optim.train_embedding),
        sharding.divide(mesh, {**shardings.frozen, **shardings.params}),
        _view(c, source),
    )
    rows, whole = sharding.batch_sharding(mesh), sharding.replicated(mesh)
    outputs = shardings, whole
    update = jax.jit(step.update, donate_argnums=0, out_shardings=outputs)
    if batch is not None:
        return TracedStep(
            None, update.trace(state, tables, train_step.Made(batch=batch))
        )
    outputs = train_step.Made._make([rows, rows, whole])
    make = fast_compile.jit(step.make, platform, out_shardings=outputs).trace(
        state, tables
    )
    tasks, batch, about = make.out_info
    tasks, batch = jax.tree.map(lambda x: as_abstract(x, rows), (tasks, batch))
    made = train_step.Made(
        tasks, batch, jax.tree.map(lambda x: as_abstract(x, whole), about)
    )
    return TracedStep(make, update.trace(state, tables, made))


def _reference(c: Config, model: Backbone) -> Backbone | None:
    """Return the model that a KL penalty compares with, if it is another one."""
    if c.algorithm.is_reinforcement and c.surrogate.kl:
        return backbones.reference(c, model)
    return None


def _widths(c: Config) -> list[int]:
    """Return the numbers of columns that steps are compiled for, besides all columns.

    Rows that are packed are full.
    """
    if c.algorithm.num_rows:
        return []
    return [c.num_columns * eighths // 8 for eighths in WIDTHS]


def _num_buckets(c: Config, mesh: Mesh) -> int:
    """Return the number of length buckets that a device divides a micro-batch into.

    Buckets save padding. On a CPU, the time per token is the same for two rows as for
    eight; on other devices a bucket has at least 16,384 tokens, so that the device has
    enough to do at once (not measured).
    """
    if mesh.devices.flat[0].platform == "cpu":
        return MAX_BUCKETS
    num_parts = sharding.num_shards(mesh)
    num_parts *= c.train.num_minibatches * c.train.num_micro_batches
    num_tokens = c.num_rows * c.num_columns // num_parts
    return max(x for x in (1, 2, MAX_BUCKETS) if x == 1 or num_tokens >= x * 16_384)


def _view(c: Config, source: World) -> train_step.View:
    """Return the function that turns parameters into those that the loss uses."""
    free: tuple[Any, ...] = ()
    if c.train.shuffle_vectors and source.fixed_tokens:
        texts = lexicons.token_texts(source.tables.lexicon)
        free = embedding_shuffle.free(texts, source.fixed_tokens())

    def view(params: Params, key: jax.Array) -> Params:
        if free:
            params = embedding_shuffle.shuffle(params, key, *free)
        return params

    return view
