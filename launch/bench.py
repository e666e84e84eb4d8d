"""Speed, each figure beside its rival in the same run.

    python -m launch.bench [--config=configs/base.py]

sandbox   env steps/s of a random policy with symbolic actions: one jitted scan
rollout   tokens/s of whole episodes, and of the same model over the same tokens with
          the environment left out (prefill, decode, prefill of results, by turns)
episodes  a second, sampled in groups of a task as GRPO does, and those of the same
          policy in a Python loop over the same tasks (launch/python_loop.py)
train     the whole step with its data, and what a run spends outside of it: on logs,
          checkpoints and Python
load      seconds until the weights are on the devices; of a GGUF file, those until it
          is a folder too
decode    greedy tokens/s behind a short prompt, and those of `generate` of transformers
          and torch, which must be installed, over the same weights
agents    what the way to an agent elsewhere adds to its own time, in percent, eight
          episodes at once; and what many episodes add to the peak of memory
serve     tokens/s of clients of launch.serve, and of its decoder in a bare loop, by the
          length of replies

--parts=sandbox,rollout measures these alone. The peak of memory is that of the process
until then, so a part alone has its own.
"""

import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", "configs/base.py", "What to measure.", lock_config=True
)
ROWS = flags.DEFINE_integer(
    "rows", 64, "Episodes of a rollout, and requests to a server."
)
GROUP = flags.DEFINE_integer("group", 8, "Episodes of a task, where they are sampled.")
ENVS = flags.DEFINE_integer("envs", 4096, "Worlds of the sandbox scan.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Runs of which the median is taken.")
PARTS = (
    "sandbox",
    "rollout",
    "episodes",
    "train",
    "load",
    "decode",
    "agents",
    "serve",
)
ONLY = flags.DEFINE_list("parts", [*PARTS[:4]], f"Some of {', '.join(PARTS)}.")
JSON = flags.DEFINE_string("json", None, "File for the figures.")


def main() -> None:
    import jax

    from launch import backbones, bench_pretrained, build, programs, settings

    c = CONFIG.value
    if unknown := set(ONLY.value) - set(PARTS):
        raise cli.BadUse(f'--parts: "{min(unknown)}" is not one of {", ".join(PARTS)}')
    settings.check(c)
    programs.keep(c.compile_cache)
    model = backbones.backbone(c)
    source = build.task_worlds(c, model, c.sandbox.domain)
    device = jax.devices()[0].device_kind
    where = f"{jax.device_count()} x {device}, {os.cpu_count()} cores"
    print(f"{where}, jax {jax.__version__}")
    measure = {
        "sandbox": lambda: sandbox(source, c.sandbox.max_turns),
        "rollout": lambda: rollouts(c, model, source),
        "episodes": lambda: episodes(c, model, source),
        "train": lambda: updates(c, model, source),
        "load": lambda: bench_pretrained.load(c, model, _medians),
        "decode": lambda: bench_pretrained.decode(c, model, _medians),
        "agents": lambda: agents(c),
        "serve": lambda: serve(c, model),
    }
    figures = {}
    for name in PARTS:
        if name in ONLY.value:
            values = figures[name] = measure[name]() | {"peak_gb": _peak_memory()}
            said = ", ".join(f"{k} {v:,.4g}" for k, v in values.items())
            print(f"{name}  {said}", flush=True)
    if JSON.value:
        with open(JSON.value, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=2)


def sandbox(source, max_turns: int) -> dict[str, float]:
    """A random policy that calls documented tools with arguments of their types."""
    import jax
    import jax.numpy as jnp

    from openagent_jax import types
    from openagent_jax.sandbox import environment

    lexicon = source.lexicon

    def act(key, task):
        num_args = task.tools.arg_low.shape[1]
        lots = jax.random.uniform(key, (num_args + 1,))
        visible = task.tools.visible
        place = (lots[-1] * jnp.sum(visible)).astype(jnp.int32)
        tool = jnp.searchsorted(jnp.cumsum(visible), place + 1).astype(jnp.int32)
        low, high = task.tools.arg_low[tool], task.tools.arg_high[tool]
        args = low + (lots[:-1] * (high - low)).astype(jnp.int32)
        source_row = task.tools.code_from[tool]
        code = jnp.where(source_row >= 0, task.tools.code[source_row], -1)
        call = types.ToolCall(tool, jnp.where(high > low, args, -1), code)
        return types.Action(jnp.int32(types.CALL), call, jnp.int32(-1))

    @jax.jit
    def play(keys, tasks):
        def one(key, task):
            def turn(state, t):
                action = act(jax.random.fold_in(key, t), task)
                state, timestep = environment.step(
                    lexicon, task, state, action, max_turns
                )
                return state, timestep.reward

            state = environment.reset(lexicon, task)
            return jax.lax.scan(turn, state, jnp.arange(max_turns))

        return jax.vmap(one)(keys, tasks)

    keys = jax.random.split(jax.random.key(0), ENVS.value)
    tasks = jax.jit(jax.vmap(lambda key: source.sample(key, "test")))(keys)
    seconds = _median(lambda: play(keys, tasks))
    return {"env_steps_per_s": ENVS.value * max_turns / seconds}


