"""The algebra of perturbations, with simple ones that show how they were called."""

import dataclasses
from types import SimpleNamespace

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Int, UInt

from openagent_jax import perturb
from openagent_jax.environments.tools import make as tools
from tests import helpers

FIELDS = ("a", "b", "c")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Toy:
    """A stand-in for a task of any environment."""

    a: Int[Array, "4"]
    b: Int[Array, "4"]
    c: Int[Array, "4"]
    world: UInt[Array, ""]


def toy() -> Toy:
    return Toy(*(jnp.zeros(4, jnp.int32) for _ in FIELDS), jnp.uint32(0))


def mark(field):
    """A perturbation that writes random numbers into a field."""

    def apply(key, task, strength):
        old = getattr(task, field)
        value = jax.random.randint(key, old.shape, 1, 1 << 20)
        hit = perturb.bernoulli(jax.random.fold_in(key, 7), strength)
        return dataclasses.replace(task, **{field: jnp.where(hit, value, old)})

    return apply


def run(perturbation, strength=1.0, seed=5, num=64):
    """`(tasks before, tasks after, keys)` of a batch of equal tasks."""
    old = jax.tree.map(lambda x: jnp.broadcast_to(x, (num, *x.shape)), toy())
    keys = helpers.keys(seed, num=num)
    new = jax.jit(perturb.batched(perturbation))(keys, old, jnp.float32(strength))
    return helpers.host(old), helpers.host(new), keys


def changed(old, new, field):
    """Which tasks of a batch differ in a field."""
    return np.any(getattr(old, field) != getattr(new, field), axis=1)


def test_chain():
    """Member i gets `fold_in(key, i)`, and the task that the member before it made."""
    a, b, one = mark("a"), mark("b"), jnp.float32(1)

    def double(key, task, strength):
        del key, strength
        return dataclasses.replace(task, a=2 * task.a)

    _, new, keys = run(perturb.chain(a, double, b))
    for i in (0, 63):
        by_hand = a(jax.random.fold_in(keys[i], 0), toy(), one)
        by_hand = double(None, by_hand, None)
        by_hand = b(jax.random.fold_in(keys[i], 2), by_hand, one)
        chex.assert_trees_all_equal(helpers.row(new, i), helpers.host(by_hand))


def test_chain_of_none_is_the_identity():
    old, new, _ = run(perturb.chain())
    chex.assert_trees_all_equal(old, new)


def test_identity():
    old, new, _ = run(perturb.identity)
    chex.assert_trees_all_equal(old, new)


def test_sometimes():
    """It is applied with probability `rate`: never, always, and in between."""
    share = {}
    for rate in (0.0, 0.25, 1.0):
        old, new, _ = run(perturb.sometimes(mark("a"), rate), num=256)
        share[rate] = np.mean(changed(old, new, "a"))
    assert (share[0.0], share[1.0]) == (0, 1)
    assert 0.15 < share[0.25] < 0.35


@pytest.mark.parametrize(
    "combine",
    [
        lambda a: perturb.chain(a, a),
        lambda a: perturb.one_of(a, a),
        lambda a: perturb.sometimes(a, 1.0),
    ],
    ids=["chain", "one_of", "sometimes"],
)
def test_strength_is_passed_on(combine):
    old, new, _ = run(combine(mark("a")), strength=0.0)
    chex.assert_trees_all_equal(old, new)
    share = [
        np.mean(changed(*run(combine(mark("a")), strength=s, num=256)[:2], "a"))
        for s in (0.25, 1.0)
    ]
    assert 0.15 < share[0] < 0.6 and share[1] == 1


def test_one_of():
    """Exactly one is applied, each with the same probability and with its own key."""
    old, new, _ = run(perturb.one_of(*map(mark, FIELDS)), num=300)
    hits = np.stack([changed(old, new, field) for field in FIELDS])
    assert np.all(hits.sum(axis=0) == 1)
    assert np.all(np.abs(hits.mean(axis=1) - 1 / 3) < 0.1)
    for field, rows in zip(FIELDS, hits, strict=True):
        values = getattr(new, field)[rows]
        assert len(np.unique(values, axis=0)) == len(values)


