"""Pages of docs/ whose commands are run, as a user pastes them."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def checkout(folder: Path) -> Path:
    """A checkout in which files may be left behind."""
    for name in ("configs", "launch", "openagent_jax"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def follow(text: str, folder: Path) -> int:
    """Run what a page says; how many lines it shows, all of which were printed."""
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
    """What it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        # Compiled programs are kept, but not among those of whoever runs this.
        env=os.environ | {"PATH": path, "HOME": str(folder), "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def missing(text: str) -> list[str]:
    """Files that a page names and that do not exist; it names some."""
    named = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.]*\w", text)
    assert named
    return [name for name in named if not (ROOT / name).exists()]
