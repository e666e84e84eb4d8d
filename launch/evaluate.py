"""Score a policy, or an agent elsewhere, on clean and on perturbed tasks.

    python -m launch.evaluate --workdir=runs/paft           a run, as it was set up
    python -m launch.evaluate --config=configs/base.py      a backbone as it is
    python -m launch.evaluate --compare=runs/sft,runs/paft  reports, side by side
    python -m launch.evaluate --agent=openai --base_url=http://127.0.0.1:8000/v1 \\
        --model=NAME --suite=poi                            one that speaks by messages
    python -m launch.evaluate --agent=python:module:function --suite=my_tools.json

--markdown prints the table for a page, --figure=FILE.svg draws it.

Runs joined by + stand for their median; a name may be given:
--compare=SFT=runs/sft_0+runs/sft_1+runs/sft_2,runs/paft

A run under other settings: --config=configs/base.py --config.init_from=runs/paft

An agent meets the tasks, seeds and perturbations of --config, configs/base.py if none
is given. Each of its episodes is a line of eval/0/episodes.jsonl in the workdir; what
was stopped goes on from there. The key is that of OPENAI_API_KEY; no file has it.
"""

from pathlib import Path

from absl import flags
from ml_collections import config_flags

from configs import base
from launch import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Evaluate the init_from of this config.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "A run to evaluate; with --config: where the report goes, default runs/<name>.",
)
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
COMPARE = flags.DEFINE_list("compare", None, "Workdirs or reports to set side by side.")
FIGURE = flags.DEFINE_string("figure", None, "Compare in an SVG file of this name too.")
MARKDOWN = flags.DEFINE_bool("markdown", False, "Compare in Markdown.")
AGENT = flags.DEFINE_string("agent", None, "openai, or python:module:function.")
SUITE = flags.DEFINE_string(
    "suite", None, "Domain of an agent's tasks: a name or file."
)
BASE_URL = flags.DEFINE_string("base_url", None, "Of an endpoint, with its /v1.")
MODEL = flags.DEFINE_string("model", None, "Name of the model there.")
KEY_VARIABLE = flags.DEFINE_string(
    "key_variable", "OPENAI_API_KEY", "Variable of the environment that has its key."
)
REQUEST = flags.DEFINE_string(
    "request", "", "More of each request, as JSON; null leaves a key out."
)
CONCURRENCY = flags.DEFINE_integer("concurrency", 8, "Episodes at once.", 1, 1024)
TIMEOUT = flags.DEFINE_float("timeout", 120.0, "Seconds for one reply.", 0.001)
RETRIES = flags.DEFINE_integer("max_retries", 4, "Of one reply, with back-off.", 0)
OF_ENDPOINT = (BASE_URL, MODEL, KEY_VARIABLE, REQUEST, TIMEOUT, RETRIES)
MAX_CALLS = flags.DEFINE_integer(
    "max_calls", 0, "Replies to ask for; 0: any number.", 0
)
MAX_TOKENS = flags.DEFINE_integer("max_tokens", 0, "To use up; 0: any number.", 0)


def main() -> None:
    if COMPARE.value:
        from openagent_jax import report

        try:
            reports = report.columns(COMPARE.value)
        except ValueError as error:
            raise cli.BadUse(f"--compare: {error}") from None
        if FIGURE.value:
            Path(FIGURE.value).write_text(report.picture(reports), encoding="utf-8")
        print(report.side_by_side(reports, markdown=MARKDOWN.value))
        return
    if FIGURE.value:
        raise cli.BadUse("--figure draws a comparison; give --compare too")
    if AGENT.value:
        _agent()
        return
    if SUITE.value:
        raise cli.BadUse("--suite is for --agent; of a policy it is config.eval.domain")
    _unused(*OF_ENDPOINT, CONCURRENCY, MAX_CALLS, MAX_TOKENS, other="--agent")
    if CONFIG.value is None and WORKDIR.value is None:
        raise cli.BadUse("give --workdir, --config, --agent or --compare")
    from launch import backbones, programs, scoring, settings

    if CONFIG.value is not None:
        c = CONFIG.value
        workdir = Path(WORKDIR.value or Path("runs") / c.name)
        settings.check(c)
        model, step = backbones.backbone(c), 0
        params = backbones.first_params(c, model, backbones.split(c, model.config))
    else:
        workdir = Path(str(WORKDIR.value))
        c = settings.stored_config(workdir)
        settings.check(c)
        model, params, step = backbones.restore(workdir, STEP.value, c)
    programs.keep(c.compile_cache)
    scoring.write(workdir, scoring.Scorer(c, model)(params, step))
    scoring.show(workdir, step)


def _agent() -> None:
    from launch import agents, programs, scoring
    from openagent_jax.interop.play import Budget

    c = CONFIG.value or base.get_config()
    with c.unlocked():
        c.eval.domain = SUITE.value or c.eval.domain
    if AGENT.value == "openai":
        speaker = agents.endpoint(
            BASE_URL.value,
            MODEL.value,
            KEY_VARIABLE.value,
            timeout=TIMEOUT.value,
            max_retries=RETRIES.value,
            request=agents.request(REQUEST.value, c.eval.temperature),
        )
    else:
        _unused(*OF_ENDPOINT, other="--agent=openai")
        speaker = agents.function(str(AGENT.value), str(KEY_VARIABLE.value))
    programs.keep(c.compile_cache)
    workdir = Path(WORKDIR.value or Path("runs") / speaker.name.replace("/", "_"))
    report = scoring.file(workdir, 0)
    log = report.with_name(agents.LOG)
    if (workdir / "config.json").exists() or report.exists() and not log.exists():
        raise cli.BadUse(f"{workdir} is that of a policy; give another --workdir")
    budget = Budget(MAX_CALLS.value, MAX_TOKENS.value)
    scores = agents.score(c, log, speaker, CONCURRENCY.value, budget)
    scoring.write(workdir, scores)
    scoring.show(workdir, 0)


def _unused(*given: flags.FlagHolder, other: str) -> None:
    """What would do nothing is said to."""
    for flag in given:
        if flag.present:
            raise cli.BadUse(f"--{flag.name} is for {other}")


if __name__ == "__main__":
    cli.run(main)
