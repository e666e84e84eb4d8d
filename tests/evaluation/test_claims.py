"""What rows claim, by what was trained on; a table worked out by hand."""

import pytest

from openagent_jax import perturb, report
from openagent_jax.environments.tools import make as tools
from openagent_jax.evaluation.claims import Claims, Trained

POI = frozenset({"random", "poi"})
MIX = frozenset({"semantic_trap", "runtime_error", "tool_withheld"})


def standing(
    name, domains=("poi",), trained=POI, kinds=MIX, split="test", transfer=("medical",)
):
    entry = perturb.entry(tools.DOMAINS, name) if name else None
    known = None if trained is None else Trained(trained, kinds)
    return Claims(split, domains, transfer, known).of(entry)


@pytest.mark.parametrize(
    ("name", "family", "claim"),
    [
        (None, "held_out", "unseen_forms"),
        ("semantic_trap", "train", "unseen_forms"),
        ("tool_order", "held_out", "unseen_kind"),
        ("semantic_trap+runtime_error", "train", "unseen_forms"),
        ("semantic_trap+tool_order", "held_out", "unseen_kind"),
        ("entity_shift", "held_out", "entities"),
        ("entity_shift+tool_order", "held_out", "entities"),
        ("domain_transfer", "held_out", "held_out_domain"),
        ("domain_transfer+semantic_trap", "held_out", "held_out_domain"),
        ("tool_withheld", "train", "unseen_forms"),
        ("unsolvable", "held_out", "unseen_kind"),  # of two kinds that were left out
    ],
)
def test_by_kind(name, family, claim):
    domain = "medical" if name and "domain_transfer" in name else "poi"
    assert standing(name) == report.Standing(family, claim, domain)


@pytest.mark.parametrize(
    ("name", "family", "claim"),
    [
        (None, "held_out", "held_out_domain"),
        ("semantic_trap", "train", "held_out_domain"),
        ("tool_order", "held_out", "held_out_domain"),
        ("entity_shift", "held_out", "held_out_domain"),
    ],
)
def test_another_domain(name, family, claim):
    found = standing(name, domains=("medical", "law"))
    assert found == report.Standing(family, claim, "medical,law")


def test_a_mean_over_known_and_other_domains_claims_nothing():
    assert standing("semantic_trap", ("poi", "law")).claim is None
    assert standing("tool_order", ("poi", "law")).claim is None
    assert standing("entity_shift", ("poi", "law")).claim is None


def test_the_training_split_claims_nothing_but_kinds():
    assert standing(None, split="train") == report.Standing("train", None, "poi")
    assert standing("semantic_trap", split="train").claim is None
    assert standing("tool_order", split="train").claim == "unseen_kind"


def test_a_domain_that_is_transferred_to_may_have_been_trained_on():
    found = standing("domain_transfer", transfer=("poi",))
    assert found == report.Standing("train", "unseen_forms", "poi")


def test_development_splits_are_of_their_domain():
    assert standing(None, domains=("poi:dev",)).claim == "unseen_forms"


@pytest.mark.parametrize("name", [None, "semantic_trap", "domain_transfer"])
def test_nothing_is_claimed_of_unknown_training(name):
    found = standing(name, trained=None)
    assert (found.family, found.claim) == ("held_out", None)
