"""Evaluate a policy under `config.eval`, for `launch.train` and `launch.evaluate`."""

import json
from pathlib import Path

import jax
from jax.sharding import Mesh

from launch.common import (
    build,
    cached,
    config,
    errors,
    lineage,
    progress,
    runs,
    scenarios,
)
from launch.common.config import Config
from launch.common.model_loading import Backbone
from openagent_jax import checkpoint, perturb, report, sharding
from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.evaluation import (
    bounds,
    episodes,
    evaluate,
    simple_agents,
    unfinished,
)
from openagent_jax.types import Metrics, Params, undivided


class Scorer:
    """Evaluates parameters on the tasks of `config.eval`. It compiles once."""

    def __init__(
        self,
        c: Config,
        model: Backbone,
        train_seed: int | None,
        default: str = "suite",
        mesh: Mesh | None = None,
    ):
        """
        Args:
          c: the config.
          model: the model whose parameters are evaluated; its `trained_on` decides
            what the report claims.
          train_seed: the seed of the run that trained it; None for a backbone.
          default: what "default" stands for in `eval.scenarios`; see `draw.expand`.
          mesh: the devices that share the episodes; if None, only the first is used.
        """
        self._train_seed = train_seed
        self._trained_on = model.trained_on
        self._claims = lineage.claims(c, model.trained_on)
        self._c = c
        self.world = build.world(c, model, c.eval_domain)
        with errors.blame("eval.split"):  # a log may have no task of this split
            self.world.check(c.eval.split)
        self._num_tasks = draw.num_tasks(
            self.world.environment, self.world.tables, c.eval.split, c.eval.num_tasks
        )
        num_episodes = self._num_tasks * c.eval.repeats
        self._batch_size = min(c.eval.batch_size, num_episodes)
        if mesh is not None:  # more episodes than asked for are left out of the report
            self._batch_size = sharding.padded(mesh, self._batch_size)
        self._refused = None  # what the counting agent has learned
        self._simple = None  # what simple agents solve
        environment = self.world.environment
        self._scenarios, self._about = scenarios.choose(
            environment, c.eval.scenarios, default, registry.left_out(c.suite)
        )
        self._entries = perturb.entries(environment, self._scenarios)
        drawn = scenarios.Drawn(
            self._scenarios,
            c.eval.split,
            c.eval.seed,
            self._num_tasks,
            c.eval.strength,
            c.eval.repeats,
        )
        changed = scenarios.changed_by_compositions(self.world, drawn, self._batch_size)
        scenarios.check_compositions(self._entries, changed, f"the tasks of {c.suite}")
        local = undivided
        if mesh is not None:
            local = sharding.local_then_shared(mesh)
        self._play = evaluate.make_player(
            model.policy,
            self.world,
            self._scenarios,
            self._batch_size,
            c.eval.split,
            c.eval.temperature,
            record=c.eval.keep > 0,
            repeats=c.eval.repeats,
            local=local,
            num_rows=c.rollout.num_rows,
        )

    def __call__(self, params: Params, step: int, workdir: Path | None) -> dict:
        """Return the report of the parameters of a step.

        Args:
          params: parameters of the policy.
          step: the step that they are from.
          workdir: where episodes are saved. None saves none and shows no progress, as
            in all processes but the first.
        """
        c, world = self._c.eval, self.world
        keeper = None
        if workdir and c.keep:
            folder = report_file(workdir, step).parent
            keeper = episodes.Keeper(
                world, folder, c.keep, c.seed, c.repeats, c.keep_tokens
            )
        if self._refused is None:
            self._refused = bounds.fit(world)
        num = self._num_tasks * c.repeats  # episodes of a scenario
        total = num * (1 + len(self._scenarios))
        earlier = self._unfinished(params, step, workdir)
        with progress.episodes(total, disable=workdir is None) as bar:

            def keep(name: str, start: int, played: evaluate.Played) -> None:
                if keeper:
                    keeper(name, start, played)
                bar.update(min(self._batch_size, num - start))

            def load(name: str) -> evaluate.Played | None:
                if not earlier or not (stored := earlier.load(name)):
                    return None
                played, lines = stored
                if keeper:
                    keeper.restore(name, lines)
                bar.initial += num  # which do not count for the remaining time
                bar.update(num)
                return played

            def save(name: str, played: evaluate.Played) -> None:
                if earlier:
                    earlier.save(name, played, keeper.lines(name) if keeper else [])

            scored = evaluate.evaluate(
                self._play,
                world,
                params,
                self._scenarios,
                seed=c.seed,
                num_tasks=self._num_tasks,
                batch_size=self._batch_size,
                strength=c.strength,
                repeats=c.repeats,
                refused=self._refused,
                keep=keep,
                load=load,
                save=save,
            )
        if keeper:
            keeper.write(num)
        if c.simple_agents and self._simple is None:
            self._simple = simple_agents.bounds(
                world,
                self._scenarios,
                split=c.split,
                seed=c.seed,
                num_tasks=self._num_tasks,
                strength=c.strength,
                repeats=c.repeats,
            )
        scored.bounds.update(self._simple or {})
        return {
            "suite": self._c.suite,
            "policy": self._c.name,
            "checkpoint_step": step,
            **({} if self._train_seed is None else {"train_seed": self._train_seed}),
            "seed": c.seed,
            "num_tasks": self._num_tasks,
            **({"repeats": c.repeats} if c.repeats > 1 else {}),
            "split": c.split,
            "temperature": c.temperature,
            "grading_version": evaluate.GRADING_VERSION,
            **({"log": world.summary} if world.summary else {}),
            **self._about,
            lineage.KEY: [*self._trained_on],
            **evaluate.results(
                self._entries, scored, c.strength, self._claims, c.repeats
            ),
        }

    def _unfinished(
        self, params: Params, step: int, workdir: Path | None
    ) -> unfinished.Unfinished | None:
        """Return what an evaluation that was stopped has played.

        None if nothing is to be stored. Several processes would have to agree on what
        is there, so they always play everything.
        """
        if workdir is None or jax.process_count() > 1:
            return None
        played = {
            "code": cached.code_digest(),
            "platform": jax.default_backend(),
            "config": config.config_hash(self._c),
            "grading_version": evaluate.GRADING_VERSION,
            "params": checkpoint.digest(params),
            "scenarios": self._scenarios,
            "world": runs.world_digest(self.world),
        }
        folder = report_file(workdir, step).parent
        return unfinished.Unfinished(folder, json.dumps(played))


