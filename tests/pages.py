"""Run the commands of pages of docs/ as a user would paste them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def checkout(folder: Path) -> Path:
    """Make a checkout that may be written to."""
    for name in ("configs", "launch", "openagent_jax", "tests"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def follow(text: str, folder: Path) -> int:
    """Run the commands of a page, and check that each output line it shows was printed.

    Return the number of these lines.
    """
    said, num_shown = "", 0
    blocks = re.findall(r"^```(bash|text)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for kind, block in blocks:
        if kind == "bash":
            said = run(folder, block)
            continue
        for line in block.splitlines():
            assert line in said.splitlines(), line
            num_shown += 1
    return num_shown


def run(folder: Path, script: str) -> str:
    """Run a script, and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        # The compilation cache is separate from that of the user.
        env=os.environ | {"PATH": path, "HOME": str(folder), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def missing(text: str) -> list[str]:
    """Return the files that a page names and that do not exist."""
    named = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.]*\w", text)
    assert named
    return [name for name in named if not (ROOT / name).exists()]
