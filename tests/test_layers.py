"""The law of layers: imports go down only, and every library has its place."""

import ast
import graphlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A unit is a module or a folder of the package, or a folder beside it. It imports
# from rows below its own, and from its own group where that makes no circle.
LAYERS = (
    ["launch"],
    ["interop", "configs"],
    ["train evaluate report rehearsal transcript", "serving"],
    ["algorithms"],
    ["rollout rewards"],
    ["worlds"],
    ["data"],
    [
        "losses advantages optim sharding checkpoint metrics monitors",
        "sandbox",
        "perturb",
        "models",
    ],
    ["types", "draw", "sampling"],
    ["__init__"],  # of the package: imports nothing, so that importing it is free
)
PLACE = {
    unit: (row, group)
    for row, groups in enumerate(LAYERS)
    for group in groups
    for unit in group.split()
}
HOMES = {
    "absl": {"launch"},
    "array_record": {"data"},
    "flax": {"models"},
    "gguf": {"interop"},  # users may not have it
    "grain": {"data"},
    "ml_collections": {"launch", "configs"},
    "openai": {"interop", "launch"},  # users may not have it
    "optax": {"optim", "train"},
    "orbax": {"checkpoint"},
    "starlette": {"serving"},  # users may not have it
    "tensorflow": set(),
    "tensorflow_datasets": {"data"},
    "torch": {"interop"},  # to be measured against
    "transformers": {"interop"},  # users may not have it
    "uvicorn": {"launch"},
}
PRINTERS = {"launch", "metrics"}


def test_repository():
    folders = ("openagent_jax", "launch", "configs")
    files = [file for name in folders for file in (ROOT / name).rglob("*.py")]
    problems, edges = [], {}
    for file in files:
        path, source = file.relative_to(ROOT), file.read_text("utf-8")
        problems += [f"{path}: {problem}" for problem in breaches(path, source)]
        units = map(unit_of, imports(path, source))
        edges.setdefault(unit_of(module_of(path)), set()).update(filter(None, units))
    assert {"launch", "types", "sandbox", "perturb"} <= edges.keys()  # saw something
    assert not problems, "\n" + "\n".join(sorted(problems))
    assert circle(edges) is None


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("rollout.py", "from openagent_jax import losses, types", None),
        ("rollout.py", "from openagent_jax import train", "rollout imports train"),
        ("losses.py", "def f():\n import openagent_jax.rollout", "imports rollout"),
        ("losses.py", "from openagent_jax.advantages import gae", None),
        ("losses.py", "from openagent_jax.sandbox import oracle", "imports sandbox"),
        ("perturb/a.py", "from ..sandbox import oracle", "perturb imports sandbox"),
        ("perturb/a.py", "from . import base", None),
        ("perturb/__init__.py", "from . import base", None),
        ("models/a.py", "from .. import perturb", "models imports perturb"),
        ("sandbox/a.py", "from openagent_jax import models", "imports models"),
        ("train.py", "from openagent_jax.interop import hf", "imports interop"),
        ("train.py", "from launch import build", "train imports launch"),
        ("types.py", "import configs.base", "types imports configs"),
        ("__init__.py", "from openagent_jax import types", "imports types"),
        ("types.py", "from openagent_jax import __version__", None),
        ("brand_new.py", "", "brand_new has no layer"),
        ("sandbox/a.py", "import flax.linen as nn", "sandbox imports flax"),
        ("models/a.py", "import flax.linen as nn", None),
        ("train.py", "from ml_collections import config_dict", "ml_collections"),
        ("rollout.py", "def f():\n  print(1)", "rollout prints"),
        ("metrics.py", "print(1)", None),
    ],
)
def test_breaches(path, source, problem):
    found = breaches(Path("openagent_jax", path), source)
    assert problem in found[0] if problem else not found


def test_circle():
    assert circle({"a": {"a", "b"}, "b": {"c"}}) is None
    assert set(circle({"a": {"b"}, "b": {"a"}})) == {"a", "b"}


MACHINE = re.compile(rb"(?<![\w.~])/(?:work|root|home/\w+|tmp/v)/")


def test_no_path_of_a_machine():
    """What works only where it was written does not go into the repository."""
    git = "git ls-files -z --cached --others --exclude-standard".split()
    listed = subprocess.run(git, cwd=ROOT, capture_output=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = [name for name in listed.stdout.decode().split("\0") if name]
    files = [ROOT / name for name in names if (ROOT / name).is_file()]
    assert Path(__file__) in files
    hits = [str(file) for file in files if MACHINE.search(file.read_bytes())]
    assert not hits


def test_path_of_a_machine_is_seen():
    assert MACHINE.search(b"see '/wor" + b"k/shared'")
    assert not MACHINE.search(b"https://host.org/work/ and ~/work/")


def breaches(path: Path, source: str) -> list[str]:
    """What a file does that its layer forbids."""
    unit = unit_of(module_of(path))
    if unit not in PLACE:
        return [f"{unit} has no layer; give it one in {Path(__file__).name}"]
    problems = []
    for module in sorted(imports(path, source)):
        other, library = unit_of(module), module.split(".")[0]
        if other and not allowed(unit, other):
            problems.append(f"{unit} imports {other}")
        if unit not in HOMES.get(library, {unit}):
            problems.append(f"{unit} imports {library}")
    if unit not in PRINTERS and prints(source):
        problems.append(f"{unit} prints")
    return problems


def allowed(unit: str, other: str) -> bool:
    if other not in PLACE:
        return False
    (row, group), (other_row, other_group) = PLACE[unit], PLACE[other]
    return row < other_row or group == other_group


def circle(edges: dict[str, set[str]]) -> list[str] | None:
    """Units that import one another in a ring."""
    graph = {unit: others - {unit} for unit, others in edges.items()}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def unit_of(module: str) -> str | None:
    """The unit a module belongs to; None if it is not ours."""
    top, *rest = module.split(".")
    if top in ("launch", "configs"):
        return top
    if top != "openagent_jax":
        return None
    return rest[0] if rest and not rest[0].startswith("__") else "__init__"


def module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, source: str) -> set[str]:
    """Full names of all that a file imports, wherever in the file."""
    package = path.parent.parts
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{base}.{alias.name}" for alias in node.names}
    return found


def prints(source: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        for node in ast.walk(ast.parse(source))
    )
