"""Lists, nested fields and conditions, played: experts, texts, and dull agents."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.curriculum import draw
from openagent_jax.environments import registry
from openagent_jax.environments.tools.perturb import edits
from openagent_jax.environments.world import Settings, Spelling
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import nesting, reply_scan, result_forms, scalars, style
from tests import helpers
from tests.domains import ferries

NUM, TURNS, BYTES = 1024, 7, 400
FIRST, ALWAYS, NEVER, EXPERT = range(4)  # agents


# The cheapest sailing is only of use if the condition holds.
GOAL = {
    "name": "book_if_cheap",
    "constants": {"harbor": "harbor", "sailing": "sailing", "limit": "fare"},
    "steps": [
        {"tool": "list_sailings", "arguments": {"harbor": "$harbor"}},
        {"tool": "sailing_details", "arguments": {"sailing": "$sailing"}},
        {
            "tool": "book_seat",
            "arguments": {"sailing": "#0.min(sailings.fare).id"},
            "when": {"value": "#1.fare", "at_most": "$limit"},
        },
    ],
    "answer": "#1.fare",
    "phrases": {
        pool: [
            f"{word} {{sailing}}. Up to {{limit}}, book the cheapest from {{harbor}}."
        ]
        for pool, word in zip(
            ferries.POOLS, ("Find", "See", "Get", "Check"), strict=True
        )
    },
}


def make_world(folder, **changes):
    file = ferries.save(folder, **changes)
    settings = Settings(domain=str(file), transfer="poi", **ferries.SIZES)
    return registry.make(settings, Spelling(helpers.tokenizer()))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("ferries"))


@pytest.fixture(scope="module")
def program(world):
    return make_program(world)


def make_program(world):
    """Plays an agent that differs from the expert in one way."""
    environment, tables = world.environment, world.tables

    def edited(agent, task):
        """Return the task as a dull agent takes it."""
        goal, when, size = task.goal, task.goal.when, task.tools.num_values
        lists, num = task.tools.lists, task.constants.shape[0]
        # The first record, instead of the one that the list is searched for.
        step = (goal.source - num) // size
        which = (goal.source - num) % size - size + lists.derived.shape[1]
        taken = lists.derived[goal.tool[step], which, 2]
        is_best = (goal.source >= num) & (which >= 0) & (agent == FIRST)
        source = jnp.where(is_best, num + step * size + taken, goal.source)
        never = (agent == NEVER) & (when[:, 0] >= 0)
        edited = replace(
            goal,
            source=source,
            tool=jnp.where(never, -1, goal.tool),
            when=jnp.where(agent == ALWAYS, -1, when),
        )
        return replace(task, goal=edited)

    @jax.jit
    @jax.vmap
    def play(key, agent):
        task = environment.sample(tables, key, "train")
        mine = edited(agent, task)
        state, own = environment.reset(tables, task), environment.reset(tables, mine)

        def turn(states, _):
            state, own, fits = states
            action = environment.expert(tables, mine, own)
            pieces = environment.utterance(tables, task, action)
            tokens, _, size = lexicons.write(tables.lexicon, pieces, 120)
            text, length = reply_scan.detokenize(tables.lexicon, tokens, size - 1)
            read = environment.parse(tables, task, text, length)
            fits &= (read.call.tool == action.call.tool) | state.finished
            fits &= jnp.all(read.call.args == action.call.args) | state.finished
            state, timestep = environment.step(tables, task, state, read)
            own, _ = environment.step(tables, mine, own, read)
            pieces = environment.observe(tables, task, timestep.observation)
            return (state, own, fits), (timestep.observation, pieces)

        start = state, own, jnp.bool_(True)
        (state, _, fits), shown = jax.lax.scan(turn, start, length=TURNS)
        return task, state, shown, fits, environment.certificate(tables, task)

    return play


@pytest.fixture(scope="module")
def expert(program):
    return jax.device_get(program(helpers.keys(num=NUM), jnp.full(NUM, EXPERT)))


def test_the_expert_solves_every_task(expert):
    task, state, _, fits, proof = expert
    assert fits.all() and proof.solvable.all()
    assert state.success.all() and not state.wrong_effects.any()
    np.testing.assert_array_equal(state.num_calls, proof.fewest_calls)
    steps = np.sum(task.goal.tool >= 0, axis=1)
    has = np.any(task.goal.when[:, :, 0] >= 0, axis=1)
    assert 0.2 < has.mean() < 0.8
    # About half of the conditions hold.
    skipped = (proof.fewest_calls < steps)[has]
    assert 0.35 < skipped.mean() < 0.65
    assert (proof.fewest_calls == steps)[~has].all()


def uses_best(task):
    """Tasks where a step that is wanted in any case uses the best record of a list."""
    num, size = task.constants.shape[1], ferries.LIMITS.num_values
    which = (task.goal.source - num) % size - ferries.LIMITS.num_fields
    is_best = (task.goal.source >= num) & (which >= 0)
    return np.any(is_best.any(axis=2) & (task.goal.when[:, :, 0] < 0), axis=1)


def test_the_first_record_is_the_best_one_by_chance(program, expert):
    """Lists have 1 to 3 records, each as often."""
    _, state, *_ = jax.device_get(program(helpers.keys(num=NUM), jnp.full(NUM, FIRST)))
    rows = uses_best(expert[0])
    assert rows.sum() > 100
    assert 0.5 < state.success[rows].mean() < (1 + 1 / 2 + 1 / 3) / 3 + 0.1


def test_agents_that_do_not_look_at_conditions(program, expert):
    """They succeed exactly where a condition suits them, about half of the time."""
    task, _, _, _, proof = expert
    has = np.any(task.goal.when[:, :, 0] >= 0, axis=1)
    holds = proof.fewest_calls == np.sum(task.goal.tool >= 0, axis=1)
    for agent, suits in ((ALWAYS, holds), (NEVER, ~holds)):
        played = program(helpers.keys(num=NUM), jnp.full(NUM, agent))
        _, state, *_ = jax.device_get(played)
        np.testing.assert_array_equal(state.success[has], suits[has])
        assert state.success[~has].all()
        assert state.wrong_effects[has].any() == (agent == ALWAYS)


def test_what_only_a_step_with_a_condition_uses(tmp_path):
    """Where its condition fails, it may be called, but need not be."""
    world = make_world(tmp_path, goals=[GOAL])
    play, num = make_program(world), 256
    task, state, _, _, proof = jax.device_get(
        play(helpers.keys(num=num), jnp.full(num, EXPERT))
    )
    assert state.success.all()
    np.testing.assert_array_equal(state.num_calls, proof.fewest_calls)
    holds = proof.fewest_calls == 3
    assert (proof.fewest_calls[~holds] == 1).all() and 0.3 < holds.mean() < 0.7
    assert task.goal.tool[:, :3].tolist() == [[0, 2, 3]] * num
    # It calls all tools but the one that has an effect.
    _, state, *_ = jax.device_get(play(helpers.keys(num=num), jnp.full(num, NEVER)))
    assert (state.num_calls == 2).all()
    np.testing.assert_array_equal(state.success, ~holds)
    check_needs(world, num)
    sure = world.tables.source.tasks.set_sure[0, 0]
    assert np.flatnonzero(sure).tolist() == [2]


@pytest.fixture(scope="module")
def certified(world):
    """`name -> (Edited, solvable)` of tasks under a perturbation."""
    environment = world.environment
    names = ("unsolvable", "still_solvable", "logic_inversion")
    make = draw.make_draw(environment, names, "train")

    @jax.jit
    def certify(tables, scenario, keys):
        def one(key, edit_key):
            made = make(tables, key, edit_key, 1.0, scenario)
            return made, environment.certificate(tables, made.task).solvable

        return jax.vmap(one)(keys, draw.edit_keys(keys))

    def under(name):
        scenario, keys = jnp.int32(1 + names.index(name)), helpers.keys(num=NUM)
        return jax.device_get(certify(world.tables, scenario, keys))

    return under


@pytest.mark.parametrize("name", ["unsolvable", "still_solvable"])
def test_only_tools_that_are_needed_in_any_case_are_taken_away(certified, name):
    """A tool that is needed on a condition might turn out not to be."""
    made, solvable = certified(name)
    has = np.any(made.task.goal.when[:, :, 0] >= 0, axis=1)
    assert has.sum() > 0.2 * NUM
    assert (solvable[has & made.changed] == (name == "still_solvable")).all()
    assert made.changed[has].all() or name == "still_solvable"


def test_what_a_goal_surely_needs(world):
    every, sure = check_needs(world, NUM)
    assert np.any(every & ~sure, axis=1).sum() > 0.1 * NUM


def check_needs(world, num):
    """The sets of tools on the host are those that perturbations find in a task."""
    domain, environment = world.tables.source.tasks, world.environment

    @jax.jit
    def find(tables, keys):
        def one(key):
            task = environment.sample(tables, key, "train")
            every, sure = edits.wanted(task), edits.wanted_surely(task)
            found = edits.needed(task, every), edits.needed(task, sure)
            return task.goal.kind, found

        return jax.vmap(one)(keys)

    kind, (every, sure) = jax.device_get(find(world.tables, helpers.keys(num=num)))
    d, u = domain.goal_domain[kind], domain.goal_set[kind]
    assert np.array_equal(domain.set_needs[d, u], every)
    assert np.array_equal(domain.set_sure[d, u], sure)
    return every, sure


def test_no_step_comes_to_need_the_code_of_one_with_a_condition(certified):
    """Where the condition does not hold, nothing would give that code."""
    made, solvable = certified("logic_inversion")
    has = np.any(made.task.goal.when[:, :, 0] >= 0, axis=1)
    assert (has & made.changed).sum() > 10
    assert solvable.all()


def text_of(world, value):
    texts = lexicons.texts(world.tables.lexicon)
    return scalars.spelled(value) if value >= scalars.NUMBER else texts[value]


def expected(world, row, values):
    """The object that a result is, by the file of the domain."""
    tool = ferries.spec().tools[row]
    leaves = {
        nesting.parse(name): text_of(world, value)
        for (name, _), value in zip(tool.returns, values, strict=False)
        if value >= 0
    }
    empty = {
        made.path: []
        for made in tool.lists
        if not any(path[0] == made.path for path in leaves)
    }
    return nesting.nested(leaves) | empty


def test_results_are_nested_json(world, expert):
    _, _, (results, pieces), _, _ = expert
    texts, seen = lexicons.texts(world.tables.lexicon), set()
    rows = np.argwhere(results.status == style.OK)[:600]
    for t, i in rows:
        shown = "".join(texts[x] for x in pieces[t, i])
        body = shown.removeprefix("<|tool|>").removesuffix("<|assistant|>")
        row = int(results.tool[t, i])
        wanted = expected(world, row, results.values[t, i])
        assert json.loads(body) == wanted
        seen.add((row, "[]" in body))
    assert {(0, False), (1, True), (1, False), (2, False), (3, False)} <= seen


BRACKETS = [*result_forms.FORMS].index("brackets")


def test_other_forms_write_paths(world, expert):
    tasks, _, (results, _), _, _ = expert
    found = set()
    for row in (0, 1):
        t, i = np.argwhere((results.status == style.OK) & (results.tool == row))[0]
        task, result = helpers.row(tasks, i), helpers.row(results, (t, i))
        task = replace(task, faults=replace(task.faults, form=np.full(16, BRACKETS)))
        pieces = np.asarray(world.transcriber.observe(task, result))
        _, text = world.transcriber.shown(pieces)
        assert text[0] == "[" and text[-1] == "]"
        found |= {pair.split("=")[0] for pair in text[1:-1].split("; ")}
    assert {"office.clerk", "sailings.0.id", "sailings.0.fare"} <= found
    assert found & {"delays", "delays.0.reason"}


def test_columns_differ_in_random_order(expert):
    _, _, (results, _), _, _ = expert
    values = results.values[(results.status == style.OK) & (results.tool == 0)]
    fares, ids = values[:, 2:7:2], values[:, 1:7:2]
    full = fares[:, 2] >= 0
    assert 0.25 < full.mean() < 0.45 and (fares[:, 0] >= 0).all()
    for column in (fares, ids):
        assert all(len(set(row)) == 3 for row in column[full].tolist())
    numbers = np.array([[float(scalars.spelled(x)) for x in y] for y in fares[full]])
    shares = np.bincount(numbers.argmin(axis=1), minlength=3) / full.sum()
    assert (abs(shares - 1 / 3) < 0.12).all()
