"""Evaluate a policy, or an external agent, on clean and on perturbed tasks.

    python -m launch.evaluate --workdir=runs/paft           a run, under its own config
    python -m launch.evaluate --config=configs/base.py      a backbone without training
    python -m launch.evaluate --compare=runs/sft,runs/paft  reports, side by side
    python -m launch.evaluate --agent=openai --base_url=http://127.0.0.1:8000/v1 \\
        --model=NAME --suite=poi                            an agent behind an endpoint
    python -m launch.evaluate --agent=python:module:function --suite=my_tools.json

Runs of several training seeds that are joined by + are shown as their mean, with
intervals over tasks and seeds, and a column can be given a name:
--compare=SFT=runs/sft_0+runs/sft_1+runs/sft_2,runs/paft. Only rows that all reports
have are compared. --markdown prints the table in Markdown, for publication, and refuses
reports that were made with different settings; without it, there is only a warning.
launch.report makes a page of the same columns.

The whole catalogue of perturbations is played; --config.eval.scenarios chooses some,
or a suite of scenarios (paper, tc, hazards, maze, dynamic, full, or a file). Reports of
different suites are only compared with --across_suites.

To evaluate a run under other settings, start from it:
--config=configs/base.py --config.init_from=runs/paft

A stopped evaluation resumes at the first unfinished scenario.

An agent gets the tasks, seeds and perturbations of --config (default:
configs/base.py). Each of its episodes is written as a line of eval/0/episodes.jsonl in
the workdir, and is not played again. The key of an endpoint is read from the
environment variable OPENAI_API_KEY and is never written to a file.
"""

from pathlib import Path

from absl import flags
from ml_collections import config_flags

from configs import base
from launch.common import cli

CONFIG = config_flags.DEFINE_config_file(
    "config", None, "Config whose init_from is evaluated.", lock_config=True
)
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "Run to evaluate. With --config: where the report goes, by default runs/<name>.",
)
STEP = flags.DEFINE_string("step", "latest", "latest, best, or a step of the run.")
COMPARE = flags.DEFINE_list("compare", None, "Workdirs or reports to compare.")
MARKDOWN = flags.DEFINE_bool("markdown", False, "Print the comparison in Markdown.")
ACROSS_SUITES = flags.DEFINE_bool(
    "across_suites", False, "Compare reports of different suites of scenarios."
)
AGENT = flags.DEFINE_string("agent", None, "openai, or python:module:function.")
SUITE = flags.DEFINE_string(
    "suite", None, "Domain of the tasks of --agent: a name, a file, or bfcl:CATEGORY."
)
BASE_URL = flags.DEFINE_string(
    "base_url", None, "Address of the endpoint, with its /v1."
)
MODEL = flags.DEFINE_string("model", None, "Name of the model at the endpoint.")
KEY_VARIABLE = flags.DEFINE_string(
    "key_variable", "OPENAI_API_KEY", "Environment variable that holds its key."
)
REQUEST = flags.DEFINE_string(
    "request", "", "More fields of each request, as JSON; null removes a field."
)
CONCURRENCY = flags.DEFINE_integer(
    "concurrency", 8, "Episodes that are played at once.", 1, 1024
)
TIMEOUT = flags.DEFINE_float("timeout", 120.0, "Seconds to wait for a reply.", 0.001)
RETRIES = flags.DEFINE_integer(
    "max_retries", 4, "Retries of a request, with back-off.", 0
)
PRICE_IN = flags.DEFINE_float(
    "price_in", 0.0, "Price of a million prompt tokens, in any currency.", 0.0
)
PRICE_OUT = flags.DEFINE_float(
    "price_out", 0.0, "Price of a million completion tokens.", 0.0
)
MAX_COST = flags.DEFINE_float(
    "max_cost", 0.0, "The most to spend, at these prices; 0 is no limit.", 0.0
)
OF_ENDPOINT = (BASE_URL, MODEL, KEY_VARIABLE, REQUEST, TIMEOUT, RETRIES)
OF_ENDPOINT += (PRICE_IN, PRICE_OUT, MAX_COST)
SYSTEM_PROMPT = flags.DEFINE_string(
    "system_prompt",
    None,
    "System prompt of --agent: a file, or the text itself. The default is built in.",
)
MAX_CALLS = flags.DEFINE_integer(
    "max_calls", 0, "The most replies to ask for, retries aside; 0 is no limit.", 0
)
MAX_TOKENS = flags.DEFINE_integer(
    "max_tokens", 0, "The most tokens to use; 0 is no limit.", 0
)


