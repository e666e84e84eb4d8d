"""The library of domains: rich enough, and two groups that share nothing."""

import json
import re
from pathlib import Path

import pytest

from openagent_jax.domains import domain_file, domain_spec, library
from openagent_jax.domains.goals import goal_sampling
from openagent_jax.domains.limits import Limits
from openagent_jax.text import documents, style
from tests import helpers

# Words that both groups may use; see the note at its top.
GENERAL = Path(__file__).with_name("general_words.txt")
FIRST = ("poi", "medical")  # older, and alike in their function words
NAMES = [x for x in domain_file.builtins() if x not in FIRST]
SPECS = {name: domain_file.load(name) for name in domain_file.builtins()}
POOLS = ("train", "test", "rewrite_train", "rewrite_test")


def stem(word):
    return word[:-1] if len(word) > 3 and re.search("[^s]s$", word) else word


def words(text):
    """The words of a text or name, in lower case and the singular."""
    text = re.sub(r"\{[^}]*\}", " ", text)
    text = re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower().replace("_", " ")
    return {stem(word) for word in re.findall("[a-z]+", text) if len(word) > 1}


def phrases_of(tool):
    if tool.requests is None:
        return
    for pools in (tool.requests.do, *tool.requests.fields.values()):
        for pool in POOLS:
            yield from pools[pool]


def content_words(spec):
    """The words of documents, synonyms, phrases, tables and units, apart from general
    ones."""
    found = set().union(*(words(kind.unit) for kind in spec.types))
    for table in spec.tables:
        found |= set().union(words(table.name), *map(words, dict(table.columns)))
    for tool in spec.tools:
        texts = [tool.name, tool.description, *dict(tool.arguments)]
        texts += [*dict(tool.returns), *phrases_of(tool)]
        synonyms = (tool.names, tool.descriptions, *tool.argument_names.values())
        texts += [x for pools in synonyms for pool in pools.values() for x in pool]
        found |= set().union(*map(words, texts))
    for goal in spec.goals:
        found |= set().union(*(words(x) for pool in POOLS for x in goal.phrases[pool]))
    general = words(GENERAL.read_text().partition("\n\n")[2])
    return found - general


def test_groups():
    """What a backbone is pretrained on, or chosen by, is not what it is tested in."""
    train, tested = {*library.TRAIN}, {"poi", *library.HELD_OUT}
    assert {*library.PRETRAIN} | {*library.DEV} == train - {"poi"}
    assert not ({*library.PRETRAIN} | {*library.DEV}) & tested
    assert not {*library.PRETRAIN} & {*library.DEV}


def tool_names(spec):
    return {
        x for t in spec.tools for x in (t.name, *t.names["train"], *t.names["test"])
    }


def values(spec):
    """The names of all entities and the words of enums; true and false are no words."""
    kinds = [x for x in spec.types if x.kind != "number" and not x.unquoted]
    return {x for kind in kinds for x in (*kind.train, *kind.test, *kind.shift)}


def wording(phrase):
    """A phrase without its values and what may be left out, in lower case."""
    return re.sub(r"\{[^}]*\}", "{}", re.sub(r"\[[^]]*\]", "", phrase)).lower()


def test_two_groups_of_all_domains():
    assert len(library.TRAIN) == 18 and len(library.HELD_OUT) == 8
    assert sorted((*library.TRAIN, *library.HELD_OUT)) == domain_file.builtins()


@pytest.mark.parametrize("held_out", library.HELD_OUT)
def test_groups_share_nothing(held_out):
    ours = SPECS[held_out]
    for name in library.TRAIN:
        theirs = SPECS[name]
        assert not tool_names(ours) & tool_names(theirs)
        assert not {x.name for x in ours.types} & {x.name for x in theirs.types}
        assert not values(ours) & values(theirs)
        if (name, held_out) != FIRST:
            assert not content_words(ours) & content_words(theirs)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_has_typed_tools_that_chain(self, name):
        spec = SPECS[name]
        assert 10 <= len(spec.tools) <= 20 and spec.source
        returned = {kind for tool in spec.tools for _, kind in tool.returns}
        returned -= {domain_spec.CURSOR}
        taken = {kind for tool in spec.tools for _, kind in tool.arguments}
        assert len(returned & taken) >= 5
        assert {kind.name for kind in spec.types} == returned | taken
        assert sum(bool(tool.optional) for tool in spec.tools) >= 4
        assert sum(tool.effect for tool in spec.tools) >= 2
        assert sum(kind.decimals > 0 for kind in spec.types) >= 2
        assert any(kind.unquoted for kind in spec.types)
        assert any(tool.code_from for tool in spec.tools)
        assert any(tool.call_after for tool in spec.tools)

    def test_documents_are_short(self, name):
        sizes = []
        for tool in SPECS[name].tools:
            slots = [argument for argument, _ in tool.arguments]
            text = "".join(
                {
                    style.NAME: tool.name,
                    style.TEXT: tool.description,
                    style.ARGUMENT: slots[piece.index] if slots else "",
                }.get(piece.kind, piece.text)
                for piece in documents.compact(tool.function, slots)
            )
            encoded = helpers.tokenizer().encode(text, add_special_tokens=False)
            sizes.append(len(encoded.ids))
        assert sum(sizes) / len(sizes) <= 45 and max(sizes) <= 75


@pytest.mark.parametrize("name", SPECS)
class TestRequests:
    def test_phrases_share_a_content_word_with_the_document(self, name):
        empty = set("a an the of in on at by for from to with and or that this".split())
        for tool in SPECS[name].tools:
            for phrase in phrases_of(tool):
                assert (words(phrase) - empty) & words(tool.description), phrase

    def test_pools_of_phrases_are_disjoint(self, name):
        for tool in SPECS[name].tools:
            for pools in (tool.requests.do, *tool.requests.fields.values()):
                texts = [text for pool in POOLS for text in pools[pool]]
                assert len(set(texts)) == len(texts)
                seen = {}
                for pool in POOLS:
                    for phrase in pools[pool]:
                        text = wording(phrase)
                        assert seen.setdefault(text, pool) == pool, phrase

    def test_goals_of_all_lengths(self, name):
        limits = Limits()
        goals = goal_sampling.sample_goals(SPECS[name], limits, num=60)
        assert len(goals) == 60
        lengths = {len(goal.steps) for goal in goals}
        assert lengths == set(range(1, limits.num_steps + 1))
        given = [set(arguments) for goal in goals for _, arguments in goal.steps]
        optional = {x for tool in SPECS[name].tools for x in tool.optional}
        assert any(one & optional for one in given) or not optional


def test_files_say_where_their_tools_are_from():
    packages = {}
    for name in NAMES:
        file = domain_file.DOMAINS / f"{name}.json"
        source = json.loads(file.read_text())["source"]
        if source != "authored":
            packages[name] = source["license"]
    assert len(packages) >= 5
    assert set(packages.values()) <= {"MIT", "Apache-2.0", "ISC"}
