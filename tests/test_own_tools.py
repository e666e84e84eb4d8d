"""The commands of docs/own_tools.md do what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openagent_jax import report

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own_tools.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(bash|text)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A checkout in which files may be left behind."""
    made = tmp_path_factory.mktemp("checkout")
    for name in ("configs", "launch", "openagent_jax"):
        (made / name).symlink_to(ROOT / name)
    return made


def run(folder: Path, script: str) -> str:
    """As a user pastes it; what it prints."""
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


def test_the_page(folder):
    said, num_shown = "", 0
    for kind, text in BLOCKS:
        if kind == "bash":
            said = run(folder, text)
            continue
        for line in text.splitlines():
            assert line in said.splitlines(), line
            num_shown += 1
    assert num_shown > 8
    for name, success in (("my_tools", None), ("my_tools_paft", None), ("my_agent", 1)):
        made = report.load(folder / "runs" / name)
        assert made["suite"] == "my_tools.json"
        rows = {row["scenario"]: row["success"]["mean"] for row in made["rows"]}
        assert list(rows) == ["clean", "identity_erasure", "unsolvable"]
        assert success is None or rows["unsolvable"] == success


def test_files_that_it_names_exist():
    named = re.findall(r"(?:configs|docs|launch|openagent_jax)/[\w/.]*\w", PAGE)
    assert len(named) > 3
    for name in named:
        assert (ROOT / name).exists(), name
