"""Plan the runs of a sweep: which there are, and in what their configs differ.

Everything that can be wrong with the flags or with a config is found here, before a run
starts. Nothing here uses a device, which the runs need for themselves.
"""

import contextlib
import dataclasses
import json
import re
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.paper.study import Setting, Study, vary
from launch.common import checks, config, errors, runs, scenarios, sizing
from launch.common.config import Config
from launch.common.errors import UsageError
from openagent_jax import perturb
from openagent_jax.environments import registry

SEED, LEAVE_OUT, UNCHANGED = "seed", "paft.leave_out", "base"
GROUPS = {"tier": perturb.TIERS, "shift": perturb.SHIFTS}
# Keys that decide what is evaluated, so that all runs of a sweep share their values.
EVALUATION = ("domain", "num_tasks", "repeats", "strength", "temperature", "seed")
EVALUATION = (*(f"eval.{x}" for x in (*EVALUATION, "split", "scenarios")), "suite")
# Keys that may differ between runs of a setting, or do not affect what is learned.
SAME = ("name", SEED, "init_from", *runs.MAY_CHANGE)


@dataclass(frozen=True)
class Run:
    """One run of `launch.train`, or one evaluation of a model as it is."""

    name: str  # of its folder
    setting: Setting
    seed: int
    workdir: Path
    config: Config
    words: tuple[str, ...]  # the flags that make the config
    after: str = ""  # the name of the run that it starts from

    @property
    def given(self) -> set[str]:
        """The keys that its flags set."""
        return {word.split("=")[0].removeprefix("--config.") for word in self.words}

    @property
    def command(self) -> str:
        """The command of `launch` that executes it."""
        return "train" if self.setting.is_trained else "evaluate"

    @property
    def report(self) -> Path | None:
        """The last report of the run; None before it has ended."""
        found = [*self.workdir.glob("eval/*/report.json")]
        if self.setting.is_trained:
            if runs.ended(self.workdir) is None:
                return None
        else:  # what is evaluated may have changed; earlier versions do not tell
            ours = config.config_hash(self.config)
            found = [x for x in found if _config_hash(x) in (None, ours)]
        return max(found, key=lambda file: int(file.parent.name), default=None)


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep, in the order in which they are executed."""

    runs: tuple[Run, ...]
    base: str  # the setting that others are compared with

    @property
    def settings(self) -> dict[str, Setting]:
        """The settings by name."""
        return {run.setting.name: run.setting for run in self.runs}

    def of(self, setting: str) -> list[Run]:
        """Return the runs of a setting, one for each seed."""
        return [run for run in self.runs if run.setting.name == setting]

    def changes(self, setting: str) -> dict[str, tuple[Any, Any]]:
        """Return `(value of the base, value here)` of each key that differs."""
        old, new = (config.flat(self.of(x)[0].config) for x in (self.base, setting))
        return {
            key: (old[key], new[key])
            for key in new
            if old[key] != new[key] and not key.startswith(SAME)
        }


def load(file: str) -> tuple[Study, str]:
    """Read a study.

    Args:
      file: a Python file with `get_study(arg)`; ":arg" may follow its name.

    Returns:
      The study, and its docstring.

    Raises:
      UsageError: there is no such study.
    """
    path, _, arg = file.partition(":")
    try:
        found = runpy.run_path(path)
        study = found["get_study"](arg)
    except FileNotFoundError as error:
        raise UsageError(f"--study={file}: No such file; check the path") from error
    except Exception as error:  # a file of the user raises anything
        lines = str(error).strip().splitlines() or [""]
        kind = type(error).__name__
        raise UsageError(f"--study={file}: {kind}: {lines[-1]}") from error
    if not isinstance(study, Study):
        raise UsageError(f"--study={file}: get_study must return a Study")
    return study, found["__doc__"] or ""


def swept(study: Study, texts: Sequence[str]) -> Study:
    """Return a study with more values of some keys.

    Args:
      study: the study.
      texts: the flags, such as "paft.alpha=0,0.1" or "seed=0..4".

    Raises:
      UsageError: a text names no key or no value, or a key comes twice.
    """
    keys: dict[str, list[str]] = {}
    for text in texts:
        key, is_given, values = text.partition("=")
        if not key or not is_given:
            raise UsageError(
                f"--sweep={text}: name a key and its values, such as "
                "--sweep=paft.alpha=0,0.1,0.2 or --sweep=seed=0..4"
            )
        if key in keys:
            raise UsageError(
                f"--sweep={text}: there are two sweeps of {key}; give all values in one"
            )
        keys[key] = values_of(values)
        if not keys[key]:
            raise UsageError(f"--sweep={text}: it has no value, so no run is left")
        if twice := [x for x in keys[key] if keys[key].count(x) > 1]:
            raise UsageError(f"--sweep={text}: {twice[0]} is named twice")
    seeds = keys.pop(SEED, None)
    if seeds is not None:
        if bad := [x for x in seeds if not x.isdecimal()]:
            raise UsageError(f'--sweep={SEED}: "{bad[0]}" is not a number from 0')
        study = dataclasses.replace(study, seeds=tuple(map(int, seeds)))
    singles = {key: values for key, values in keys.items() if len(values) == 1}
    settings = study.settings
    for key, values in singles.items():
        settings = vary(settings, key, values)
    if len(singles) == len(keys):
        return dataclasses.replace(study, settings=settings)
    plain = config.from_flags(_words(settings[0], {}))
    for key in (key for key in keys if key not in singles):
        settings = vary(settings, key, keys[key])
    if study.base:
        found = (x.name for x in settings if x.name.startswith(f"{study.base},"))
    else:  # the config as it is, if it is there
        found = (x.name for x in settings if config.from_flags(_words(x, {})) == plain)
    return dataclasses.replace(study, settings=settings, base=next(found, ""))


def values_of(text: str) -> list[str]:
    """Split values at commas outside brackets and quotes; expand ranges of integers.

    >>> values_of("0..2,5"), values_of("('a','b'),('c',)")
    (['0', '1', '2', '5'], ["('a','b')", "('c',)"])
    >>> values_of("3..1")
    []
    """
    found = []
    quoted = r"'[^']*'|\"[^\"]*\""
    for value in re.findall(rf"(?:{quoted}|\([^)]*\)|[^,])+", text):
        ends = re.fullmatch(r"(-?\d+)\.\.(-?\d+)", value)
        span = range(int(ends[1]), int(ends[2]) + 1) if ends else None
        found += [value] if span is None else map(str, span)
    return found


def ablated(study: Study, names: Sequence[str]) -> Study:
    """Return a study in which each setting is also trained without something.

    Args:
      study: the study.
      names: the flags: "no_KIND", "kind:KIND", "tier:TIER" or "shift:SHIFT".

    Raises:
      UsageError: there is no such ablation, or it is named twice.
    """
    settings = []
    for setting in study.settings:
        settings.append(setting)
        if not names:
            continue
        c = config.from_flags(_words(setting, {}))
        if not c.paft.alpha:
            raise UsageError(
                f"--ablate={names[0]}: {setting.name or setting.config} trains on clean"
                " tasks only (paft.alpha=0), so there is nothing to leave out"
            )
        known = perturb.catalogue(registry.spec(c.sandbox.domain))
        for name in dict.fromkeys(names):
            what = _left_out(name, [*known])
            value = (*c.paft.leave_out, what)
            settings.append(setting.changed(f"no_{what}", {LEAVE_OUT: value}))
    if len({x.name for x in settings}) < len(settings):
        raise UsageError(f"--ablate={','.join(names)}: one thing is named twice")
    return dataclasses.replace(study, settings=tuple(settings))


def _left_out(name: str, kinds: Sequence[str]) -> str:
    """Return what an ablation leaves out of training."""
    group, is_group, what = name.partition(":")
    if not is_group and name.startswith("no_"):
        group, what = "kind", name.removeprefix("no_")
    known = {**GROUPS, "kind": kinds}
    if group not in known or not what:
        raise UsageError(
            f'--ablate: there is no "{name}"; give no_KIND, tier:TIER or shift:SHIFT, '
            "such as no_semantic_trap, tier:reasoning or shift:query"
        )
    errors.check_names(f"--ablate={name}", [what], known[group])
    return what


def plan(study: Study, folder: Path) -> Plan:
    """Return the runs of a study.

    Args:
      study: the study.
      folder: holds the folder of each run.

    Raises:
      UsageError: a config cannot work, two settings are the same, runs would not be
        evaluated alike, or a folder holds another run.
    """
    settings = [
        x if x.name else dataclasses.replace(x, name=UNCHANGED) for x in study.settings
    ]
    if not settings or not study.seeds:
        raise UsageError("no run is left: there is no setting, or no seed")
    made, seen = list[Run](), set[str]()
    for seed in study.seeds:
        for setting in settings:
            if setting.is_trained or seed == study.seeds[0]:
                made.append(_run(setting, seed, folder))
    for run in made[: len(settings)]:
        if run.after and run.setting.after not in seen:
            raise UsageError(
                f"{run.setting.name}: it starts from {run.setting.after}, which is not "
                "among the settings before it"
            )
        seen.add(run.setting.name)
        with errors.blame(run.setting.name):
            checks.check(run.config)
            checks.check_given(run.config, run.given)
    _check_settings(made[: len(settings)])
    for run in made:
        _check_folder(run)
    trained = [x.name for x in settings if x.is_trained]
    if "" in (x.name for x in study.settings):
        trained.insert(0, UNCHANGED)
    return Plan(tuple(made), study.base or (*trained, settings[0].name)[0])


def not_evaluated(plan: Plan) -> list[str]:
    """Return the kinds that some setting leaves out and that no run is evaluated on."""
    first = plan.runs[0].config
    spec = registry.spec(first.eval_domain)
    played = scenarios.choose(spec, first.eval.scenarios, "suite").names
    left_out = (run.config.paft.leave_out for run in plan.runs)
    named = dict.fromkeys(name for names in left_out for name in names)
    found = perturb.kinds(spec, played)
    return [x for x in named if x in perturb.catalogue(spec) and x not in found]


def _run(setting: Setting, seed: int, folder: Path) -> Run:
    own: dict[str, Any] = {}
    name = _file_name(setting.name)
    if setting.is_trained:
        name, own = f"{name}_{seed}", {SEED: seed}
    after = f"{_file_name(setting.after)}_{seed}" if setting.after else ""
    if after:
        own["init_from"] = (folder / after).as_posix()
    words = _words(setting, own)
    with errors.blame(setting.name):
        c = config.from_flags(words)
    return Run(name, setting, seed, folder / name, c, words, after)


def _words(setting: Setting, own: Mapping[str, Any]) -> tuple[str, ...]:
    pairs = {**setting.changes, **own}.items()
    return (
        f"--config={setting.config}",
        *(f"--config.{key}={value}" for key, value in pairs),
    )


def _file_name(text: str) -> str:
    """Return a name without what file systems and shells treat specially.

    >>> _file_name("eval.scenarios=('a', 'b/c')")
    'eval.scenarios=-a-b-c'
    """
    return re.sub(r"[^\w.,=+-]+", "-", text.replace("', '", "-")).strip("-")[:200]


def _check_settings(firsts: Sequence[Run]) -> None:
    """Check that settings differ, and that they are evaluated alike."""
    names: dict[str, str] = {}
    same: dict[str, str] = {}
    first = firsts[0]
    for run in firsts:
        values = config.to_dict(run.config) | {"name": "", "after": run.after}
        for key, found in ((run.name, names), (f"{run.command} {values}", same)):
            if key in found:
                raise UsageError(
                    f"{found[key]} and {run.setting.name} are the same setting; remove "
                    "one"
                )
            found[key] = run.setting.name
        for key in EVALUATION:
            ours, theirs = (_value(x.config, key) for x in (run, first))
            if ours != theirs:
                raise UsageError(
                    f"{key} is {theirs} in {first.setting.name} and {ours} in "
                    f"{run.setting.name}, so that their reports could not be compared; "
                    "give all runs the same evaluation"
                )


def _config_hash(report: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return json.loads(report.read_text("utf-8")).get(runs.CONFIG_HASH)
    return None


def _value(c: Config, key: str) -> Any:
    return c.suite if key == "suite" else config.flat(c)[key]


def _check_folder(run: Run) -> None:
    """Check that a folder holds this run, if it holds one."""
    if run.setting.is_trained:
        stored = config.stored(run.workdir)
        runs.check_same(run.workdir, sizing.as_stored(run.config, stored, run.given))
