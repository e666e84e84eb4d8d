"""The law of layers: modules import only from layers below, and each library has its
place."""

import ast
import collections
import graphlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A unit is a module or a folder of the package, a module or a folder of `environments`,
# or a folder beside the package. It imports from rows below its own, and from its own
# group where that makes no cycle.
LAYERS = (
    ["launch"],
    ["suites evaluation report agents serving interop drafting", "configs"],
    ["algorithms", "data", "train train_step"],
    ["rollout", "curriculum"],
    ["environments.registry"],
    ["environments.logs"],  # these worlds are tool worlds
    ["environments.*"],  # the folder of each environment; none imports another
    ["environments.world environments.transcript environments.grading"],
    ["expert", "domains"],
    [
        "losses log_probs advantages optim sharding checkpoint "
        "metrics monitors rewards",
        "models",
        "text",
    ],
    ["perturb types draw hashing files fast_compile"],
    ["__init__ environments"],  # import nothing, so that importing them is free
)
PLACE = {
    unit: (row, group)
    for row, groups in enumerate(LAYERS)
    for group in groups
    for unit in group.split()
}
ANY_ENVIRONMENT = "environments.*"
SHARED = {f"environments.{x}" for x in "registry world transcript grading".split()}
MAX_SHARE = 0.2  # of all lines, in one unit
# All others use only the interface of environments, and no particular environment.
KNOW_ENVIRONMENTS = {"launch", "suites", "interop", "drafting"}
KNOW_ENVIRONMENTS |= {"environments.registry", "environments.logs"}
HOMES = {
    "absl": {"launch"},
    "array_record": {"data"},
    "flax": {"models"},
    "gguf": {"interop"},  # it may not be installed
    "grain": {"data"},
    "matplotlib": {"launch", "report"},
    "ml_collections": {"launch", "configs"},
    "openai": {"agents", "launch"},  # it may not be installed
    "optax": {"optim", "train_step"},
    "orbax": {"checkpoint"},
    "pydantic": {"domains", "report", "serving"},
    "safetensors": {"models"},
    "scipy": {"report"},
    "starlette": {"serving"},  # it may not be installed
    "tensorboardX": {"metrics"},
    "tensorflow": set(),
    "tensorflow_datasets": {"data"},
    "torch": {"interop"},  # for comparison
    "transformers": {"interop"},  # it may not be installed
    "uvicorn": {"launch"},
}
PRINTERS = {"launch", "metrics"}
FOLDERS = ("openagent_jax", "launch", "configs")


def test_repository():
    files = [file for name in FOLDERS for file in (ROOT / name).rglob("*.py")]
    problems, edges = [], {}
    for file in files:
        path, source = file.relative_to(ROOT), file.read_text("utf-8")
        problems += [f"{path}: {problem}" for problem in breaches(path, source)]
        units = map(unit_of, imports(path, source))
        edges.setdefault(unit_of(module_of(path)), set()).update(filter(None, units))
    seen = {"launch", "types", "environments.tools", "environments.registry", "rollout"}
    assert seen <= edges.keys()
    assert not problems, "\n" + "\n".join(sorted(problems))
    assert cycle(edges) is None
    assert not PLACE.keys() - edges.keys() - {ANY_ENVIRONMENT}, "these do not exist"


def test_no_unit_is_too_large():
    lines = collections.Counter()
    for file in (file for name in FOLDERS for file in (ROOT / name).rglob("*.py")):
        unit = unit_of(module_of(file.relative_to(ROOT)))
        lines[unit] += len(file.read_text("utf-8").splitlines())
    unit, most = lines.most_common(1)[0]
    assert most <= MAX_SHARE * lines.total(), unit


def test_modules_make_no_cycle():
    """Within a unit too, and with the imports inside functions."""
    files = [x for name in FOLDERS for x in (ROOT / name).rglob("*.py")]
    sources = {x.relative_to(ROOT): x.read_text("utf-8") for x in files}
    names = {module_of(path) for path in sources}
    edges = {}
    for path, source in sources.items():
        found = imports(path, source)
        found |= {x.rpartition(".")[0] for x in found - names}  # what a module defines
        edges[module_of(path)] = names & found
    # To import a module is to import the packages that it is in.
    edges = {
        name: {x for x in others if not name.startswith(f"{x}.")}
        for name, others in edges.items()
    }
    assert edges["launch.common.backbones"] >= {"launch.common.runs"}
    assert cycle(edges) is None


@pytest.mark.parametrize(
    "unit",
    "rollout rewards algorithms curriculum data train evaluation agents serving".split()
    + "expert perturb report losses models text environments.world".split(),
)
@pytest.mark.parametrize("name", ["tools", "logs", "crafting"])
def test_no_environment_in_particular(unit, name):
    """Only suites, interop and launch may import from the folder of an environment."""
    path = unit.replace(".", "/") + ".py"
    for source in (
        f"from openagent_jax.environments.{name} import make",
        f"from openagent_jax.environments.{name}.make import functions",
        f"from openagent_jax.environments import {name}",
        f"def f():\n    import openagent_jax.environments.{name}.perturb.edits",
    ):
        found = breaches(Path("openagent_jax", path), source)
        assert f"{unit} imports environments.{name}" in found[0]


