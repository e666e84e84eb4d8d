"""The examples in docstrings run, and every part of the library has some."""

import doctest
import importlib
import pkgutil

import pytest

import configs
import launch
import openagent_jax

PACKAGES = configs, launch, openagent_jax
MODULES = sorted(
    module.name
    for package in PACKAGES
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    # Commands define flags, and only one of them can be imported.
    if package is not launch or module.ispkg or module.name.count(".") > 1
)
LIBRARY = [name for name in MODULES if name.startswith("openagent_jax.")]
ROOMS = sorted({name.split(".")[1] for name in LIBRARY})
# Examples of these would need a policy or a run; those of the registry play an expert.
WITHOUT = {"expert", "rollout", "train", "types"}


def examples(name: str) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = finder.find(importlib.import_module(name))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in examples(name):
        report = []
        runner.run(test, out=report.append)
        assert not runner.failures, "".join(report)


@pytest.mark.parametrize("room", [x for x in ROOMS if x not in WITHOUT])
def test_every_subpackage_has_examples(room):
    names = [name for name in LIBRARY if name.split(".")[1] == room]
    assert any(examples(name) for name in names)
