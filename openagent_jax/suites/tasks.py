"""The tasks of an environment, for agents that are reached by messages."""

import functools
import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from openagent_jax import expert, hashing, perturb
from openagent_jax.agents.cost import Expected, expected
from openagent_jax.agents.dialogue import Player
from openagent_jax.agents.play import Episode
from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.environments.world import World
from openagent_jax.evaluation import bounds, simple_agents
from openagent_jax.types import Task

Facts = dict[str, Any]  # what is known of a task before it is played
BLOCK = 64  # number of tasks that are drawn at once


@dataclass(frozen=True)
class Suite:
    """Tasks, clean and perturbed, as `evaluate` draws them with the same settings."""

    world: World  # its lexicon has the compact style
    scenarios: tuple[str, ...]  # names of perturbations, without the clean scenario
    seed: int
    num_tasks: int  # number of tasks of each scenario
    strength: float
    split: str
    repeats: int = 1  # episodes of each task; see `draw`
    scenario_set: Mapping[str, Any] = field(default_factory=dict)  # see `about`
    with_simple_agents: bool = False  # whether `bounds` has them too

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the scenarios, the clean one first."""
        return (draw.CLEAN, *self.scenarios)

    @property
    def num_episodes(self) -> int:
        """The number of episodes of each scenario."""
        return self.num_tasks * self.repeats

    @property
    def entries(self) -> dict[str, perturb.Entry]:
        """The perturbations of the scenarios, by name."""
        return perturb.entries(self.world.environment, self.scenarios)

    def bounds(self) -> dict[str, dict[str, np.ndarray]]:
        """Return which tasks each scripted agent solves, by agent and scenario."""
        found, players = {}, [bounds.successes]
        if self.with_simple_agents:
            players.append(simple_agents.bounds)
        for play in players:
            found |= play(
                self.world,
                self.scenarios,
                split=self.split,
                seed=self.seed,
                num_tasks=self.num_tasks,
                strength=self.strength,
                repeats=self.repeats,
            )
        return found

    def domains(self) -> np.ndarray | None:
        """Return the name of the domain of each task of a mixture."""
        if not self.world.domains:
            return None
        num = range(self.num_episodes)
        drawn = self._drawn({(name, n) for name in self.scenarios for n in num})
        return np.array(
            [self.world.domains[facts["domain"]] for _, _, _, facts, _ in drawn]
        )

    def episodes(self, done: Collection[tuple[str, int]] = ()) -> Iterator[Episode]:
        """Yield the episodes that are not done, in order, drawing tasks as needed.

        Args:
          done: `(scenario, index)` of the episodes to leave out.
        """
        for drawn in self._drawn(done):
            yield self._episode(*drawn)

    def survey(self) -> dict[tuple[str, int], Expected]:
        """Return what each episode needs, by `(scenario, index)`."""
        transcriber = self.world.transcriber
        return {
            (name, n): expected(
                facts["changed"].item(),
                transcriber.tools(task),
                transcriber.opening(task),
                plan,
            )
            for name, n, task, facts, plan in self._drawn(())
        }

    def episode(self, name: str, n: int) -> Episode:
        """Return one episode; this compiles less than `episodes` does."""
        drawn = jax.device_get(self._draw_one(self.names.index(name), n))
        return self._episode(name, n, *self._host(drawn))

    def _episode(
        self, name: str, n: int, task: Task, facts: Facts, plan: Any
    ) -> Episode:
        known = {
            "task_key": facts["task_key"].tolist(),
            "task": facts["task"].item(),
            "phrasing": facts["phrasing"].item(),
            "changed": facts["changed"].item(),
            "unsolvable": self.world.environment.reasons[int(facts["reason"])],
            "plan": plan,
        }
        return Episode(name, n, partial(self._player.begin, task), known)

    def _drawn(self, done: Collection[tuple[str, int]]) -> Iterator[tuple]:
        """Yield `(scenario, index, task, facts, plan)` of the episodes not done."""
        for i, name in enumerate(self.names):
            for start in range(0, self.num_episodes, BLOCK):
                stop = min(start + BLOCK, self.num_episodes)
                left = [n for n in range(start, stop) if (name, n) not in done]
                if not left:
                    continue
                drawn = jax.device_get(self._draw(i, start))
                for n in left:
                    row = jax.tree.map(lambda x, row=n - start: x[row], drawn)
                    yield name, n, *self._host(row)

    def _host(self, drawn: Any) -> tuple[Task, Facts, list[dict[str, Any]]]:
        """Return a task that was drawn, its facts, and the plan of the expert."""
        task, facts, (actions, valid) = drawn
        return (
            task,
            facts,
            transcript.plan(self.world.transcriber, task, actions, valid),
        )

    @functools.cached_property
    def _player(self) -> Player:
        return Player(self.world)

    @functools.cached_property
    def _draw(self) -> Callable[[int, int], tuple[Any, Facts, Any]]:
        """A compiled function that draws a block of tasks; see `_make_draw`."""
        return self._make_draw(BLOCK)

    @functools.cached_property
    def _draw_one(self) -> Callable[[int, int], tuple[Any, Facts, Any]]:
        """As `_draw`, but one task, without an axis."""
        return self._make_draw(None)

    def _make_draw(self, num: int | None) -> Callable[[int, int], tuple]:
        """Return a compiled function that draws tasks.

        It is `(scenario, start) -> (tasks, facts, (actions, valid))`, where the actions
        are those of the expert.
        """
        environment = self.world.environment
        draw_task = draw.make_draw(environment, self.scenarios, self.split)

        @jax.jit
        def block(tables, scenario, start):
            root = jax.random.key(self.seed)
            size = num or 1
            keys = draw.task_keys(root, start, size, self.repeats)
            index = draw.indices(
                environment, tables, self.split, root, start, size, self.repeats
            )

            def of_key(key, edit_key, index):
                strength = jnp.float32(self.strength)
                task, _, changed = draw_task(
                    tables, key, edit_key, strength, scenario, index
                )
                episode = expert.demonstrate(environment, tables, task)
                facts = {
                    "task_key": jax.random.key_data(key),
                    "task": hashing.fingerprint_of_tree(task),
                    "phrasing": environment.phrasing(tables, task),
                    "changed": changed,
                    "reason": environment.certificate(tables, task).reason,
                }
                if self.world.domains:
                    facts["domain"] = environment.domain(tables, task)
                return task, facts, (episode.action, episode.valid)

            drawn = keys, draw.edit_keys(keys, start, self.repeats), index
            if num is None:
                return of_key(*jax.tree.map(lambda x: x[0], drawn))
            return jax.vmap(of_key)(*drawn)

        return lambda scenario, start: block(
            self.world.tables, jnp.int32(scenario), jnp.int32(start)
        )

    def about(self) -> dict[str, Any]:
        """Return what a report says of the choice of scenarios."""
        return dict(self.scenario_set)

    def digest(self) -> str:
        """Return a digest of all texts and of the first block of clean tasks."""
        found = hashlib.sha256()
        tasks, facts, _ = jax.device_get(self._draw(0, 0))
        for leaf in jax.tree.leaves((tasks, facts)):
            found.update(leaf.tobytes())
        texts = self.world.tables.lexicon.texts
        for leaf in (texts.flat, texts.length):
            found.update(np.asarray(leaf).tobytes())
        return found.hexdigest()[:16]