@pytest.mark.parametrize(
    ("path", "source", "problem"),
    [
        ("rollout.py", "from openagent_jax import losses, types", None),
        ("rollout.py", "from openagent_jax import train", "rollout imports train"),
        ("rollout.py", "from openagent_jax import curriculum", "imports curriculum"),
        ("losses.py", "def f():\n import openagent_jax.rollout", "imports rollout"),
        ("losses.py", "from openagent_jax.advantages import gae", None),
        ("losses.py", "from openagent_jax.models import lora", "imports models"),
        ("perturb.py", "from openagent_jax.text import chat", "perturb imports text"),
        ("perturb.py", "from openagent_jax import types", None),
        ("models/a.py", "from . import layers", None),
        ("models/a.py", "from ..text import chat", "models imports text"),
        ("models/__init__.py", "from . import layers", None),
        ("text/a.py", "from openagent_jax import models", "text imports models"),
        ("expert.py", "from openagent_jax.text import lexicon", None),
        ("expert.py", "from openagent_jax import rollout", "expert imports rollout"),
        ("algorithms/a.py", "from openagent_jax import train", "imports train"),
        ("algorithms/a.py", "from openagent_jax.curriculum import mix", None),
        ("data/a.py", "from openagent_jax.environments.world import World", None),
        ("data/a.py", "from openagent_jax.environments import registry", None),
        ("evaluation/a.py", "from openagent_jax.environments import transcript", None),
        ("suites/a.py", "from openagent_jax.environments.tools import make", None),
        ("interop/a.py", "import openagent_jax.environments.crafting.make", None),
        ("environments/tools/a.py", "from ...text import chat", None),
        ("environments/tools/b/a.py", "from ..types import Task", None),
        ("environments/tools/a.py", "from .. import world", None),
        ("environments/tools/a.py", "from .. import registry", "environments.registry"),
        (
            "environments/tools/a.py",
            "from ..crafting import a",
            "environments.crafting",
        ),
        ("environments/tools/a.py", "from ... import rollout", "imports rollout"),
        ("environments/new/a.py", "from ..world import Settings", None),
        ("environments/new/a.py", "from ..tools import make", "environments.tools"),
        ("environments/logs/a.py", "from ..tools import make", None),
        ("environments/tools/a.py", "from ..logs import make", "environments.logs"),
        ("drafting/a.py", "from openagent_jax.environments.tools import types", None),
        ("environments/registry.py", "from .new import make", None),
        ("environments/world.py", "from . import registry", "environments.registry"),
        ("environments/__init__.py", "from . import world", "environments.world"),
        ("train.py", "from openagent_jax.interop import gguf", "imports interop"),
        ("train.py", "from launch import build", "train imports launch"),
        ("types.py", "import configs.base", "types imports configs"),
        ("__init__.py", "from openagent_jax import types", "imports types"),
        ("types.py", "from openagent_jax import __version__", None),
        ("brand_new.py", "", "brand_new has no layer"),
        ("brand_new/a.py", "", "brand_new has no layer"),
        ("environments/tools/a.py", "import flax.linen as nn", "imports flax"),
        ("models/a.py", "import flax.linen as nn", None),
        ("train.py", "from ml_collections import config_dict", "ml_collections"),
        ("rollout.py", "def f():\n  print(1)", "rollout prints"),
        ("metrics.py", "print(1)", None),
    ],
)
def test_breaches(path, source, problem):
    found = breaches(Path("openagent_jax", path), source)
    assert problem in found[0] if problem else not found


def test_cycle():
    assert cycle({"a": {"a", "b"}, "b": {"c"}}) is None
    assert set(cycle({"a": {"b"}, "b": {"a"}})) == {"a", "b"}


MACHINE = re.compile(rb"(?<![\w.~])/(?:work|root|home/\w+|tmp/v)/")


def test_no_path_of_a_machine():
    """The repository contains no path that exists on one machine only."""
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
    """Yield what a file does that its layer forbids."""
    unit = unit_of(module_of(path))
    if place(unit) is None:
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


def place(unit: str) -> tuple[int, str] | None:
    """Return the row and the group of a unit; None if it has no layer."""
    if unit not in PLACE and is_environment(unit):  # each is a group of its own
        return PLACE[ANY_ENVIRONMENT][0], unit
    return PLACE.get(unit)


def is_environment(unit: str) -> bool:
    """Whether a unit is one environment, not a module that environments share."""
    return unit.startswith("environments.") and unit not in SHARED


def allowed(unit: str, other: str) -> bool:
    """Whether a unit may import another one."""
    own, theirs = place(unit), place(other)
    if own is None or theirs is None:
        return False
    if is_environment(other) and unit not in KNOW_ENVIRONMENTS | {other}:
        return False
    return own[0] < theirs[0] or own[1] == theirs[1]


def cycle(edges: dict[str, set[str]]) -> list[str] | None:
    """Units that import one another in a cycle; None if there are none."""
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
    if not rest or rest[0].startswith("__"):
        return "__init__"
    return ".".join(rest[: 2 if rest[0] == "environments" else 1])


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
