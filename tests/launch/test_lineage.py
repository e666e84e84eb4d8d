"""What a run was trained on follows from its chain, and travels with its weights."""

import dataclasses
import json

from launch.common import backbones, lineage, model_folders, model_loading
from openagent_jax import perturb
from openagent_jax.domains import library
from openagent_jax.environments.tools import make as tools
from tests import tiny

EVERY = {
    entry.name
    for entry in tools.DOMAINS.perturbations
    if not entry.unseen and not entry.includes
}


def test_paft_trains_on_every_kind():
    """All but other domains and unfamiliar entities."""
    stage = lineage.stage(tiny.full_config("paft"))
    assert stage["domains"] == ["poi"] and stage["split"] == "train"
    assert {*stage["perturbations"]} == EVERY
    names = {entry.name for entry in tools.DOMAINS.perturbations}
    left = names - EVERY - {"unsolvable", "still_solvable"}
    assert {"domain_transfer", "entity_shift"} <= left
    assert all(perturb.entry(tools.DOMAINS, name).unseen for name in left)
    assert lineage.stage(tiny.full_config("sft"))["perturbations"] == []


def test_leaving_one_out():
    kinds = lineage.stage(tiny.full_config("leave_out"))["perturbations"]
    assert EVERY - {*kinds} == {"logic_inversion"}
    c = tiny.full_config("leave_out", "tool_withheld")
    kinds = lineage.stage(c)["perturbations"]
    assert EVERY - {*kinds} == {"tool_withheld", "spare_withheld"}


def test_domains_are_listed_by_name():
    c = tiny.full_config("sft").replace({"sandbox.domain": "all_train,medical"})
    domains = lineage.stage(c)["domains"]
    assert len(domains) == 19 and {"poi", "medical"} <= {*domains}
    c = c.replace({"sandbox.domain": "poi:dev"})
    assert lineage.stage(c)["domains"] == ["poi"]


def test_stored_demonstrations_say_what_they_are():
    data = {"domain": "medical", "perturbations": ["tool_order", "unsolvable", "gone"]}
    stage = lineage.stage(tiny.full_config("sft"), data)
    assert stage["domains"] == ["medical"]
    assert {"tool_order", "fatal_error"} <= {*stage["perturbations"]}


def test_backbones(tmp_path):
    """Ours says what it was trained on, random weights on nothing, others do not."""
    c = tiny.full_config("sft")
    start, short, last = backbones.backbone(c).trained_on
    never = {*library.HELD_OUT, *library.DEV, "poi"}
    for stage in (start, short, last):
        assert "random" in stage["domains"] and not never & {*stage["domains"]}
    assert start["perturbations"] == short["perturbations"] == []
    assert "tool_redirection" in last["perturbations"]
    assert backbones.backbone(c.replace({"init_from": "random"})).trained_on == ()
    assert lineage.claims(c, ()).trained.domains == frozenset()
    (other,) = lineage.of_folder(tmp_path)
    assert other["domains"] is None
    assert lineage.claims(c, (other,)).trained is None
    both = lineage.claims(c, (other, lineage.stage(c))).trained
    assert both.domains == {"poi"}
    assert lineage.claims(c, None).trained is None


def test_a_run_remembers_its_chain(tmp_path):
    c = tiny.config("sft")
    model = backbones.backbone(c)
    assert lineage.of_run(tmp_path)[0]["domains"] is None  # no manifest
    stages = [*lineage.of_folder(model_folders.BUILTIN / "nano"), lineage.stage(c)]
    tiny.save_run(tmp_path, c, model, model.init(tiny.jax.random.key(0)))
    (tmp_path / "manifest.json").write_text(json.dumps({lineage.KEY: stages}))
    after = c.replace({"init_from": str(tmp_path)})
    assert backbones.backbone(after).trained_on == tuple(stages)
    assert backbones.restore(tmp_path)[0].trained_on == tuple(stages)
    (tmp_path / "manifest.json").write_text("{}")  # of an earlier version
    assert backbones.backbone(after).trained_on[0]["domains"] is None


def test_an_exported_folder_keeps_it(tmp_path):
    nano = model_folders.BUILTIN / "nano"
    stages = lineage.of_folder(nano)
    (tmp_path / lineage.FILE).write_text(json.dumps(stages))
    assert lineage.of_folder(tmp_path) == stages
    loaded = model_loading.from_folder(nano)
    assert dataclasses.replace(loaded).trained_on == stages
