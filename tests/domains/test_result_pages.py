"""Pages in domain files: what is read, and what is wrong with them."""

import pytest

from openagent_jax.domains import domain_file, domain_needs, domain_spec
from openagent_jax.domains.domain_spec import CURSOR, PageSpec
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.text import nesting
from tests.domains import depots, inns
from tests.domains.inns import REMOVE

BLOCK, FUNCTION = ("tools", 0, "x-openagent"), ("tools", 0, "function")
PAGES = (*BLOCK, "pages")
ARGUMENT = (*FUNCTION, "parameters", "properties", "cursor")


def faults(document, limits=depots.LIMITS):
    with pytest.raises(domain_spec.DomainError) as caught:
        domain_file.read(document, limits)
    return caught.value.faults


def test_pages_are_read():
    crates, seals = depots.spec().tools[:2]
    assert crates.pages == PageSpec("crates", 2, "cursor", "next_cursor")
    assert crates.inputs == (("depot", "harbor"), ("cursor", CURSOR))
    assert crates.returns[-1] == ("next_cursor", CURSOR)
    assert (crates.further_pages, seals.further_pages) == (2, 2)
    assert [x.further_pages for x in depots.spec().tools[2:]] == [0, 0, 0]
    # No goal gives a cursor, or asks for one.
    assert "cursor" not in dict(crates.arguments) | dict(crates.named)


def test_needs():
    needs = domain_needs.of(depots.good())
    assert needs == domain_needs.Needs(3, 12, 3, paging=True)
    assert domain_file.default_limits(needs).paging
    assert not domain_needs.of(inns.good()).paging


@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ((*PAGES, "size"), 0, "pages.size: 0 records; write at least 1"),
        ((*PAGES, "size"), 5, "pages.size: a page has room for all records (at_most"),
        ((*PAGES, "size"), "2", "pages.size: '2' is not a whole number"),
        ((*PAGES, "list"), "boxes", "pages.list: unknown list 'boxes'; known: crates"),
        ((*PAGES, "list"), REMOVE, "pages: missing key 'list'; add it"),
        ((*PAGES, "token"), "x", "pages.token: unknown key 'token'; known: "),
        ((*PAGES, "cursor"), "after", "schema has no argument 'after'; add it there"),
        ((*PAGES, "next"), "crates", "it has fields of its own, so it cannot be a fie"),
        ((*PAGES, "next"), "office", "it has fields of its own, so it cannot be a fie"),
        (ARGUMENT, {"type": "integer"}, "'cursor' is not a string, but cursors are"),
        (
            ARGUMENT,
            {"type": "string", "pattern": "^[0-9]+$"},
            "takes cursors such as 'zuk4', but it does not match the pattern ^[0-9]+$",
        ),
        (
            (*FUNCTION, "parameters", "required"),
            ["depot", "cursor"],
            "'cursor' is required, but the first call has no cursor; make it optional",
        ),
        (
            (*BLOCK, "arguments", "cursor"),
            "harbor",
            "pages.cursor: 'cursor' is in arguments, which goals give; remove it there",
        ),
        ((*BLOCK, "argument_names", "cursor"), REMOVE, "missing argument 'cursor'"),
        ((*BLOCK, "effect"), True, "a call that changes something has one result"),
        (
            (*BLOCK, "requests", "fields", "next_cursor"),
            depots.ferries._noun("the * next cursor of {depot}"),
            "requests.fields.next_cursor: unknown field 'next_cursor'",
        ),
    ],
)
def test_faults(path, value, fault):
    document = depots.good()
    inns.write(document, path, value)
    assert any(fault in x for x in faults(document)), faults(document)


def test_there_are_at_most_eight_pages():
    document = depots.good()
    document["tools"][1]["x-openagent"]["returns"]["seals"]["at_most"] = 9
    (fault,) = faults(document)
    assert fault == (
        "tools[1].x-openagent.pages.size: 9 records on 9 pages, but the limit is 8 "
        "pages; raise size to 2 or lower at_most"
    )


@pytest.mark.parametrize(
    ("limits", "remedy"),
    [
        (dict(paging=False), "pages are off; set sandbox.paging=True"),
        (dict(num_args=1), "2 arguments with the cursor, but the limit is 1; remove"),
        (dict(num_fields=11), "raise sandbox.num_fields to 12"),
    ],
)
def test_limits_are_named(limits, remedy):
    made = Limits(**depots.SIZES | dict(conditions=True, paging=True) | limits)
    assert any(remedy in x for x in faults(depots.good(), made))


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("#0.next_cursor", "unknown source '#0.next_cursor'"),
        ("#0.crates.1.id", "unknown source '#0.crates.1.id'"),
        ("#0.count(crates)", ""),
    ],
)
def test_goals_do_not_use_cursors(answer, fault):
    document = depots.good()
    goal = {
        "name": "own",
        "constants": {"depot": "harbor"},
        "steps": [{"tool": "list_crates", "arguments": {"depot": "$depot"}}],
        "answer": answer,
        "phrases": {x: [f"{x} {{depot}}"] for x in depots.ferries.POOLS},
    }
    document["goals"] = [goal]
    if not fault:
        assert domain_file.read(document, depots.LIMITS).goals[0].answer == answer
        return
    assert any(fault in x for x in faults(document))
    goal["steps"][0]["arguments"]["cursor"] = "$depot"
    assert any("cursor: unknown argument 'cursor'" in x for x in faults(document))


def test_sampled_goals_read_one_long_list():
    """Each list occurs, but no goal with two of them, which would be long."""
    spec = depots.spec()
    pages = {tool.name: tool.further_pages for tool in spec.tools}
    found = set()
    for goal in goal_sampling.sample_goals(spec, depots.LIMITS, 200):
        tools = [name for name, _ in goal.steps if pages[name]]
        assert len(tools) <= 1
        found |= {*tools}
    assert found == {"list_crates", "list_seals"}


def test_the_name_of_a_cursor_may_have_a_dot():
    document = depots.good()
    name, (meaning, function) = (
        "page.cursor",
        (document["tools"][0][x] for x in ("x-openagent", "function")),
    )
    for part in (function["parameters"]["properties"], meaning["argument_names"]):
        part[name] = part.pop("cursor")
    meaning["pages"]["cursor"] = name
    (argument, _) = depots.spec(document).tools[0].inputs[-1]
    assert nesting.parse(argument) == (name,)
