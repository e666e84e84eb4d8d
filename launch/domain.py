"""Make a domain from your own tools: draft it, check it, show its episodes.

    python -m launch.domain draft tools.json --out=my_tools.json
    python -m launch.domain check my_tools.json
    python -m launch.domain show  my_tools.json --perturbation=semantic_trap
    python -m launch.domain show  poi --perturbation=semantic_trap+runtime_error
    python -m launch.domain show  --workdir=runs/paft
    python -m launch.domain library

`draft` reads an array of tools in OpenAI's format, or the result of MCP's tools/list.
`check` lists all faults, and warns of what will not work under the limits in --config
(default: configs/base.py). `show` prints some sampled goals with their requests, if
the tools have the words for them, and the oracle's episodes, clean and perturbed side
by side; it also takes a builtin domain (`poi`) or a log. docs/own_tools.md is the
tutorial. `library` prints a table of the builtin domains, as in docs/library.md.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags
from ml_collections import config_flags

from launch.common import cli
from openagent_jax import files

if TYPE_CHECKING:
    from openagent_jax.environments.world import Settings

CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(Path(__file__).parents[1] / "configs/base.py"),
    "Check: the model whose tokenizer counts tokens, and the limits of an episode.",
    lock_config=True,
)
OUT = flags.DEFINE_string("out", None, "Draft: file to write.")
SKIP = flags.DEFINE_list("skip", [], "Draft: names of tools to leave out.")
PERTURBATION = flags.DEFINE_string(
    "perturbation", None, "Show: name of a perturbation."
)
STRENGTH = flags.DEFINE_float(
    "strength", 1.0, "Show: strength of the perturbation.", 0, 1
)
NUM = flags.DEFINE_integer("num", 2, "Show: number of episodes.", 1)
SEED = flags.DEFINE_integer("seed", 0, "Show: seed of the tasks and the requests.", 0)
NUM_REQUESTS = flags.DEFINE_integer(
    "num_requests", 5, "Show: number of sampled goals whose requests are printed.", 0
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "Show: a run whose kept episodes are printed, in place of FILE."
)
WIDTH = 120  # columns of the output if it is not a terminal


def main(command: str, file: str = "") -> None:
    own = {
        "draft": (OUT, SKIP),
        "check": (CONFIG,),
        "show": (CONFIG, PERTURBATION, STRENGTH, NUM, SEED, NUM_REQUESTS, WORKDIR),
        "library": (CONFIG,),
    }
    cli.check_flags(command, own)
    if WORKDIR.value is None:
        if command == "library":
            print_library()
        else:
            {"draft": draft, "check": check, "show": show}[command](file)
        return
    kept(Path(WORKDIR.value))


def draft(file: str) -> None:
    """Write a domain file from a list of tools, and print what is left to do."""
    from openagent_jax.domains import domain_file
    from openagent_jax.domains.domain_spec import DomainError
    from openagent_jax.drafting import drafting, json_format

    out = cli.check_out(OUT.value)
    if out.suffix != ".json":
        raise cli.UsageError(f"--out={out} must end with .json")
    if out.exists():
        raise cli.UsageError(f"--out: {out} exists already; name another file")
    try:
        document = domain_file.read_json(Path(file))
        made = drafting.draft(document, out.stem, SKIP.value)
    except DomainError as error:
        raise _usage_error(file, error.faults) from None
    with files.replacing(out) as part:
        part.write_text(json_format.dumps(made.domain), encoding="utf-8")
    tools, goals, types = (len(made.domain[key]) for key in ("tools", "goals", "types"))
    print(f"{out}: {tools} tools, {types} types, {goals} goals")
    for title, notes in (
        ("Fill in (marked as FILL IN in the file)", made.holes),
        (
            "Review what was guessed (listed under `review`; delete it then)",
            made.review,
        ),
    ):
        if notes:
            print(f"\n{title}:")
            print("\n".join(f"  {note}" for note in notes))
    print(f"\nNext: python -m launch.domain check {out}")


def _usage_error(file: str, faults: Sequence[str]) -> cli.UsageError:
    """Return an error for the faults of a list; print them if there are several."""
    if len(faults) == 1:
        return cli.UsageError(f"{file}: {faults[0]}")
    print("\n".join(f"{file}: {fault}" for fault in faults))
    return cli.UsageError(f"{file}: {len(faults)} faults; correct what is named above")


def check(file: str) -> None:
    """Print all faults of a domain file; if there are none, rehearse it and warn."""
    from launch.common import config
    from openagent_jax.domains import (
        domain_file,
        domain_types,
        lookalikes,
        value_schema,
    )
    from openagent_jax.domains.goals import goal_sampling
    from openagent_jax.environments.logs import logs
    from openagent_jax.environments.tools import make

    c = config.resolve(CONFIG.value)
    if logs.is_log(file):
        raise cli.UsageError(
            f"{file} is a log; check it by python -m launch.logs check"
        )
    limits = make.limits_of(c.sandbox.of(file))
    if domain_file.is_tool_list(file):
        raise cli.UsageError(
            f"{file} is a list of tools, not yet a domain file; make one first: python "
            f"-m launch.domain draft {file} --out=my_tools.json"
        )
    if faults := domain_file.faults(file, limits):
        print("\n".join(f"{file}: {fault}" for fault in faults))
        count = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        raise cli.UsageError(f"{file}: {count}; correct what is named above")
    spec = domain_file.load(file, limits)
    from launch.common import backbones, build, checks, compile_cache, progress, sizing
    from openagent_jax.suites import rehearsal

    num_scenarios = len(rehearsal.SCENARIOS) + len(rehearsal.TRAINED)
    stages = progress.Stages(num_scenarios)
    stages.begin(f"{file} has no faults; tokenizing its texts")
    c = c.replace({"sandbox.domain": file})
    checks.check(c)
    compile_cache.use(c.compile_cache)  # a file that was edited has the same programs
    source = build.world(c, backbones.backbone(c), file)
    sizes = c.sandbox.sizes

    scenarios = {"test": rehearsal.SCENARIOS, "train": rehearsal.TRAINED}

    def began(split: str) -> None:
        num = f"{len(scenarios[split])} scenarios of {rehearsal.NUM_TASKS} tasks"
        stages.begin(f"compiling and playing {num}, {split} split")

    found = rehearsal.rehearse(source, c.seed, scenarios, began, stages.step)
    tested, trained = found["test"], found["train"]
    stages.end()
    num_visible = c.sandbox.num_visible
    warnings = [*lookalikes.warnings(spec), *lookalikes.names_in_descriptions(spec)]
    warnings += [*value_schema.warnings(spec), *domain_types.warnings(spec)]
    num_sampled = make.num_goals(c.sandbox.of(spec.name), spec)
    sampled = goal_sampling.sample_goals(spec, limits, num_sampled)
    played = {int(x) for one in (tested, trained) for x in one["clean"].goal}
    num_played = len(played - {*range(len(spec.goals))})
    of_sampled = f" and {num_played} of {len(sampled)} sampled ones" * bool(sampled)
    warnings += rehearsal.troubles(spec, tested, sizes, limits, num_visible, sampled)
    given = config_flags.get_override_values(flags.FLAGS["config"])
    fixed, raised, made = sizing.fixed(c, given), [], []
    for key, room, tokens, name in rehearsal.rooms(
        tested, trained, sizes, c.algorithm.num_tokens
    ):
        wanted = -(-tokens // 32) * 32  # rounded up
        if key not in fixed:
            made.append(f"{key}={wanted}")
            continue
        raised.append(f"--config.{key}={wanted}")
        warnings.append(f"{key}={room} is too short: {name} has {tokens} tokens")
    longest = {name: int(one.lengths.prompt.max()) for name, one in tested.items()}
    print(
        f"{file}: no faults. {len(spec.tools)} tools, {len(spec.types)} types, "
        f"{len(spec.goals)} goals{of_sampled}; the longest prompt has "
        f"{longest['clean']} tokens, perturbed {max(longest.values())}"
    )
    for title, notes in (("Warnings", warnings), ("To be reviewed", spec.review)):
        if notes:
            print(f"\n{title}:")
            print("\n".join(f"  {note}" for note in notes))
    if made:
        said = "With the default config, evaluation and training raise limits to"
        print(f"\n{said} {', '.join(made)} or more")
    if raised:
        print(f"\nRaise these: {' '.join(raised)}")


def show(file: str) -> None:
    """Print episodes of the oracle, clean and perturbed side by side."""
    import jax
    from rich.console import Console
    from rich.text import Text

    from launch.common import (
        backbones,
        build,
        checks,
        config,
        errors,
        scenarios,
        sizing,
    )
    from openagent_jax import perturb
    from openagent_jax.curriculum import draw
    from openagent_jax.environments import registry
    from openagent_jax.environments.logs import logs
    from openagent_jax.environments.world import names_of
    from openagent_jax.evaluation import transcript

    if len(names := names_of(file)) > 1:
        raise cli.UsageError(
            f"{file} stands for {len(names)} domains; show one, such as {names[0]}"
        )
    c = config.resolve(CONFIG.value).replace(
        {
            "sandbox.domain": file,
            "eval.domain": "",
            # Episodes in nano's compact form can be printed as messages.
            "init_from": "nano",
            "model.chat_template": "",
        }
    )
    name = PERTURBATION.value or draw.CLEAN
    if name != draw.CLEAN:
        spec = registry.spec(file)
        scenarios.check_names("--perturbation", [name], spec)
        with errors.blame("--perturbation"):
            perturb.entry(spec, name)
    checks.check(c)
    if file not in registry.SPECS and not logs.is_log(file):
        print_requests(file, c.sandbox)
    model = backbones.backbone(c)
    given = config_flags.get_override_values(flags.FLAGS["config"])
    c = sizing.wide(c, model, file, sizing.fixed(c, given))
    source = build.world(c, model, file)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if source.summary:
        console.print(f"{file}: {source.summary}")
    for line in _listed_as(file, c.sandbox):
        console.print(line)
    width = console.width if console.is_terminal else WIDTH
    key = jax.random.key(SEED.value)
    played = transcript.episodes(source, name, key, NUM.value, STRENGTH.value)
    for number, (clean, other) in enumerate(played):
        console.print(f"\ntask {number} of --seed={SEED.value}", style="bold")
        if name == draw.CLEAN:
            console.print("\n".join(clean))
            continue
        note = "" if clean != other else ": it changes nothing here"
        header = f"{draw.CLEAN:{(width - 3) // 2}}   {name}{note}"
        console.print(header, style="bold")
        for mark, row in transcript.side_by_side(clean, other, width):
            console.print(Text(row, "" if mark == transcript.SAME else "yellow"))


def print_requests(file: str, sandbox: "Settings") -> None:
    """Print some sampled goals of a domain with their requests, if it has any."""
    from openagent_jax.domains import domain_file
    from openagent_jax.domains.goals import example_requests, goal_sampling
    from openagent_jax.environments.tools import make

    limits = make.limits_of(sandbox.of(file))
    spec = domain_file.load(file, limits)
    goals = goal_sampling.sample_goals(spec, limits, make.num_sampled(sandbox))
    if goals:
        print(f"{file}: {len(goals)} sampled goals, for example")
    num, seed = NUM_REQUESTS.value, SEED.value
    for text in example_requests.some(spec, goals, num, seed):
        print(f"\n{text}")


def print_library() -> None:
    """Print a table of the builtin domains."""
    from launch.common import config
    from launch.pages import library_table

    sandbox = config.resolve(CONFIG.value).sandbox
    for line in library_table.lines(sandbox):
        print(line, flush=True)


def _listed_as(file: str, sandbox: Any) -> Iterator[str]:
    """Yield a line for each tool that has another name in the list it is from."""
    from openagent_jax.domains import domain_file
    from openagent_jax.environments import registry
    from openagent_jax.environments.tools import make

    if registry.spec(file) is make.DOMAINS:
        for tool in domain_file.load(file, make.limits_of(sandbox.of(file))).tools:
            if tool.listed_as:
                yield f"{tool.name} is {tool.listed_as} in its tool list"


def kept(workdir: Path) -> None:
    """Print episodes that were saved by the newest evaluation of a run."""
    import itertools

    from rich.console import Console

    from openagent_jax.curriculum import draw
    from openagent_jax.evaluation import transcript
    from openagent_jax.report import trajectories

    name = PERTURBATION.value or draw.CLEAN
    try:
        folder = trajectories.newest(workdir)
        found = list(itertools.islice(trajectories.read(folder, name), NUM.value))
    except FileNotFoundError as error:
        raise cli.UsageError(f"--workdir: {error}") from None
    console = Console(highlight=False, markup=False, soft_wrap=True)
    for line in found:
        where = f"task {line['index']} of {name}, in {folder.parent}"
        console.print(f"\n{where}", style="bold")
        console.print("\n".join(transcript.kept(line)))


if __name__ == "__main__":
    of_file = ("draft", "check", "show")
    # `show` takes either a FILE or --workdir.
    by_workdir = any(word.startswith("--workdir") for word in sys.argv)
    cli.run(
        main,
        commands={x: ("FILE",) for x in of_file}
        | ({"show": ()} if by_workdir else {})
        | {"library": ()},
    )
