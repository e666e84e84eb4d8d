"""Batches that are made outside of the training step: stored, made ahead, or mixed."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from launch.common import build, compiled_step, errors, placement
from launch.common.config import Config
from launch.common.errors import UsageError
from launch.common.model_loading import Backbone
from openagent_jax import fast_compile, sharding, train_step
from openagent_jax.curriculum import ahead
from openagent_jax.data import lookups
from openagent_jax.data.lookups import Lookups
from openagent_jax.domains import domain_file
from openagent_jax.environments.tools.worlds import random_words
from openagent_jax.environments.world import World
from openagent_jax.text import style
from openagent_jax.types import Batch, Tables, TrainState


def stored(c: Config, source: World, devices: Sequence[Any] | None = None):
    """Return batches of the stored dataset; None if `data.path` is empty.

    Raises:
      UsageError: there is no dataset, or its tokenizer or sizes are different.
    """
    if not c.data.path:
        return None
    with errors.needs_extra("data.path", "data"):
        from openagent_jax.data import demonstrations, feed, store
    rows, columns, count = c.num_rows, c.algorithm.num_tokens, jax.process_count()
    mesh = placement.mesh(c, devices)
    with errors.blame("data.path"):
        sharding.check_processes(mesh, count)
        try:
            data = store.read(c.data.path)
        except FileNotFoundError as error:
            raise UsageError(f"data.path: {error}") from None
        store.check(data, demonstrations.fingerprints(source.tables.lexicon), columns)
        batches = feed.batches(
            data.splits["train"],
            c.seed,
            rows // count,
            columns,
            packed=c.algorithm.num_rows > 0,
            process=(jax.process_index(), count),
            num_threads=c.data.num_threads,
        )
    shape, layout = (rows, columns), sharding.batch_sharding(mesh)
    return feed.Feed(batches, shape, layout, data.metadata)


def of_run(c: Config, model: Backbone, source: World) -> tuple[World, Any]:
    """Return the batches of a run, if they are made outside of the training step.

    They are read from a dataset (`data.path`), made ahead (`train.num_ahead`), or each
    is drawn at random from `sandbox.domain`, `train.other_domains` or the exercises.

    Args:
      c: the config.
      model: the model that is trained.
      source: the world of `sandbox.domain`.

    Returns:
      The world, in which words that another world needs keep their vectors; and the
      batches, or None.

    Raises:
      UsageError: a domain, or the dataset, cannot be used.
    """
    exercise = c.train.lookup_share
    if not c.train.other_domains and not c.train.num_ahead and not exercise:
        return source, stored(c, source)
    clean = c.replace({"paft.alpha": 0.0})
    others = [build.world(c, model, name) for name in c.train.other_domains]
    makes = [maker(c, model, source), *(maker(clean, model, one) for one in others)]
    share = c.train.other_share if others else 0.0
    shares = [1 - share, *(share / len(others) for _ in others)]
    found = [one.fixed_tokens for one in (source, *others) if one.fixed_tokens]
    if exercise:
        drawn = exercises(c, model)
        found.append(drawn.fixed_tokens)
        makes.append(partial(_exercises_of_step, c, drawn))
        shares = [*((1 - exercise) * x for x in shares), exercise]
    make = ahead.in_turn(makes, shares, (c.seed, model.stage))
    layout = sharding.batch_sharding(placement.mesh(c))
    abstract = jax.tree.map(lambda x: compiled_step.as_abstract(x, layout), makes[0](0))
    put = partial(jax.device_put, device=layout)
    source = source._replace(fixed_tokens=partial(_union, found))
    return source, ahead.Ahead(make, c.train.num_ahead, put, abstract)


def exercises(c: Config, model: Backbone) -> Lookups:
    """Return the exercises of a run.

    Raises:
      UsageError: the model does not read the compact style.
    """
    if model.template:
        raise UsageError(
            f"train.lookup_share={c.train.lookup_share} trains on texts in the compact "
            f"style, but {model.folder} has a chat template; set it to 0.0"
        )
    avoid = {*domain_file.evaluated_words(), style.CODE}
    words = random_words.random_words(model.tokenizer, avoid)
    ends = ("", " ")
    spelled = [model.tokenizer.encode_batch([x + end for x in words]) for end in ends]
    common = [x for x, *y in zip(words, *spelled, strict=True) if max(map(len, y)) == 1]
    pools = lookups.Pools(words, common, random_words.formatted(words))
    return lookups.Lookups(model.tokenizer, pools, (c.seed, model.stage))


def _exercises_of_step(c: Config, made: Lookups, step: int) -> Batch:
    ramp = max(c.train.lookup_steps, 1)
    difficulty = min((step + 1) / ramp, 1.0)
    return made.batch(step, c.num_rows, c.num_columns, difficulty)


def _union(sets: Sequence[Callable[[], set[int]]]) -> set[int]:
    return set().union(*(found() for found in sets))


def maker(c: Config, model: Backbone, source: World) -> Callable[[int], Batch]:
    """Return the function that makes the batch of a step of SFT, by its number.

    With `train.num_ahead`, CPU cores make it, even if another device trains.
    """
    mesh, root = placement.mesh(c), compiled_step.root_key(c, model)
    if c.train.num_ahead:
        mesh = sharding.make_mesh(devices=jax.local_devices(backend="cpu")[:1])
    local, layout = sharding.local(mesh), sharding.batch_sharding(mesh)
    drawn = build.curriculum(c, source.environment, root, local)
    learner = build.algorithm(c, model.policy, source.environment, local)
    make = train_step.maker(drawn, learner, c.num_sampled_tasks)
    tables, root = jax.device_put((source.tables, root), sharding.replicated(mesh))

    def batch(tables: Tables, root: jax.Array, step: jax.Array) -> Batch | None:
        state = TrainState(step, {}, (), root, {}, drawn.init())
        return make(state, tables).batch

    platform = mesh.devices.flat[0].platform
    made = fast_compile.jit(batch, platform, out_shardings=layout)
    step = jax.device_put(jnp.int32(0), sharding.replicated(mesh))
    made = made.lower(tables, root, step).compile()
    return lambda step: made(tables, root, np.int32(step))