def main() -> None:
    of_agents = (CONCURRENCY, MAX_CALLS, MAX_TOKENS, SYSTEM_PROMPT)
    if COMPARE.value:
        given = (CONFIG, WORKDIR, STEP, AGENT, SUITE, *OF_ENDPOINT, *of_agents)
        cli.refuse_unused(*given, other="evaluating, not for --compare")
        from openagent_jax import report

        mixed = ACROSS_SUITES.value
        try:
            reports = report.load_columns(COMPARE.value, mixed)
        except ValueError as error:
            raise cli.UsageError(f"--compare: {error}") from None
        if not mixed and (found := report.of_different_suites(reports)):
            raise cli.UsageError(
                f"--compare: the reports are of different suites: {found}; evaluate "
                "on the same suite, or give --across_suites to compare shared rows"
            )
        ignored = (report.SET_HASH,) * mixed
        if MARKDOWN.value and (found := report.differences(reports, ignored)):
            raise cli.UsageError(
                f"--markdown needs reports with the same settings, but {found}; "
                "evaluate them again with the same settings"
            )
        if MARKDOWN.value and (why := report.exploratory(reports)):
            print(f"{why}\n")
        print(report.side_by_side(reports, markdown=MARKDOWN.value))
        return
    cli.refuse_unused(MARKDOWN, ACROSS_SUITES, other="--compare")
    if AGENT.value:
        cli.refuse_unused(STEP, other="--workdir without --agent")
        _agent()
        return
    if SUITE.value:
        raise cli.UsageError(
            "--suite is for --agent; without it, set config.eval.domain"
        )
    cli.refuse_unused(*OF_ENDPOINT, *of_agents, other="--agent")
    if CONFIG.value is None and WORKDIR.value is None:
        raise cli.UsageError("give --workdir, --config, --agent or --compare")
    import jax

    from launch.common import (
        compile_cache,
        config,
        placement,
        policies,
        runs,
        scoring,
        sizing,
    )
    from openagent_jax import sharding
    from openagent_jax.curriculum import draw

    given, about = (), {}  # the keys that flags have set; more of the report
    if CONFIG.value is not None:
        cli.refuse_unused(STEP, other="--workdir without --config")
        given = config_flags.get_override_values(flags.FLAGS["config"])
        c, model, params, step = policies.of_config(config.resolve(CONFIG.value))
        about[runs.CONFIG_HASH] = config.config_hash(c)
        workdir = cli.folder(WORKDIR) or Path("runs") / c.name
        if (workdir / "config.json").exists():
            raise cli.UsageError(
                f"{workdir} holds a run, which --workdir without --config evaluates; "
                f"give another --workdir for the report of {c.init_from}"
            )
        seed = runs.seed(Path(c.init_from).expanduser())
    else:
        workdir = cli.folder(WORKDIR) or Path()
        c, model, params, step = policies.of_run(workdir, STEP.value)
        seed = c.seed
    compile_cache.use(c.compile_cache)
    c = sizing.fitted(c, model, given, draw.ALL)
    mesh = placement.evaluation_mesh(c)
    if not c.mesh.splits_params:
        params = jax.device_put(params, sharding.replicated(mesh))
    scorer = scoring.Scorer(c, model, seed, draw.ALL, mesh)
    scoring.write_report(workdir, scorer(params, step, workdir) | about)
    scoring.print_report(workdir, step)


def _agent() -> None:
    """Evaluate the agent that --agent names."""
    from launch.common import agents, compile_cache, config, scoring
    from openagent_jax.agents.cost import Prices
    from openagent_jax.agents.play import Budget

    c = config.resolve(CONFIG.value or base.get_config())
    if SUITE.value:
        c = c.replace({"eval.domain": SUITE.value})
    if c.eval.keep_tokens:
        raise cli.UsageError(
            "eval.keep_tokens: an agent sends messages, not tokens; leave it out"
        )
    if AGENT.value == "openai":
        spec = agents.endpoint(
            BASE_URL.value,
            MODEL.value,
            KEY_VARIABLE.value,
            timeout=TIMEOUT.value,
            max_retries=RETRIES.value,
            request=agents.request(REQUEST.value, c.eval.temperature),
        )
    else:
        cli.refuse_unused(*OF_ENDPOINT, other="--agent=openai")
        spec = agents.function(str(AGENT.value), str(KEY_VARIABLE.value))
    prompt = agents.system_prompt(SYSTEM_PROMPT.value)
    prices = Prices(PRICE_IN.value, PRICE_OUT.value)
    if MAX_COST.value and not any(prices):
        raise cli.UsageError("--max_cost needs prices; give --price_in and --price_out")
    compile_cache.use(c.compile_cache)
    workdir = cli.folder(WORKDIR) or Path("runs") / spec.name.replace("/", "_")
    report = scoring.report_file(workdir, 0)
    log = report.with_name(agents.LOG)
    if (workdir / "config.json").exists() or report.exists() and not log.exists():
        raise cli.UsageError(
            f"{workdir} holds a run or a report of a policy; an agent needs another "
            "--workdir"
        )
    budget = Budget(MAX_CALLS.value, MAX_TOKENS.value, MAX_COST.value, prices)
    scores = agents.score(c, log, spec, CONCURRENCY.value, budget, prompt)
    scoring.write_report(workdir, scores)
    scoring.print_report(workdir, 0)


if __name__ == "__main__":
    cli.run(main)
