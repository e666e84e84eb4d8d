"""What all commands share: flags, exit codes, and one-line error messages.

Exit codes: 0 done; 1 failure; 2 bad flags or config; 130 after Ctrl-C; 143 after a
preemption whose state was saved. OPENAGENT_TRACEBACK=1 shows where an error comes from.
"""

import difflib
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from absl import flags

from configs import base
from launch.common import processes
from launch.common.errors import UsageError

HINT = " (OPENAGENT_TRACEBACK=1 shows where)"  # at the end of messages of failures
# What Python says of values that are no numbers, and what is said instead.
NOT_A_NUMBER = {
    r"invalid literal for int\(\) with base 10: ('.*')": r"\1 is not an integer (int)",
    r"could not convert string to float: ('.*')": r"\1 is not a number (float)",
}
FAILURE, BAD_USAGE, INTERRUPTED, PREEMPTED = 1, 2, 130, 143


def run(
    main: Callable[..., None],
    required: Sequence[str] = (),
    commands: Mapping[str, Sequence[str]] | None = None,
    operands: str = "",
) -> None:
    """Parse the flags, call `main`, and turn its errors into exit codes.

    Args:
      main: called with the positional arguments: none, operands, or a subcommand and
        the arguments of that.
      required: flags that must be given.
      commands: the subcommands, each with the names of its positional arguments.
      operands: what the positional arguments are, of a command that takes one or more.
    """
    if {"-h", "--help"} & {*sys.argv}:
        print(sys.modules["__main__"].__doc__)
        print(flags.FLAGS.main_module_help())
        return
    try:
        main(*_parse(sys.argv, required, commands or {}, operands))
    except BaseException as error:
        lost = processes.lost(error) if isinstance(error, RuntimeError) else ""
        code, message = (FAILURE, lost + HINT) if lost else _diagnose(error)
        if not message:
            raise
        if os.environ.get("OPENAGENT_TRACEBACK"):
            traceback.print_exception(error)
        print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
        # Threads that compile would keep an interrupted process, or end it by a signal.
        if lost or code == INTERRUPTED:
            processes.leave(code)
        sys.exit(code)


def refuse_unused(*given: flags.FlagHolder, other: str) -> None:
    """Refuse flags that would do nothing; `other` is what they are for."""
    for flag in given:
        if flag.present:
            raise UsageError(f"--{flag.name} is for {other}")


def check_flags(command: str, own: Mapping[str, Sequence[flags.FlagHolder]]) -> None:
    """Refuse flags of other subcommands.

    Args:
      command: the subcommand that is executed.
      own: the flags of each subcommand.
    """
    names = {flag.name for flag in own[command]}
    for other, held in own.items():
        unused = [flag for flag in held if flag.name not in names]
        refuse_unused(*unused, other=other)


def folder(flag: flags.FlagHolder[str | None]) -> Path | None:
    """Return the folder that a flag names; None if it is not given.

    Raises:
      UsageError: it is an address, such as that of a bucket.
    """
    if flag.value and "://" in flag.value:
        raise UsageError(
            f"--{flag.name}={flag.value} is not a folder of a file system; mount what "
            "it names, and give the folder where it is mounted"
        )
    return Path(flag.value) if flag.value else None


def check_out(out: str | None) -> Path:
    """Return the file that --out names, before anything is computed for it.

    Raises:
      UsageError: it is missing, a folder, or in a folder that does not exist.
    """
    if not out:
        raise UsageError("--out is missing: the file to write")
    file = Path(out)
    if file.is_dir():
        raise UsageError(f"--out={out} is a folder; name a file in it")
    if not file.parent.is_dir():
        raise UsageError(
            f"--out={out}: there is no folder {file.parent}; make it first"
        )
    return file


def git(*words: str) -> str | None:
    """Return the output of a git command in this checkout; None without a checkout."""
    try:
        return subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def explain(error: Exception, argv: Sequence[str]) -> str:
    """Return one line that names the flag, for an error of parsing."""
    text = str(error)
    no_key = isinstance(error, KeyError | AttributeError)
    missing = re.search(r"'(\w+)\\?'", text) if no_key else None
    for flag in (arg.partition("=")[0] for arg in argv):
        if missing and missing[1] in flag.split(".")[1:]:
            key = flag.partition(".")[2]
            if key in base.RENAMED:
                return f"{flag}: this key is now called {base.RENAMED[key]}"
            close = re.search(r'Did you mean "(\w+)"', text)
            hint = (
                f'did you mean "{close[1]}"?'
                if close
                else "launch.train --dry_run lists all"
            )
            return f'{flag}: there is no key "{missing[1]}"; {hint}'
    lines = text.strip().splitlines() or [""]
    if lost := re.search(r"No such file or directory: '([^']+)'$", lines[-1]):
        configs = map(str, Path("configs").glob("*.py"))
        near = difflib.get_close_matches(lost[1], configs, 1)
        hint = f"did you mean {near[0]}?" if near else "check the path"
        return f"--config: No such file: {lost[1]}; {hint}"
    if found := re.search(r"config argument .*", lines[-1]):
        return f"--config: {found[0]}"
    if isinstance(error, flags.Error) and len(lines) == 1:
        for wrong, said in NOT_A_NUMBER.items():
            text = re.sub(wrong, said, text)
        return text
    return f"--config: {type(error).__name__}: {lines[-1].strip()}"


def _parse(
    argv: Sequence[str],
    required: Sequence[str],
    commands: Mapping[str, Sequence[str]],
    operands: str,
) -> Sequence[str]:
    """Parse the flags, and return the positional arguments."""
    try:
        # Flags may follow a subcommand or operands.
        flags.FLAGS.set_gnu_getopt(bool(commands or operands))
        extra = flags.FLAGS(argv)[1:]
        config = flags.FLAGS["config"].value if "config" in flags.FLAGS else None
        if config is not None:
            config.lock()  # raises only now if the config file could not be read
    except Exception as error:  # flags and configs raise many kinds
        raise UsageError(explain(error, argv)) from error
    words = 0
    if commands:
        if not extra or extra[0] not in commands:
            found = f'"{extra[0]}" is not a command; ' if extra else ""
            raise UsageError(f"{found}give {' or '.join(commands)}")
        names = commands[extra[0]]
        words = 1 + len(names)
        if len(extra) < words:
            raise UsageError(f"{extra[0]}: {names[len(extra) - 1]} is missing")
    if operands and not extra:
        raise UsageError(f"{operands} is missing; --help shows examples")
    if extra[words:] and not operands:
        word = extra[words]
        raise UsageError(f'"{word}" is not a flag; did you mean "--{word}"?')
    for name in required:
        if flags.FLAGS[name].value in (None, ""):
            raise UsageError(f"--{name} is missing")
    return extra


def _diagnose(error: BaseException) -> tuple[int, str]:
    """Return the exit code and the message; "" where only a traceback explains."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, UsageError):
        return BAD_USAGE, lines[0]
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, str(error) or "interrupted"
    from openagent_jax import train  # loads slowly

    if isinstance(error, train.Preempted):
        return PREEMPTED, lines[0]
    if "RESOURCE_EXHAUSTED" in lines[0]:
        lines[0] = (
            "out of memory: raise train.num_micro_batches, or lower train.batch_size "
            "or eval.batch_size"
        )
    if isinstance(error, (train.Diverged, OSError, RuntimeError, ValueError)):
        return FAILURE, lines[0] + HINT
    return FAILURE, ""
