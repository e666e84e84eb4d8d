"""Requests as pieces: slots, and choices that are made when a task is sampled."""

import collections
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax import hashing
from openagent_jax.domains import domain_file, domain_spec
from openagent_jax.domains.limits import Limits
from openagent_jax.environments.tools import choices
from openagent_jax.environments.tools.worlds import documents, phrases
from openagent_jax.environments.tools.worlds import domain as domains
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import style
from openagent_jax.text.symbols import Symbols
from tests import helpers

SEEDS = jax.vmap(hashing.hashed_key, (0, None))(helpers.keys(5), 1)


def goal(**pools):
    texts = {pool: ("x",) for pool in phrases.PHRASE_POOLS} | pools
    return domain_spec.GoalSpec("g", (("order-id", "t"), ("to_2", "t")), (), "", texts)


def spoken(*texts, seeds=SEEDS):
    """How often each text is said for each of the requests of a goal."""
    symbols = Symbols()
    made = phrases.compile([goal(train=texts)], symbols, Limits(), 1)
    made = jax.tree.map(jnp.asarray, made)

    @jax.jit
    def say(seeds):
        def one(row, seed):
            return choices.spoken(made.choices, made.row(row), seed)

        rows = jnp.arange(len(texts))
        return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(rows, seeds)

    def text(pieces):
        return "".join(symbols.texts[s] if s >= 0 else f"<{-1 - s}>" for s in pieces)

    return [collections.Counter(map(text, row)) for row in np.asarray(say(seeds))]


def test_slots_may_have_any_name_that_a_file_allows():
    (found,) = spoken("Get {order-id}, {to_2}.")
    assert [*found] == ["Get <0>, <1>."]


def test_every_text_of_a_choice_is_drawn_equally_often():
    (found,) = spoken("{Find|Look up|Get} it.")
    assert {*found} == {"Find it.", "Look up it.", "Get it."}
    assert min(found.values()) > len(SEEDS) / 3 - 5 * np.sqrt(len(SEEDS) * 2 / 9)


def test_choices_of_one_number_go_together():
    (found,) = spoken("{1:a|b|c|d} {1:x|y} {2:p|q}")
    pairs = {text.rpartition(" ")[0] for text in found}
    assert pairs == {"a x", "b y", "c x", "d y"}  # modulo the number of texts
    assert len(found) == 8  # the other number is independent


def test_choices_without_a_number_are_independent():
    (found,) = spoken("{a|b} {a|b} {a|b}")
    assert len(found) == 8


def test_a_choice_may_be_empty_and_a_slot_may_follow():
    (found,) = spoken("{Please g|G}et{| me} {to_2}.")
    assert {*found} == {
        f"{start}et{me} <1>." for start in ("Please g", "G") for me in ("", " me")
    }


def test_equal_choices_are_stored_once():
    made = phrases.compile(
        [goal(train=("{a|b} x", "{a|b} y", "{1:a|b} z"))], Symbols(), Limits(), 1
    )
    used = np.asarray(made.choices.size) > 1
    assert used.sum() == 2  # with a number, and without


def test_joined_requests_are_those_of_each_domain():
    symbols = Symbols()
    specs = [[goal(train=("{a|b} x",))] * 2, [goal(train=("{c|d|e} y", "{a|b} z"))] * 3]
    parts = [phrases.compile(goals, symbols, Limits(), 16) for goals in specs]
    joined = jax.tree.map(jnp.asarray, phrases.join(parts, [2, 3], 16))
    parts = [jax.tree.map(jnp.asarray, part) for part in parts]
    at = 0
    for part, goals in zip(parts, specs, strict=True):
        for g in range(len(goals)):
            for p in range(len(phrases.PHRASE_POOLS)):
                assert joined.num[p, at] == part.num[p, g]
                for r in range(int(part.num[p, g])):
                    rows = [
                        x.row(jnp.int32(x.first[p, i] + r))
                        for x, i in ((joined, at), (part, g))
                    ]
                    # What is said must be equal; the places of choices may differ.
                    said = [
                        jax.vmap(choices.spoken, (None, None, 0))(x.choices, row, SEEDS)
                        for x, row in zip((joined, part), rows, strict=True)
                    ]
                    np.testing.assert_array_equal(*said)
            at += 1
    assert not joined.num[:, at:].any()


@pytest.fixture(scope="module")
def chosen():
    """`poi`, whose rewritten requests begin with a choice."""
    spec = helpers.spec("poi")
    goals = [
        dataclasses.replace(
            goal,
            phrases={
                # Few of them, so that the shapes are those of other tests.
                pool: tuple(f"{{{pool} a|{pool} b}} {text}" for text in texts[:5])
                for pool, texts in goal.phrases.items()
            },
        )
        for goal in spec.goals
    ]
    spec = dataclasses.replace(spec, goals=tuple(goals))
    table, form = ToolSymbols(), style.compact(helpers.LIMITS.num_args)
    made = documents.Documents(form)
    limits = documents.fitted(helpers.LIMITS, [spec])
    return domains.compile(spec, table, limits, made), table


@pytest.mark.parametrize("entry", [helpers.CLEAN, "query_rewrite"])
def test_tasks_have_no_choices_left(chosen, entry):
    tasks, table = chosen
    tables = helpers.world("poi").tables
    tables = tables._replace(source=tables.source._replace(tasks=tasks))
    sampled = helpers.sample(tables, helpers.keys(), "train")
    if entry != helpers.CLEAN:
        sampled = helpers.edit_alone(entry, tables, sampled, "train")
    rows = helpers.host(sampled.phrase)
    assert rows.min() > choices.FIRST
    begins = {"".join(table.texts[s] for s in row[:1]) for row in rows}
    pool = "train" if entry == helpers.CLEAN else "rewrite_train"
    assert begins == {f"{pool} a", f"{pool} b"}


@pytest.mark.parametrize(
    ("phrase", "words"),
    [
        ("{Find|Get} {1:the|a} place {slot}", []),
        ("{Find|Find} {slot}", ["phrases.train[0]", "a text twice"]),
        ("{Find|{slot}}", ["phrases.train[0]", "unknown slot"]),
        ("{1:Find} {slot}", ["phrases.train[0]", "unknown slot '{1:Find}'"]),
    ],
)
def test_faults_of_choices(phrase, words):
    document = domain_file.read_json(domain_file.DOMAINS / "poi.json")
    one = next(goal for goal in document["goals"] if len(goal["constants"]) == 1)
    (slot,) = one["constants"]
    one["phrases"]["train"] = [phrase.replace("slot", slot)]
    try:
        domain_file.read(document, Limits())
        faults = []
    except domain_spec.DomainError as error:
        faults = error.faults
    assert bool(faults) == bool(words)
    for word in words:
        assert any(word.replace("slot'", f"{slot}'") in fault for fault in faults)