def rollouts(c, model, source) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    from launch import settings
    from openagent_jax import rollout, sampling

    sizes, rows = settings.sizes(c), ROWS.value
    policy, lexicon = model.policy, source.lexicon
    params = model.init(jax.random.key(c.seed))
    keys = jax.random.split(jax.random.key(1), rows)
    tasks = jax.jit(jax.vmap(lambda key: source.sample(key, "test")))(keys)

    @jax.jit
    def whole(params, tasks):
        return rollout.rollout(policy, lexicon, params, keys, tasks, sizes)

    @jax.jit
    def bare(params, read_steps, decode_steps):
        """As many tokens through the same model and cache, and nothing else."""

        def read(cache, logits, num, chunk):
            def piece(loop):
                cache, (i, logits) = loop
                likely = sampling.greedy(logits)[0]
                tokens = jnp.broadcast_to(likely[:, None], (rows, chunk))
                new = jnp.full(rows, jnp.clip(num - i, 0, chunk))
                hidden, cache = policy.extend(params, cache, tokens, new)
                return cache, (i + chunk, policy.head(params, hidden[:, -1]))

            def goes_on(loop):
                cache, (i, _) = loop
                room = sum(cache.block_sizes) - cache.num_used[0]
                return (i < num) & (jnp.minimum(num - i, chunk) <= room)

            def loop(*carry):
                return jax.lax.while_loop(goes_on, piece, carry)

            cache, (_, logits) = rollout.in_blocks(loop, cache, (jnp.int32(0), logits))
            return cache, logits

        def turn(carry):
            t, cache, logits = carry

            def decode(cache, carry):
                num_slots = sum(cache.block_sizes)
                one = jnp.ones(rows, jnp.int32)

                def token(loop):
                    i, cache, logits = loop
                    tokens = sampling.greedy(logits)[0][:, None]
                    hidden, cache = policy.extend(params, cache, tokens, one)
                    return i + 1, cache, policy.head(params, hidden[:, 0])

                def goes_on(loop):
                    return (loop[0] < decode_steps[t]) & (
                        loop[1].num_used[0] < num_slots
                    )

                i, logits = carry
                i, cache, logits = jax.lax.while_loop(
                    goes_on, token, (i, cache, logits)
                )
                return cache, (i, logits)

            cache, (_, logits) = rollout.in_blocks(
                decode, cache, (jnp.int32(0), logits)
            )
            return t + 1, *read(cache, logits, read_steps[t + 1], rollout.RESULT_CHUNK)

        cache = policy.init_cache(rows, [sizes.prompt_tokens])
        logits = jnp.zeros((rows, lexicon.vocab_size))
        cache, logits = read(cache, logits, read_steps[0], rollout.PROMPT_CHUNK)
        start = rollout.share(policy, cache, rows, sizes), logits
        num_turns = jnp.sum(decode_steps > 0)
        return jax.lax.while_loop(
            lambda x: x[0] < num_turns, turn, (jnp.int32(0), *start)
        )

    played = whole(params, tasks)
    steps = _read_steps(played), played.decode_steps
    num_tokens = float(jnp.sum(played.valid))
    ours, rival = _medians(lambda: whole(params, tasks), lambda: bare(params, *steps))
    return {
        "tokens_per_s": num_tokens / ours,
        "bare_tokens_per_s": num_tokens / rival,
        "ratio": rival / ours,
        "episodes_per_s": rows / ours,
    }


def _read_steps(played):
    """Tokens of the longest text read before each action, and after the last."""
    import numpy as np

    longest = np.zeros(played.decode_steps.shape[0] + 1, np.int32)
    for valid, sampled in zip(
        *map(np.asarray, (played.valid, played.sampled)), strict=True
    ):
        said = sampled[valid]
        starts = np.flatnonzero(said & ~np.roll(said, 1))
        ends = np.flatnonzero(said & ~np.roll(said, -1)) + 1
        gaps = np.append(starts, len(said)) - np.insert(ends, 0, 0)
        longest[: len(gaps)] = np.maximum(longest[: len(gaps)], gaps)
    return longest