def report_file(workdir: Path, step: int) -> Path:
    """Return the path of a step's report. If the file exists, it is complete.

    >>> report_file(Path("runs/sft"), 100).as_posix()
    'runs/sft/eval/100/report.json'
    """
    return workdir / "eval" / str(step) / "report.json"


def write_report(workdir: Path, scores: dict) -> None:
    """Write a report as JSON, Markdown and HTML; what led to it is not kept."""
    folder = report_file(workdir, scores["checkpoint_step"]).parent
    report.write(folder, scores)
    unfinished.clear(folder)


def print_report(workdir: Path, step: int) -> None:
    """Print the report of a step."""
    path = report_file(workdir, step)
    made = report.load(path)
    print(report.table(made))
    if groups := report.by_group_table(made):
        print(f"\n{groups}\n")
    if domains := report.by_domain_table(made):
        print(f"\n{domains}\n")
    if repeated := report.repeats_table(made):
        print(f"\n{repeated}\n")
    if "cost" in made:
        print(f"cost: {report.spent(made['cost'])}")
    print(f"report: {path.parent}")


def scalars(scores: dict) -> Metrics:
    """Return a report as flat metrics, which can be plotted as curves."""
    flat, names = {}, [row["scenario"] for row in scores["rows"]]
    for row in report.on_solvable(scores)["rows"]:
        clean, name = row["scenario"] == draw.CLEAN, row["scenario"]
        if names.count(name) > 1:  # at several strengths
            name = f"{name}@{row['strength']:g}"
        prefix = "eval" if clean else f"eval/{row['tier']}/{name}"
        if row["success"]["mean"] is not None:
            flat[f"{prefix}/success"] = row["success"]["mean"]
        for name in ("refusal_rate", "false_refusal_rate", "tool_error_rate"):
            if row[name] is not None:
                flat[f"{prefix}/{name}"] = row[name]
    for name, (_, clean, perturbed) in report.by_domain(scores).items():
        for key, success in (("clean", clean), ("perturbed", perturbed)):
            if success is not None:
                flat[f"eval/domain/{name}/{key}"] = success["mean"]
    return flat
