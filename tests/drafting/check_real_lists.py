"""What `launch.domain check` says of the drafts of real tool lists.

    python -m tests.drafting.check_real_lists [NAME ...]

drafts each list (all of them if none is named), fills in its holes, runs `check` with
the flags that the review asks for, and prints a table of lists/README.md: half a minute
to two minutes for a list.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from openagent_jax.drafting import drafting, json_format
from tests.drafting import examples, real_lists

# The drafter cannot know which tool needs a code of another, so all lists have this.
_KNOWN = "logic_inversion changes nothing here"


def flags(review: Iterable[str]) -> dict[str, int]:
    """Return the limits that the review of a draft asks for.

    >>> flags(["a needs --config.sandbox.num_args=4", "b: --config.sandbox.num_args=6"])
    {'num_args': 6}
    """
    found: dict[str, int] = {}
    for key, num in re.findall(r"--config\.sandbox\.(\w+)=(\d+)", "\n".join(review)):
        found[key] = max(int(num), found.get(key, 0))
    return found


def rows(files: Iterable[Path]) -> Iterator[str]:
    """Yield the rows of the table."""
    yield "| file | flags | result | longest prompt | warnings | seconds |"
    yield "| --- | --- | --- | ---: | --- | ---: |"
    for file in files:
        made = drafting.draft(real_lists.read(file), file.stem)
        wanted = {f"sandbox.{key}={num}" for key, num in flags(made.review).items()}
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            filled = Path(folder) / file.name
            text = json_format.dumps(examples.filled(made.domain))
            filled.write_text(text, encoding="utf-8")
            command = [sys.executable, "-m", "launch.domain", "check", str(filled)]
            command += [f"--config.{flag}" for flag in sorted(wanted)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = f"{time.monotonic() - begin:.0f}"
        tokens = re.findall(
            r"the longest prompt has (\d+) .* (\d+)$", done.stdout, re.M
        )
        passes = "passes" if done.returncode == 0 else _last_line(done.stderr)
        warnings = done.stdout.partition("\nWarnings:\n")[2].partition("\n\n")[0]
        others = [x.strip() for x in warnings.splitlines() if _KNOWN not in x]
        prompt = ", perturbed ".join(tokens[0]) if tokens else ""
        cells = [file.name, " ".join(sorted(wanted)), passes, prompt]
        cells += ["; ".join(others), seconds]
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _last_line(text: str) -> str:
    return next((x for x in reversed(text.splitlines()) if x.strip()), "no output")


if __name__ == "__main__":
    chosen = sys.argv[1:] or [file.stem for file in real_lists.FILES]
    for row in rows(real_lists.FOLDER / f"{name}.json" for name in chosen):
        print(row, flush=True)
