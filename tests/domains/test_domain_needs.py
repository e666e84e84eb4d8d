"""Limits follow from what the files of domains have."""

import json
from dataclasses import replace

import pytest

from openagent_jax.domains import domain_file, domain_needs
from openagent_jax.domains.domain_needs import Needs
from openagent_jax.environments.tools import make
from openagent_jax.environments.world import Settings
from tests.domains import ferries


def tool(**meaning):
    return {"x-openagent": {"arguments": {}, "returns": {}} | meaning}


@pytest.mark.parametrize(
    "meaning, needs",
    [
        ({}, Needs()),
        ({"arguments": {"to.city": "city"}}, Needs(depth=2)),
        ({"returns": {"a.b.c": "kind"}}, Needs(depth=3)),
        (  # the records of a list are fields, beside the others
            {
                "returns": {
                    "total": "n",
                    "x": {"list": {"id": "k", "n": "n"}, "at_least": 0, "at_most": 3},
                },
                "requests": {
                    "fields": {"total": {}, "count(x)": {}, "max(x.n).id": {}}
                },
            },
            Needs(depth=3, num_fields=7, num_derived=2),
        ),
        (  # a list that no goal searches
            {"returns": {"x": {"list": {"id": "k"}, "at_least": 1, "at_most": 2}}},
            Needs(depth=3, num_fields=2, num_derived=1),
        ),
        (  # each list has a number of records
            {
                "returns": {
                    "x": {"list": {"n": "n"}, "at_least": 1, "at_most": 2},
                    "y": {"list": {"n": "n"}, "at_least": 1, "at_most": 2},
                },
                "requests": {"fields": {"max(x.n).n": {}}},
            },
            Needs(depth=3, num_fields=4, num_derived=3),
        ),
    ],
)
def test_needs_of_a_tool(meaning, needs):
    found = domain_needs.of({"tools": [tool(), tool(**meaning)]})
    assert found == needs
    assert type(found.num_derived) is int  # it is the size of an array


@pytest.mark.parametrize(
    "document",
    [
        None,
        {"tools": 3},
        {"tools": [3, {"x-openagent": []}, tool(returns=[], arguments=5)]},
        {"tools": [tool(returns={"x": {"list": 7, "at_most": "many"}, "..": "k"})]},
    ],
)
def test_what_cannot_be_read_has_no_great_needs(document):
    assert domain_needs.of(document).num_fields <= 1


def test_several_domains():
    assert domain_needs.most([Needs(2, 0, 1), Needs(1, 5, 0)]) == Needs(2, 5, 1)
    assert domain_needs.most([]) == Needs()


def test_limits_have_room_for_what_the_domains_need(tmp_path):
    file = tmp_path / "ferries.json"
    file.write_text(json.dumps(ferries.good()))
    needs = domain_file.needs(file)
    assert needs.depth > 1 and needs.num_derived and needs.num_fields > 2
    plain = make.limits_of(Settings("poi"))
    assert (plain.depth, plain.num_fields, plain.num_derived) == (1, 2, 0)
    for settings in (
        Settings(str(file)),
        Settings(f"poi,{file}"),
        Settings("poi", transfer=str(file)),
    ):
        limits = make.limits_of(settings)
        assert limits.depth == needs.depth
        assert limits.num_derived == needs.num_derived
        assert limits.num_fields == needs.num_fields
        assert domain_file.faults(file, limits) == []
    assert domain_file.load(file).name == "ferries"
    set_to_less = make.limits_of(replace(Settings(str(file)), depth=1))
    assert "raise sandbox.depth" in " ".join(domain_file.faults(file, set_to_less))


def test_goals_are_sampled_unless_the_only_domain_has_its_own():
    poi, farming = map(domain_file.load, ("poi", "farming"))
    num = {
        name: make.num_goals(Settings(name), spec)
        for name, spec in (("poi", poi), ("farming", farming), ("poi,farming", poi))
    }
    assert num == {"poi": 0, "farming": 1024, "poi,farming": 1024}
    for given in (0, 7):
        settings = Settings("poi", num_goals=given)
        assert make.num_goals(settings, poi) == given
