"""Which perturbations PAFT draws from: the default mix, and what may be left out."""

import collections

import pytest

from openagent_jax import perturb
from openagent_jax.curriculum import mix
from openagent_jax.environments import registry
from openagent_jax.environments.tools import make as tools

DEFAULT = ("default",)
PAIR = ("unsolvable", "still_solvable")


def counts(left_out=(), spec=tools.DOMAINS):
    return collections.Counter(mix.chosen(spec, DEFAULT, left_out))


@pytest.mark.parametrize("domain", ["poi", "crafting"])
def test_shares_of_what_is_refused_and_asked(domain):
    spec = registry.spec(domain)
    entries, found = perturb.catalogue(spec), counts(spec=spec)
    pairs = {(x.name, x.counterpart) for x in entries.values() if not x.solvable}
    share = 0.0
    for one, other in pairs:
        assert found[one] == found[other]
        share += found[one] / found.total()
    assert abs(share - 1 / 8) < 0.02
    within = {name for x in entries.values() for name in x.includes}
    trained = {x.name for x in entries.values() if not x.unseen} - within
    assert {*found} == trained  # every kind
    asking = {x.name for x in entries.values() if x.response == "ask"}
    share = sum(found[name] for name in asking) / found.total()
    assert abs(share - 1 / 8) < 0.02
    others = trained.difference(asking, *pairs)
    assert {found[name] for name in others} == {1}


def test_a_kind_is_left_out():
    before, after = counts(), counts(["logic_inversion"])
    assert before.keys() - after.keys() == {"logic_inversion"}
    assert before.total() == after.total()
    assert all(before[name] == after[name] for name in PAIR)


@pytest.mark.parametrize("name", ["perception", "interaction", "reasoning", "query"])
def test_a_tier_or_a_shift_is_left_out(name):
    before, after = counts(), counts([name])
    gone = before.keys() - after.keys()
    of = {x.name for x in tools.DOMAINS.perturbations if name in (x.tier, x.shift)}
    assert gone == of & before.keys() and gone
    assert before.total() == after.total()
    assert all(before[name] == after[name] for name in PAIR)
    more = [num - before[name] for name, num in after.items() if name not in PAIR]
    assert max(more) - min(more) <= 1


def test_unsolvable_tasks_go_with_their_counterparts():
    for left_out in PAIR:
        after = counts([left_out])
        assert not {*PAIR} & after.keys()
        assert counts().keys() - after.keys() == {*PAIR}
    after = counts(["tool_withheld"])
    others = "fatal_error", "contradiction", "error_with_alternative"
    others = {*others, "spare_contradiction"}
    assert after.keys() - counts().keys() == others
    half = counts()["unsolvable"] / 2  # of each of the two kinds that are left
    assert all(abs(after[name] - half) <= 1 for name in others)
    for one, other in (
        ("fatal_error", "error_with_alternative"),
        ("contradiction", "spare_contradiction"),
    ):
        assert after[one] == after[other]
    gone = {*PAIR, "knowledge_update"}
    assert counts(["internalization"]).keys() == counts().keys() - gone


@pytest.mark.parametrize(
    ("names", "left_out", "message"),
    [
        (("entity_shift",), (), '"entity_shift" cannot be trained on, since its tasks'),
        (("domain_transfer",), (), "are of another domain, which evaluation holds out"),
        (("domain_transfer+tool_order",), (), "cannot be trained on"),
        (DEFAULT, ("entity_shift",), '"entity_shift" is left out, but is not trained'),
        (DEFAULT, ("domain",), '"domain" is left out, but is not trained on; remove'),
        (("tool_order",), ("action",), "nothing is left without action"),
        (DEFAULT, ("tipos",), 'unknown perturbation "tipos"'),
    ],
)
def test_bad_choices(names, left_out, message):
    with pytest.raises(ValueError, match=message):
        mix.chosen(tools.DOMAINS, names, left_out)


def test_compositions_go_with_their_parts():
    names = ("semantic_trap+runtime_error", "tool_order", "tool_order")
    found = mix.chosen(tools.DOMAINS, names, ("runtime_error",))
    assert found == ("tool_order",) * 3
