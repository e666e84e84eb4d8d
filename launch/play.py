"""Play an episode yourself, in the terminal: the quickest way to understand a scenario.

    python -m launch.play                               a clean task of poi
    python -m launch.play --scenario=semantic_trap      tool names that mislead
    python -m launch.play --domain=medical --scenario=unsolvable --hints
    python -m launch.play --domain=my_tools.json        a domain of your own

You see what an agent sees, and call tools by typing, for example
`opening_hour place=Oak Bay`; Tab completes. At the end of an episode you see whether
it was solved, what was perturbed, and what the oracle would have done. docs/play.md
shows a session. Without a terminal, lines are read from standard input.
"""

import os
import sys
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(Path(__file__).parents[1] / "configs/base.py"),
    "The sizes of an episode, and the domain.",
    lock_config=True,
)
DOMAIN = flags.DEFINE_string("domain", None, "Domain: a name, a file, or a log.")
SCENARIO = flags.DEFINE_string(
    "scenario", "clean", "Perturbation, or a composition such as tool_order+rule_shift."
)
STRENGTH = flags.DEFINE_float("strength", 1.0, "Strength of the perturbation.", 0, 1)
SEED = flags.DEFINE_integer("seed", 0, "Seed of the tasks.", 0)
SPLIT = flags.DEFINE_enum("split", "test", ["train", "test"], "Split of the tasks.")
HINTS = flags.DEFINE_bool("hints", False, "Say at the start what is perturbed.")
NUM_TASKS = 10_000  # more than anyone plays
# Most of the start is compilation, and one episode needs no fast program.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def main() -> None:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", QUICK)
    from rich.console import Console

    from launch.common import (
        agents,
        compile_cache,
        config,
        errors,
        game,
        scenarios,
        terminal,
    )
    from openagent_jax import perturb
    from openagent_jax.curriculum import draw
    from openagent_jax.environments import registry
    from openagent_jax.suites import tasks

    reader = terminal.reader()
    c = config.resolve(CONFIG.value)
    domain, name = DOMAIN.value or c.eval_domain, SCENARIO.value
    with errors.blame("--domain" if DOMAIN.value else "sandbox.domain"):
        registry.check_name(domain)
        spec = registry.spec(domain)
        spec.check(domain, c.sandbox, c.max_sizes)
    if name != draw.CLEAN:
        scenarios.check_names("--scenario", [name], spec)
        with errors.blame("--scenario"):
            perturb.entry(spec, name)
    settings = {
        "eval.domain": domain,
        "eval.scenarios": () if name == draw.CLEAN else (name,),
        "eval.strength": STRENGTH.value,
        "eval.seed": SEED.value,
        "eval.split": SPLIT.value,
        "eval.num_tasks": NUM_TASKS,
        "eval.repeats": 1,
    }
    compile_cache.use(c.compile_cache)
    console = Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())
    with console.status("Making the world; the first start takes longest ..."):
        suite = agents.suite(c.replace(settings))
    assert isinstance(suite, tasks.Suite)  # of a domain or a log
    game.Game(suite, name, reader, console, HINTS.value).run()


if __name__ == "__main__":
    cli.run(main)
