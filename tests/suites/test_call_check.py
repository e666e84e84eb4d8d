"""Our check of calls gives the same verdicts as the package `bfcl-eval`."""

import copy
import functools
import importlib.util
import json
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from openagent_jax.suites import call_check

CATEGORIES = ("simple_python", "multiple")
package = importlib.util.find_spec("bfcl_eval")
present = pytest.mark.skipif(
    package is None, reason="needs pip install --no-deps bfcl-eval"
)


@functools.cache
def theirs(dots=True):
    """Return the package's checker, without the hundred clients that it imports.

    Args:
      dots: whether the agent keeps dots in the names of functions, or writes
        underscores.
    """
    name = "bfcl_eval.constants.model_config"
    kinds = {"dots": False, "underscores": True}
    stub = types.ModuleType(name)
    stub.MODEL_CONFIG_MAPPING = {
        kind: types.SimpleNamespace(underscore_to_dot=x) for kind, x in kinds.items()
    }
    sys.modules.setdefault(name, stub)
    agent = "dots" if dots else "underscores"
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval import ast_checker

    def check(functions, calls, accepted, category):
        try:
            made = ast_checker.ast_checker(
                functions, calls, accepted, Language.PYTHON, category, agent
            )
            return made["valid"]
        except Exception as error:
            return type(error)

    return check


def ours(functions, calls, accepted):
    if len(calls) != 1:
        return False
    ((name, values),) = accepted[0].items()
    ((called, given),) = calls[0].items()
    if called != name:
        return False
    function = next(f for f in functions if f["name"] == name)
    return call_check.accepts(function["parameters"], values, given)


@functools.cache
def tasks(category):
    folder = Path(package.submodule_search_locations[0]) / "data"
    file = f"BFCL_v4_{category}.json"
    items, answers = (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (folder / file, folder / "possible_answer" / file)
    )
    return [
        (a["function"], b["ground_truth"]) for a, b in zip(items, answers, strict=True)
    ]


def call(accepted, rng):
    """A call with accepted values chosen at random."""
    ((name, values),) = accepted[0].items()
    given = {}
    for key, options in values.items():
        value = options[rng.integers(len(options))]
        if value != "":
            given[key] = filled(value, rng)
    return {name: given}


def filled(value, rng):
    """An accepted value with choices at random: a dict has lists of accepted values."""
    if isinstance(value, dict):
        chosen = {k: v[rng.integers(len(v))] for k, v in value.items()}
        return {k: v for k, v in chosen.items() if v != ""}
    if isinstance(value, list):
        return [filled(v, rng) for v in value]
    return copy.deepcopy(value)


ODD = [
    None,
    True,
    0,
    1,
    3,
    2.5,
    -1.0,
    "",
    "x",
    "a-b c",
    [],
    [1],
    ["x"],
    [[1]],
    {},
    {"a": 1},
]


def mutated(given, rng):
    """The arguments with one random change: missing, unknown, or another value."""
    given = copy.deepcopy(given)
    key = list(given)[rng.integers(len(given))] if given else "x"
    value = given.get(key)
    match rng.integers(9):
        case 0:
            given.pop(key, None)
        case 1:
            given["unknown"] = 1
        case 2:
            given[key] = ODD[rng.integers(len(ODD))]
        case 3 if isinstance(value, str):
            given[key] = value.upper().replace(" ", "-") + "."
        case 4 if type(value) in (int, float):
            given[key] = float(value) if type(value) is int else int(value)
        case 5 if isinstance(value, list):
            given[key] = value[::-1]
        case 6 if isinstance(value, list):
            given[key] = value + value[:1]
        case 7:
            given[key] = str(value)
        case 8 if isinstance(value, list) and value:
            value[0] = ODD[rng.integers(len(ODD))]
    return given


@present
@pytest.mark.parametrize("category", CATEGORIES)
def test_same_verdict_as_the_package(category):
    rng = np.random.default_rng(0)
    verdicts = {True: 0, False: 0}
    for functions, accepted in tasks(category):
        for i in range(25):
            made = call(accepted, rng)
            name = next(iter(made))
            for _ in range(min(i, 3)):
                made[name] = mutated(made[name], rng)
            if i == 24:
                made = {name + "x": made[name]}
            calls = [made] * (2 if i == 23 else 1)
            want = theirs()(functions, copy.deepcopy(calls), accepted, category)
            got = ours(functions, calls, accepted)
            if isinstance(want, type):  # it crashed; ours rejects the call
                assert not got
                continue
            assert got == want, (calls, accepted)
            verdicts[want] += 1
    assert min(verdicts.values()) > 1000, verdicts


POOL = {
    "string": ["a b", "A-B", "it's", 'it"s', "", "x"],
    "integer": [0, 1, 7],
    "float": [1.0, 2.5, 7],
    "boolean": [True, False],
    "array": [["a b"], ["A.B"], [1, 2], [1], [], ["it's"], [{"k": "v"}], [2.5]],
    "dict": [{"k": "v"}, {"k": "V", "l": 1}, {}, {"l": 1}],
}
ACCEPTED = {**POOL, "dict": [{"k": ["v"]}, {"k": ["v", ""], "l": [1]}, {"l": [1, ""]}]}
ACCEPTED["array"] = [["a b"], [1, 2], [1], [], [{"k": ["v"]}], [2.5], ['it"s']]


def drawn(pool, kind, rng):
    """A random value of a type, or in 15 % of the cases of another type."""
    if rng.random() < 0.15:
        kind = list(pool)[rng.integers(len(pool))]
    return copy.deepcopy(pool[kind][rng.integers(len(pool[kind]))])


@present
def test_same_verdict_on_random_tasks():
    rng = np.random.default_rng(1)
    verdicts = {True: 0, False: 0}
    for _ in range(30_000):
        names = ["p", "q", "r"][: rng.integers(1, 4)]
        kinds = {name: [*POOL][rng.integers(len(POOL))] for name in names}
        items = {name: [*POOL][rng.integers(4)] for name in names}
        if rng.random() < 0.3:
            items["p"] = "dict"
        properties = {
            name: {"type": kinds[name], "items": {"type": items[name]}}
            for name in names
        }
        required = [name for name in names if rng.random() < 0.5]
        accepted = {
            name: [drawn(ACCEPTED, kinds[name], rng) for _ in range(rng.integers(1, 4))]
            + [""] * int(rng.integers(2))
            for name in names
            if rng.random() < 0.9
        }
        given = {
            name: drawn(POOL, kinds[name], rng) for name in names if rng.random() < 0.9
        }
        parameters = {"properties": properties, "required": required}
        functions = [{"name": "f", "parameters": parameters}]
        calls, accepted = [{"f": given}], [{"f": accepted}]
        want = theirs()(functions, copy.deepcopy(calls), accepted, "simple_python")
        if isinstance(want, type):
            continue
        assert ours(functions, calls, accepted) == want, (functions, calls, accepted)
        verdicts[want] += 1
    assert min(verdicts.values()) > 1000, verdicts
