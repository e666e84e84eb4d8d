"""What the weights of a model were trained on: the runs that made them, in their order.

Each run is a record of its name, domains and perturbations. A model about which nothing
is known is a record without domains. The chain of a run is in its manifest, and that of
a folder with weights in a file of the folder, if it has one.
"""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.common.config import Config
from openagent_jax import perturb
from openagent_jax.curriculum import mix
from openagent_jax.domains import development
from openagent_jax.environments import registry
from openagent_jax.environments.world import names_of
from openagent_jax.evaluation.claims import Claims, Trained

FILE = "trained_on.json"
KEY = "trained_on"  # in a manifest and in a report
Stages = tuple[Mapping[str, Any], ...]


def of_folder(folder: Path) -> Stages:
    """Return the runs that made the weights of a folder."""
    with contextlib.suppress(OSError, ValueError):
        return tuple(json.loads((folder / FILE).read_text("utf-8")))
    return _unknown(folder.name)


def of_run(workdir: Path) -> Stages:
    """Return the runs that made the weights of a run, itself included.

    Nothing is known of a run of an earlier version, whose manifest lacks this list.
    """
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return tuple(json.loads((workdir / "manifest.json").read_text("utf-8"))[KEY])
    return _unknown(workdir.name)


def stage(c: Config, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the record of a run.

    Args:
      c: the config of the run.
      data: the metadata of the stored demonstrations that it is trained on, if any.
    """
    spec, domain = registry.spec(c.sandbox.domain), c.sandbox.domain
    names = mix.chosen(spec, c.paft.perturbations, c.paft.leave_out)
    names = names if c.paft.alpha else ()
    if data is not None:
        domain, names = data["domain"], data["perturbations"]
        known = perturb.catalogue(spec)
        names = [x for x in names if {*perturb.part_names(x)} <= known.keys()]
    domains = [
        name.removesuffix(development.SUFFIX)
        for one in (domain, *c.train.other_domains)
        for name in names_of(one)
    ]
    if not c.has_tasks:
        domains = names = []
    return {
        "name": c.name,
        "algorithm": c.algorithm.name,
        "domains": domains,
        "split": "train",
        "perturbations": sorted(perturb.kinds(spec, names)),
    }


def claims(c: Config, stages: Stages | None) -> Claims:
    """Return what the rows of an evaluation can claim.

    Args:
      c: the config.
      stages: the runs that made the policy; None if nothing is known of it.
    """
    return Claims(
        split=c.eval.split,
        domains=names_of(c.suite),
        transfer=names_of(c.sandbox.transfer),
        trained=None if stages is None else _trained(stages),
    )


def _trained(stages: Sequence[Mapping[str, Any]]) -> Trained | None:
    """Return what is known of all runs together; None if nothing is."""
    known = [one for one in stages if one["domains"] is not None]
    if stages and not known:
        return None
    return Trained(
        frozenset(name for one in known for name in one["domains"]),
        frozenset(name for one in known for name in one["perturbations"]),
    )


def _unknown(name: str) -> Stages:
    return ({"name": name, "domains": None, "perturbations": None},)