def test_choose_matches_one_of():
    """It returns the index, and the key that the chosen member gets."""
    members = [*map(mark, FIELDS)]
    _, new, keys = run(perturb.one_of(*members))
    for i in range(16):
        choice, key = perturb.choose(keys[i], len(members))
        by_hand = members[int(choice)](key, toy(), jnp.float32(1))
        chex.assert_trees_all_equal(helpers.row(new, i), helpers.host(by_hand))


def test_switch_computes_a_family_once():
    """Variants with `which` False and True, between two other perturbations."""
    traced = []

    def apply(key, task, strength, which):
        traced.append(which)
        return dataclasses.replace(mark("b")(key, task, strength), a=task.a + 1 + which)

    pair = [perturb.Variant(apply, "pair", which) for which in (False, True)]
    members = [mark("c"), pair[1], perturb.identity, pair[0], pair[1]]
    key, one, num = jax.random.key(3), jnp.float32(1), len(members)

    @jax.jit
    def every(index):
        return jax.vmap(lambda i: perturb.switch(i, members, key, toy(), one))(index)

    found = helpers.host(every(jnp.arange(num)))
    assert len(traced) == 1
    for i, member in enumerate(members):
        alone = helpers.host(member(key, toy(), one))
        chex.assert_trees_all_equal(helpers.row(found, i), alone)
    assert found.a[:, 0].tolist() == [0, 2, 0, 1, 2]


def test_batched_equals_single_tasks():
    a = mark("a")
    _, new, keys = run(a)
    alone = a(keys[3], toy(), jnp.float32(1))
    chex.assert_trees_all_equal(helpers.row(new, 3), helpers.host(alone))


@pytest.mark.parametrize("field", [*FIELDS, "world"])
def test_equal(field):
    """A difference in one number of one leaf is detected."""
    task = toy()
    value = getattr(task, field)
    one = value.at[(-1,) * value.ndim].add(1)
    assert perturb.equal(task, task)
    assert not perturb.equal(task, dataclasses.replace(task, **{field: one}))


def test_select():
    task = toy()
    other = jax.tree.map(lambda x: x + 1, task)
    for condition, want in ((True, other), (False, task)):
        got = perturb.select(jnp.bool_(condition), other, task)
        chex.assert_trees_all_equal(got, want)


def test_bernoulli(getkey):
    """Never true at 0, always at 1, and with that frequency in between."""
    draw = jax.jit(perturb.bernoulli, static_argnums=2)
    share = [float(np.mean(draw(getkey(), p, (4096,)))) for p in (0.0, 0.3, 1.0)]
    assert (share[0], share[2]) == (0, 1)
    assert abs(share[1] - 0.3) < 0.04  # five standard errors


def test_pick(getkey):
    """Any allowed index, each with the same probability; -1 if none is allowed."""
    keys = jax.random.split(getkey(), 3000)
    pick = jax.jit(jax.vmap(perturb.pick, (0, None)))
    among = jnp.array([False, True, False, True, True])
    count = np.bincount(pick(keys, among), minlength=5)
    assert not count[[0, 2]].any()
    assert np.all(np.abs(count[[1, 3, 4]] / 3000 - 1 / 3) < 0.05)
    assert np.all(np.asarray(pick(keys[:8], jnp.zeros(5, bool))) == -1)


def test_on_trajectory():
    """An episode whose task is perturbed is demonstrated anew; others stay as is."""

    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Episode:
        task: Toy
        played: Int[Array, ""]

    episodes = Episode(
        jax.tree.map(lambda x: jnp.broadcast_to(x, (64, *x.shape)), toy()),
        jnp.arange(64),
    )
    half = perturb.sometimes(mark("a"), 0.5)
    lift = perturb.on_trajectory(half, lambda task: Episode(task, -jnp.sum(task.a)))
    batch = jax.jit(jax.vmap(lift, (0, 0, None)))
    new = helpers.host(batch(helpers.keys(3, num=64), episodes, jnp.float32(1)))
    hit = changed(helpers.host(episodes.task), new.task, "a")
    assert 0.3 < hit.mean() < 0.7
    np.testing.assert_array_equal(new.played[~hit], np.arange(64)[~hit])
    np.testing.assert_array_equal(new.played[hit], -new.task.a.sum(axis=1)[hit])


