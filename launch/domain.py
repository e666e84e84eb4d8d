"""Make a domain of your own tools: draft it, check it, look at its episodes.

    python -m launch.domain draft tools.json --out=my_tools.json
    python -m launch.domain check my_tools.json
    python -m launch.domain show  my_tools.json --perturbation=semantic_trap

`draft` reads OpenAI's array of tools, or what MCP's tools/list returned. `check` names
all faults, and warns of what does not work; it counts tokens and turns as --config says
(default: configs/base.py). `show` plays the oracle, clean and perturbed side by side;
it takes a builtin domain (`poi`) or a log too. docs/own_tools.md goes through it all.
"""

import os
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(Path(__file__).parents[1] / "configs/base.py"),
    "Check: the model that counts the tokens, and the room that there is.",
    lock_config=True,
)
OUT = flags.DEFINE_string("out", None, "Draft: the file to write.")
SKIP = flags.DEFINE_list("skip", [], "Draft: tools to leave out.")
PERTURBATION = flags.DEFINE_string("perturbation", None, "Show: one of the catalogue.")
STRENGTH = flags.DEFINE_float("strength", 1.0, "Show: of the perturbation.", 0, 1)
NUM = flags.DEFINE_integer("num", 2, "Show: how many episodes.", 1)
SEED = flags.DEFINE_integer("seed", 0, "Show: other episodes.", 0)
WIDTH = 120  # of what is piped


def main(command: str, file: str) -> None:
    {"draft": draft, "check": check, "show": show}[command](file)


def draft(file: str) -> None:
    from openagent_jax.sandbox import domain_file, drafting
    from openagent_jax.sandbox.domain_spec import DomainError

    out = cli.check_out(OUT.value)
    if out.suffix != ".json":
        raise cli.BadUse(f"--out={out} has to end with .json")
    if out.exists():
        raise cli.BadUse(f"--out: {out} is there already; name another file")
    try:
        document = domain_file.read_json(Path(file))
        made = drafting.draft(document, out.stem, SKIP.value)
    except DomainError as error:
        raise cli.BadUse(f"{file}: {error}") from None
    _write(out, drafting.written(made.domain))
    tools, goals, types = (len(made.domain[key]) for key in ("tools", "goals", "types"))
    print(f"{out}: {tools} tools, {types} types, {goals} goals")
    for title, notes in (
        ("Fill in (`check` finds them, as FILL IN)", made.holes),
        ("Look at what was guessed (also under `review`, to be deleted)", made.review),
    ):
        if notes:
            print(f"\n{title}:")
            print("\n".join(f"  {note}" for note in notes))
    print(f"\nNext: python -m launch.domain check {out}")


def check(file: str) -> None:
    from launch import settings
    from openagent_jax.sandbox import domain_file, logs

    c = CONFIG.value
    if logs.is_log(file):
        raise cli.BadUse(f"{file} is a log; python -m launch.logs check tells of it")
    limits = settings.limits(c)
    if faults := domain_file.faults(file, limits):
        print("\n".join(f"{file}: {fault}" for fault in faults))
        many = f"{len(faults)} faults" if len(faults) > 1 else "1 fault"
        raise cli.BadUse(f"{file}: {many}; correct what is named above")
    spec = domain_file.load(file, limits)
    from launch import backbones, build
    from openagent_jax import rehearsal

    c.sandbox.domain = file
    settings.check(c)
    source = build.task_worlds(c, backbones.backbone(c), file)
    sizes = settings.sizes(c)
    seen, trained = (
        rehearsal.rehearse(source, c.sandbox.max_turns, c.seed, scenarios, split)
        for scenarios, split in (
            (rehearsal.SCENARIOS, "test"),
            (rehearsal.TRAINED, "train"),
        )
    )
    num_visible = c.sandbox.num_visible
    troubles = list(rehearsal.troubles(spec, seen, sizes, limits, num_visible))
    raised = []
    for key, room, tokens, name in rehearsal.rooms(
        seen, trained, sizes, c.algorithm.num_tokens
    ):
        wanted = -(-tokens // 32) * 32
        raised.append(f"--config.{key}={wanted}")
        troubles.append(f"{key}={room} is too short: {name} has {tokens} tokens")
    longest = {name: int(one.prompt.max()) for name, one in seen.items()}
    print(
        f"{file}: no faults. {len(spec.tools)} tools, {len(spec.types)} types, "
        f"{len(spec.goals)} goals; the longest prompt has {longest['clean']} tokens, "
        f"perturbed {max(longest.values())}"
    )
    for title, notes in (("Warnings", troubles), ("To be reviewed", spec.review)):
        if notes:
            print(f"\n{title}:")
            print("\n".join(f"  {note}" for note in notes))
    if raised:
        print(f"\nGive it room: {' '.join(raised)}")


def show(file: str) -> None:
    import jax
    from rich.console import Console
    from rich.text import Text

    from launch import backbones, build, settings
    from openagent_jax import evaluate, perturb, transcript

    c = CONFIG.value
    # What is in the compact form can be written as messages.
    c.init_from, c.model.chat_template = "nano", ""
    name = PERTURBATION.value or evaluate.CLEAN
    settings.known("--perturbation", [name], (evaluate.CLEAN, *perturb.CATALOGUE))
    c.sandbox.domain, c.eval.domain = file, ""
    settings.check(c)
    source = build.task_worlds(c, backbones.backbone(c), file)
    keys = evaluate.task_keys(jax.random.key(SEED.value), 0, NUM.value)
    turns = c.sandbox.max_turns
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if source.log:
        console.print(f"{file}: {source.log.summary()}")
    width = console.width if console.is_terminal else WIDTH
    played = transcript.episodes(source, name, keys, STRENGTH.value, turns)
    for number, (clean, other) in enumerate(played):
        console.print(f"\ntask {number} of --seed={SEED.value}", style="bold")
        if name == evaluate.CLEAN:
            console.print("\n".join(clean))
            continue
        note = "" if clean != other else ": it changes nothing here"
        heads = f"{evaluate.CLEAN:{(width - 3) // 2}}   {name}{note}"
        console.print(heads, style="bold")
        for mark, row in transcript.side_by_side(clean, other, width):
            console.print(Text(row, "" if mark == transcript.SAME else "yellow"))


def _write(file: Path, text: str) -> None:
    part = file.with_suffix(".json.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


if __name__ == "__main__":
    cli.run(main, commands={name: ("FILE",) for name in ("draft", "check", "show")})