def episodes(c, model, source) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    from launch import python_loop, settings
    from openagent_jax import rollout

    sizes, rows = settings.sizes(c), ROWS.value
    policy, lexicon = model.policy, source.lexicon
    params = jax.tree.map(jnp.asarray, model.init(jax.random.key(c.seed)))
    key = jax.random.key(1)
    keys = jax.random.split(key, rows)
    draw = jax.jit(jax.vmap(lambda key: source.sample(key, "train")))
    tasks = draw(keys[: rows // GROUP.value])
    sampling = rollout.Sampling(c.algorithm.temperature)

    @jax.jit
    def compiled(params):
        return rollout.rollout(policy, lexicon, params, keys, tasks, sizes, sampling)

    each = jax.device_put(tasks, jax.devices("cpu")[0])
    each = [jax.tree.map(lambda x, i=i: x[i // GROUP.value], each) for i in range(rows)]
    functions = python_loop.environment_functions(lexicon, sizes)
    agent = python_loop.Agent(policy, params, rows, sizes)
    success = {"python": 0.0}

    def loop():
        agent.reset()
        games = [python_loop.Game(functions, task) for task in each]
        python_loop.play(agent, games, sizes, lexicon.end_token, key)
        success["python"] = sum(bool(game.state.success) for game in games) / rows

    ours, rival = _medians(lambda: compiled(params), loop)
    return {
        "per_s": rows / ours,
        "python_loop_per_s": rows / rival,
        "ratio": rival / ours,
        "success": float(jnp.mean(compiled(params).trajectory.state.success)),
        "python_loop_success": success["python"],
    }


def updates(c, model, source) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    from launch import build, settings

    step, state = build.trainer(c, model, source, fed=build.feed(c, source))
    state, metrics = step(state)
    num_tokens = float(metrics["train/num_tokens"])
    sft = c.algorithm.name == "sft"
    num_columns = c.algorithm.num_tokens if sft else c.sandbox.context_tokens
    num_slots = settings.num_rows(c) * num_columns * c.train.num_epochs
    times = []
    for _ in range(REPEATS.value):
        start = time.perf_counter()
        state, metrics = step(state)
        jax.block_until_ready(state)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {
        "step_s": seconds,
        "outside_share": _outside(c, step, state),
        "tokens_per_s": num_tokens / seconds,
        "padding_share": 1 - num_tokens / num_slots,
        "parameters": float(sum(jnp.size(x) for x in jax.tree.leaves(state.params))),
    }


def _outside(c, step, state) -> float:
    """Share of the time of a run that is not spent in its compiled step, from one
    checkpoint to the next. At most: here no step overlaps with what the loop does."""
    import jax

    from launch import build
    from openagent_jax import metrics, train
    from openagent_jax.checkpoint import Checkpoints

    inside, first = [], int(state.step)

    def timed(state):
        start = time.perf_counter()
        made = jax.block_until_ready(step(state))
        inside.append(time.perf_counter() - start)
        return made

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Checkpoints(Path(folder) / "checkpoints")) as checkpoints,
        metrics.Writer(folder) as writer,
    ):
        start = time.perf_counter()
        train.run(
            timed,
            state,
            num_steps=first + c.checkpoint.every,
            writer=writer,
            checkpoints=checkpoints,
            checkpoint_every=c.checkpoint.every,
            meta={},
            log_every=c.train.log_every,
            watch=build.watch(c, print),
        )
        whole = time.perf_counter() - start
    return 1 - sum(inside) / whole


def agents(c) -> dict[str, float]:
    from launch import settings

    with settings.needs_extra("--parts=agents", "agents"):
        import openai  # noqa: F401

        from launch import bench_agents
    return bench_agents.measure(c)


def serve(c, model) -> dict[str, float]:
    from launch import settings

    with settings.needs_extra("--parts=serve", "serve"):
        from launch import bench_serve
    return bench_serve.measure(c, model, ROWS.value, _medians)


def _peak_memory() -> float:
    """GB, of the process, or of the first device where that has its own memory."""
    import resource

    import jax

    stats = jax.devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"] / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024) / 1e9


def _median(run) -> float:
    return _medians(run)[0]


def _medians(*runs) -> list[float]:
    """Median seconds of each, taken in turn so that they share the machine's moods."""
    import jax

    times = [[] for _ in runs]
    for repeat in range(REPEATS.value + 1):
        for run, kept in zip(runs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run())
            if repeat:  # the first run compiles
                kept.append(time.perf_counter() - start)
    return [statistics.median(kept) for kept in times]


if __name__ == "__main__":
    cli.run(main)