class TestCatalogue:
    """Entries are found by name, whatever the environment."""

    ENTRY = perturb.Entry(
        name="mark",
        make=lambda pools: mark(pools),
        tier="perception",
        shift="query",
        part="task",
        touches=("a",),
    )
    ENVIRONMENT = helpers.ENVIRONMENT._replace(
        perturbations=(ENTRY,),
        # In this test, the pool of a split names the field that is written.
        pools=lambda tables, task, split: {"train": "a", "test": "b"}[split],
    )

    @pytest.mark.parametrize(("split", "field"), [("train", "a"), ("test", "b")])
    def test_make_draws_from_the_pools_of_its_split(self, split, field):
        perturbation = perturb.make(self.ENVIRONMENT, (), "mark", split)
        old, new, _ = run(perturbation)
        assert [f for f in FIELDS if changed(old, new, f).all()] == [field]

    def test_by_name(self):
        assert perturb.catalogue(self.ENVIRONMENT) == {"mark": self.ENTRY}
        assert perturb.entry(self.ENVIRONMENT, "mark") is self.ENTRY

    def test_compositions_are_derived_from_their_parts(self):
        """Of the deepest tier, and solvable only if all parts are."""

        def made(name):
            return perturb.entry(tools.DOMAINS, name)

        both = made("semantic_trap+runtime_error@0.5")
        assert both.name == "semantic_trap+runtime_error"
        assert both.tier == made("runtime_error+semantic_trap").tier == "interaction"
        assert (both.shift, both.part) == (
            "action+observation",
            "observation+transition",
        )
        assert both.touches == ("tools.name", "faults.failures", "faults.wording")
        assert (both.solvable, both.transient, both.position) == (
            True,
            False,
            "start+any",
        )
        assert [part.name for part in both.parts] == ["semantic_trap", "runtime_error"]
        assert not made("tool_order+nonstandard_feedback").explicit
        refused = made("semantic_trap+unsolvable")
        assert not refused.solvable and refused.tier == "internalization"
        other = made(refused.counterpart)
        assert other.solvable and other.name == "semantic_trap+still_solvable"
        assert made("identity_erasure") is helpers.CATALOGUE["identity_erasure"]
        assert made("domain_transfer+semantic_trap").touches[0] == perturb.WHOLE

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "semantic_trap+domain_transfer",
                "domain_transfer replaces the whole task",
            ),
            ("unsolvable+still_solvable", "unsolvable and still_solvable exclude each"),
            ("still_solvable+unsolvable", "unsolvable and still_solvable exclude each"),
        ],
    )
    def test_impossible_compositions(self, name, message):
        with pytest.raises(ValueError, match=message):
            perturb.entry(tools.DOMAINS, name)

    @pytest.mark.parametrize(("entries", "known"), [((ENTRY,), "mark"), ((), "none")])
    def test_unknown_name(self, entries, known):
        has = SimpleNamespace(perturbations=entries)
        message = f'unknown perturbation "tipos"; there are {known}'
        with pytest.raises(ValueError, match=message):
            perturb.entry(has, "tipos")
        with pytest.raises(ValueError, match=message):
            perturb.make(has, (), "tipos", "train")


def test_no_kind_of_a_small_catalogue_is_lost():
    kinds = [helpers.CATALOGUE[x] for x in ("tool_order", "query_ambiguous")]
    assert perturb.training_mix(kinds) == ("tool_order", "query_ambiguous")
    assert perturb.training_mix([]) == ()


def test_glossary():
    """A composition is explained by its parts, each by its first line."""
    trap, fails = (helpers.CATALOGUE[x] for x in ("semantic_trap", "runtime_error"))
    both = perturb.compose(trap, fails)
    assert both.response == "read+retry"
    made = perturb.glossary([both, fails])
    assert list(made) == ["semantic_trap", "runtime_error"]
    assert made["runtime_error"] == {
        "summary": "Make the first one or two calls of a needed tool fail.",
        "right": perturb.RESPONSES["retry"],
    }


@pytest.mark.parametrize("name", helpers.CATALOGUE)
def test_summaries_are_sentences(name):
    summary = helpers.CATALOGUE[name].summary
    assert summary[0].isupper() and summary.endswith(".")
