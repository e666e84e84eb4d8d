"""What every command shares: flags, exit codes, one clear line for each error.

Exit codes: 0 done; 1 failure; 2 bad flags or config; 143 after a saved preemption.
"""

import os
import sys
from collections.abc import Callable, Sequence

from absl import flags

FAILURE, BAD_USE, PREEMPTED = 1, 2, 143


class BadUse(ValueError):
    """Flags or a config that cannot work; the message names the key and the remedy."""


def run(main: Callable[[], None], required: Sequence[str] = ()) -> None:
    """Parse the flags, call `main`, and turn its errors into exit codes."""
    try:
        extra = flags.FLAGS(sys.argv)[1:]
        if extra:
            raise BadUse(f'"{extra[0]}" is not a flag; did you mean "--{extra[0]}"?')
        for name in required:
            if flags.FLAGS[name].value is None:
                raise BadUse(f"--{name} is missing")
    except SystemExit:  # --help
        raise
    except Exception as error:  # absl and ml_collections raise all sorts here
        _leave(BAD_USE, _first_line(error))
    from openagent_jax.train import Diverged, Preempted  # after the platform flags

    try:
        main()
    except BadUse as error:
        _leave(BAD_USE, _first_line(error))
    except Preempted as error:
        _leave(PREEMPTED, str(error))
    except KeyboardInterrupt:
        _leave(130, "interrupted")
    except (Diverged, OSError, RuntimeError, ValueError) as error:
        if os.environ.get("OPENAGENT_TRACEBACK"):
            raise
        _leave(FAILURE, f"{_first_line(error)} (OPENAGENT_TRACEBACK=1 shows where)")


def _leave(code: int, message: str) -> None:
    print(f"{os.path.basename(sys.argv[0])}: {message}", file=sys.stderr)
    sys.exit(code)


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
