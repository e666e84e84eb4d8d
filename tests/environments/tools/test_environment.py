"""The environment: statuses, effects, faults, grading; documents must be read."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.domains import domain_spec
from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.solution import solution
from openagent_jax.text import reply_scan, style
from tests import helpers

NONE = -1
NO_ARGS = np.full(helpers.LIMITS.num_args, NONE, np.int32)


class Game:
    """One episode, played by hand with the names of tools in the domain file."""

    def __init__(self, task, name="poi", max_turns=30):
        self.name, self.task, self.max_turns = name, task, max_turns
        self.lexicon = helpers.lexicon(name)
        self.state = helpers.host(helpers.reset(self.lexicon, task))
        self.rows = helpers.tool_rows(name)
        self.steps = {int(n): c for c, n in enumerate(task.goal.tool) if n >= 0}

    def act(self, kind, tool=NONE, args=NO_ARGS, code=NONE, value=NONE):
        """Take an action, and return the time step."""
        number = np.int32
        call = types.ToolCall(number(tool), np.asarray(args, number), number(code))
        self.state, timestep = helpers.host(
            helpers.step(
                self.lexicon,
                self.task,
                self.state,
                types.Action(number(kind), call, number(value)),
                self.max_turns,
            )
        )
        return timestep

    def call(self, tool, args=None, code=None, row=None):
        """Call a tool (or the row that replaces it) for its step; return what is seen.

        Arguments and code are the right ones unless others are given.
        """
        n = self.rows[tool]
        step = self.steps.get(n)
        if args is None:
            args = NO_ARGS if step is None else self.state.args[step]
            has = self.task.tools.arg_high[n] > self.task.tools.arg_low[n]
            args = np.where(has, args, NONE)
        source = self.task.tools.code_from[n]
        if code is None and source >= 0:
            code = self.task.tools.code[source]
        code = NONE if code is None else code
        row = n if row is None else row
        return self.act(reply_scan.CALL, row, args, code).observation

    def answer(self, value=None):
        """Give the right answer, unless another is given; return the time step."""
        if value is None:
            source = self.task.goal.answer - len(self.task.constants)
            value = self.state.values.reshape(-1)[source]
            if self.task.goal.answer < 0:
                value = self.lexicon.style.done
        return self.act(reply_scan.ANSWER, value=value)

    def refuse(self):
        return self.act(reply_scan.REFUSE)


def paid(timestep):
    """The reward for the right answer, or for the right refusal."""
    return timestep.reward["outcome"] + timestep.reward["refusal"]


@functools.cache
def clean(name="poi", split="train"):
    return helpers.rows(helpers.tasks(name, split))


def game(goal, max_turns=30, name="poi", **edits):
    """A clean task of a goal; `faults_failures={"tool": 2}` changes one row."""
    kind = helpers.goal_kind(name, goal)
    task = next(task for task in clean(name) if task.goal.kind == kind)
    rows = helpers.tool_rows(name)
    for path, changes in edits.items():
        part, field = path.split("_", 1)
        table = getattr(getattr(task, part), field).copy()
        for tool, value in changes.items():
            table[rows.get(tool, tool)] = rows.get(value, value)
        new = dataclasses.replace(getattr(task, part), **{field: table})
        task = dataclasses.replace(task, **{part: new})
    return Game(task, name, max_turns)


class TestStatus:
    def test_priorities(self):
        """All problems at once; each reported one is fixed before the next call."""
        old = "hold_ticket"
        play = game("pay_event", faults_failures={"pay_ticket": 2})
        tools, pay = play.task.tools, play.rows["pay_ticket"]
        ticket = play.state.args[1]
        good = tools.code[play.rows[old]]

        def status(**changes):
            kind = changes.pop("kind", reply_scan.CALL)
            call = {"tool": pay, "args": NO_ARGS, "code": NONE, **changes}
            seen = play.act(kind, **call).observation
            return int(seen.status), int(seen.target)

        assert status(kind=reply_scan.MALFORMED) == (style.BAD_FORMAT, NONE)
        assert status(tool=NONE) == (style.UNKNOWN_TOOL, NONE)
        hidden = np.flatnonzero(~tools.visible)[0]
        assert status(tool=hidden) == (style.UNKNOWN_TOOL, NONE)
        assert status() == (style.BAD_ARGUMENT, NONE)
        assert status(args=ticket) == (style.OUT_OF_ORDER, play.rows["sign_in"])
        assert status(args=ticket, code=good) == (
            style.OUT_OF_ORDER,
            play.rows["sign_in"],
        )
        assert play.call("sign_in").status == style.OK
        assert status(args=ticket) == (style.WRONG_CODE, play.rows[old])
        assert status(args=ticket, code=good + 1) == (
            style.WRONG_CODE,
            play.rows[old],
        )
        assert status(args=ticket, code=good) == (style.TRANSIENT, NONE)
        assert status(args=ticket, code=good) == (style.TRANSIENT, NONE)
        assert status(args=ticket, code=good) == (style.OK, NONE)
        assert play.state.num_calls == 12  # an unreadable action counts as a call
        assert play.state.num_errors == 10  # and as an error

    def test_moved_takes_precedence_over_wrong_arguments(self):
        edits = {"faults_moved_to": {"find_event": 15}}
        edits |= {"faults_gone_at": {"find_event": 0}}
        play = game("city_event", **edits)
        seen = play.call("find_event", args=NO_ARGS)
        assert (seen.status, seen.target) == (style.MOVED, NONE)  # no hint
        play = game("city_event", **edits, faults_guided={"find_event": True})
        seen = play.call("find_event", args=NO_ARGS)
        assert (seen.status, seen.target) == (style.MOVED, 15)
        assert play.state.known_from[15]
        assert play.state.known_dead[play.rows["find_event"]]

    @pytest.mark.parametrize("part", ["missing", "another type", "too large"])
    def test_arguments(self, part):
        play = game("table_booking")
        tools, n = play.task.tools, play.rows["count_seats"]
        args = np.array(play.state.args[0])
        args[1] = {
            "missing": NONE,
            "another type": tools.arg_low[n, 0],
            "too large": tools.arg_high[n, 1],
        }[part]
        assert play.call("count_seats", args=args).status == style.BAD_ARGUMENT
        assert not play.state.attempts.any()
        assert play.call("count_seats").status == style.OK

    def test_an_unexpected_code(self):
        play = game("table_booking")
        assert play.call("count_seats", code=0).status == style.BAD_ARGUMENT

    def test_user_reply(self):
        play = game("table_booking")
        task = dataclasses.replace(play.task, shown=np.array([True, False, True, True]))
        play = Game(task)
        seen = play.act(reply_scan.ASK).observation
        assert seen.status == style.USER_REPLY
        assert play.state.told.tolist() == [False, True, False, False]
        assert play.state.num_errors == play.state.num_calls == 0


class TestResults:
    def test_fields(self):
        play = game("event_receipt")
        seen = play.call("find_event")
        assert seen.values.tolist() == play.state.values[0].tolist()
        assert seen.values.min() >= 0
        assert seen.tool == play.rows["find_event"]
        assert seen.code == NONE  # no tool needs it
        seen = play.call("hold_ticket")
        assert seen.values[1] == NONE  # there is no second field
        assert seen.code == play.task.tools.code[play.rows["hold_ticket"]]

    def test_an_error_returns_no_values(self):
        play = game("event_receipt")
        seen = play.call("pay_ticket")
        assert (seen.values.tolist(), seen.code, seen.tool) == (
            [NONE, NONE],
            NONE,
            NONE,
        )

    def test_results_are_a_function_of_the_world(self):
        """The same call gives the same result, but another one in another world."""
        first, again = game("city_event"), game("city_event")
        seen = first.call("find_event")
        chex.assert_trees_all_equal(seen, first.call("find_event"))
        chex.assert_trees_all_equal(seen, again.call("find_event"))
        others = set()
        for i in range(24):
            task = dataclasses.replace(again.task, world=np.uint32(2 * i))
            others.add(tuple(Game(task).call("find_event").values.tolist()))
        assert len(others) > 20

    def test_results_are_a_function_of_the_arguments(self):
        play = game("table_booking")
        place, hour, _ = play.state.args[0]
        n = play.rows["count_seats"]
        tools = play.task.tools
        low, high = tools.result_low[n, 0], tools.result_high[n, 0]
        seen = {}
        for p in range(4):
            for h in range(20):
                args = [tools.arg_low[n, 0] + p, tools.arg_low[n, 1] + h, NONE]
                seen[p, h] = int(play.call("count_seats", args=args).values[0])
        assert len(set(seen.values())) > 70
        assert low <= min(seen.values()) < max(seen.values()) < high
        assert max(seen.values()) - min(seen.values()) > 0.8 * (high - low)
        assert play.state.wrong_effects == 0

    def test_results_do_not_depend_on_presentation(self):
        play = game("city_event")
        tools = play.task.tools
        renamed = dataclasses.replace(
            tools,
            name=tools.name[::-1].copy(),
            description=tools.description[::-1].copy(),
            arg_name=tools.arg_name[::-1].copy(),
            place=tools.place[::-1].copy(),
        )
        other = Game(dataclasses.replace(play.task, tools=renamed))
        chex.assert_trees_all_equal(play.call("find_event"), other.call("find_event"))


class TestEffects:
    def ready_to_book(self, **edits):
        play = game("table_booking", **edits)
        assert play.call("count_seats").status == style.OK
        return play

    def test_the_correct_effect_once(self):
        play = self.ready_to_book()
        assert play.call("reserve_table").status == style.OK
        assert play.state.wrong_effects == 0
        assert paid(play.answer()) == 1

    def test_a_repeated_effect_is_wrong(self):
        play = self.ready_to_book()
        assert play.call("reserve_table").status == style.OK
        assert play.call("reserve_table").status == style.OK
        assert play.state.wrong_effects == 1
        assert paid(play.answer()) == 0

    def test_an_effect_with_other_arguments_is_wrong(self):
        play = self.ready_to_book()
        args = play.state.args[1].copy()
        args[0] += 1
        assert play.call("reserve_table", args=args).status == style.OK
        assert play.state.wrong_effects == 1
        assert play.call("reserve_table").status == style.OK
        assert paid(play.answer()) == 0

    def test_failed_calls_have_no_effect(self):
        play = self.ready_to_book(faults_failures={"reserve_table": 1})
        args = play.state.args[1].copy()
        args[0] += 1
        assert play.call("reserve_table", args=args).status == style.TRANSIENT
        assert play.call("reserve_table", code=0).status == style.WRONG_CODE
        assert play.state.wrong_effects == 0

    def test_read_only_calls_have_no_effect(self):
        play = game("city_event")
        for city in range(3):
            args = play.task.tools.arg_low[play.rows["find_event"]] + [city, 0, 0]
            play.call("find_event", args=np.where([1, 0, 0], args, NONE))
        play.call("find_event")
        assert paid(play.answer()) == 1


class TestPreconditions:
    def test_a_code_is_revealed_where_it_is_needed(self):
        play = game("table_booking")
        seen = play.call("count_seats")
        assert seen.code == play.task.tools.code[play.rows["count_seats"]]
        assert play.call("reserve_table", code=NONE).status == style.WRONG_CODE
        assert play.call("reserve_table", code=seen.code).status == style.OK

    def test_order(self):
        play = game("city_tour", tools_call_after={"tour_price": "find_guide"})
        play.call("accept_terms")
        assert play.call("tour_price").status == style.OUT_OF_ORDER
        assert not play.state.succeeded[play.rows["tour_price"]]
        wrong = play.state.args[0] + [1, 0, 0]
        wrong = np.where([1, 0, 0], wrong, NONE)
        # Any successful call is enough, whatever its arguments.
        assert play.call("find_guide", args=wrong).status == style.OK
        assert play.call("tour_price").status == style.OK

    def test_a_failed_call_does_not_satisfy_the_order(self):
        play = game(
            "city_tour",
            tools_call_after={"tour_price": "find_guide"},
            faults_failures={"find_guide": 1},
        )
        play.call("accept_terms")
        assert play.call("find_guide").status == style.TRANSIENT
        assert play.call("tour_price").status == style.OUT_OF_ORDER
        assert play.call("find_guide").status == style.OK
        assert play.call("tour_price").status == style.OK


class TestFaults:
    def test_transient(self):
        play = game("city_event", faults_failures={"find_event": 2})
        statuses = [int(play.call("find_event").status) for _ in range(4)]
        assert statuses == [style.TRANSIENT] * 2 + [style.OK] * 2
        assert paid(play.answer()) == 1

    def test_permanent(self):
        play = game("city_event", faults_failures={"find_event": types.FOREVER})
        statuses = {int(play.call("find_event").status) for _ in range(4)}
        assert statuses == {style.PERMANENT}
        assert play.state.known_dead[play.rows["find_event"]]
        assert not play.state.solvable
        assert paid(play.refuse()) == 1

    def moved(self, guided):
        n = helpers.tool_rows("poi")["find_event"]
        play = game("city_event")
        tools = jax.tree.map(np.copy, play.task.tools)
        for field in jax.tree.leaves(tools):
            field[15] = field[n]
        tools.visible[15], tools.name[15] = False, play.task.tools.name[15]
        faults = jax.tree.map(np.copy, play.task.faults)
        faults.moved_to[n], faults.gone_at[n], faults.guided[n] = 15, 0, guided
        return Game(dataclasses.replace(play.task, tools=tools, faults=faults))

    def test_moved(self):
        play = self.moved(guided=True)
        assert play.state.solvable
        assert play.call("find_event").status == style.MOVED
        seen = play.call("find_event", row=15)
        assert (seen.status, seen.tool) == (style.OK, 15)
        assert seen.values.tolist() == play.state.values[0].tolist()
        assert paid(play.answer()) == 1

    def test_moved_without_a_hint(self):
        play = self.moved(guided=False)
        assert not play.state.solvable
        assert paid(play.refuse()) == 1


class TestGrading:
    def test_an_answer_without_tools_does_not_count(self):
        play = game("city_event")
        timestep = play.answer()
        assert (paid(timestep), timestep.terminated) == (0, True)
        assert not play.state.success

    def test_an_answer_before_the_last_step_does_not_count(self):
        play = game("table_and_station")
        for tool in ("find_restaurant", "nearest_station"):  # what the booking needs
            assert play.call(tool).status == style.OK
        assert paid(play.answer()) == 0  # no table was booked

    @pytest.mark.parametrize("value", [NONE, 0, 1])
    def test_a_wrong_answer(self, value):
        play = game("city_event")
        play.call("find_event")
        assert paid(play.answer(value)) == 0

    def test_a_value_of_another_field_is_wrong(self):
        play = game("city_event")
        play.call("find_event")
        assert paid(play.answer(play.state.values[0, 1])) == 0

    def test_done(self):
        for answered in (None, 0):
            play = game("pay_event")
            for tool in ("sign_in", "hold_ticket", "pay_ticket"):
                assert play.call(tool).status == style.OK
            timestep = play.answer(answered)
            assert paid(timestep) == (answered is None)

    def test_a_refusal_counts_only_if_the_task_is_unsolvable(self):
        play = game("city_event")
        timestep = play.refuse()
        assert (paid(timestep), timestep.terminated) == (0, True)
        play = game("city_event", tools_visible={"find_event": False})
        assert paid(play.refuse()) == 1
        play = game("city_event", tools_visible={"find_event": False})
        assert paid(play.answer()) == 0

    def test_truncation_is_not_termination(self):
        play = game("city_event", max_turns=2)
        first, second = (play.act(reply_scan.MALFORMED) for _ in range(2))
        assert not (first.terminated or first.truncated)
        assert second.truncated and not second.terminated
        assert play.state.finished and not play.state.success
        play = game("city_event", max_turns=2)
        play.call("find_event")
        last = play.answer()
        assert last.terminated and not last.truncated
        assert paid(last) == 1

    @pytest.mark.parametrize("won", [True, False])
    def test_a_finished_episode_does_not_change(self, won):
        play = game("pay_event")
        for tool in ("sign_in", "hold_ticket"):
            play.call(tool)
        if won:
            play.call("pay_ticket")
        play.answer()
        before = play.state
        assert before.success == won
        for timestep in (
            play.answer(),
            play.refuse(),
            play.act(reply_scan.ASK),
            play.act(reply_scan.MALFORMED),
            play.act(reply_scan.CALL, play.rows["pay_ticket"]),
        ):
            assert paid(timestep) == 0
            assert not (timestep.terminated or timestep.truncated)
            assert timestep.observation.status == style.NO_RESULT
        play.call("sign_in")
        play.call("pay_ticket")
        chex.assert_trees_all_equal(play.state, before)


class TestOutcome:
    """The summary of an episode that reports use."""

    @staticmethod
    def outcome(play):
        found = helpers.ENVIRONMENT.outcome((), play.task, play.state)
        return {name: value.item() for name, value in found._asdict().items()}

    CLEAN = dict(
        success=False,
        solvable=True,
        refused=False,
        num_calls=0,
        num_errors=0,
        num_questions=0,
        num_needless_questions=0,
    )

    @pytest.mark.parametrize(
        ("goal", "fewest", "edits"),
        [
            ("city_event", 1, {}),
            ("table_booking", 2, {}),
            ("pay_event", 3, {}),
            ("city_event", 3, {"faults_failures": {"find_event": 2}}),
            ("pay_event", 3, {"faults_failures": {"find_event": 2}}),  # not needed
        ],
    )
    def test_at_the_start(self, goal, fewest, edits):
        assert self.outcome(game(goal, **edits)) == {
            **self.CLEAN,
            "fewest_calls": fewest,
        }

    def test_questions(self):
        """Every question counts, whether or not there was anything to ask."""
        play = game("city_event")
        play.act(reply_scan.ASK)
        play.call("find_event")
        play.act(reply_scan.ASK)
        play.answer()
        play.act(reply_scan.ASK)  # after the end
        assert self.outcome(play) == {
            **self.CLEAN,
            "success": True,
            "num_calls": 1,
            "num_questions": 2,
            "num_needless_questions": 2,
            "fewest_calls": 1,
        }

    def test_the_question_for_a_missing_value_is_not_needless(self):
        task = game("city_event").task
        play = Game(dataclasses.replace(task, shown=task.shown & False))
        paid = [play.act(reply_scan.ASK).reward["needless_question"] for _ in range(2)]
        assert paid == [0, 1]  # the second one asks for what the user has told
        found = self.outcome(play)
        assert (found["num_questions"], found["num_needless_questions"]) == (2, 1)

    def test_calls_and_errors(self):
        play = game("city_event", faults_failures={"find_event": 1})
        play.act(reply_scan.MALFORMED)
        for _ in range(2):
            play.call("find_event")
        play.answer()
        assert self.outcome(play) == {
            **self.CLEAN,
            "success": True,
            "num_calls": 3,
            "num_errors": 2,
            "fewest_calls": 2,
        }

    def test_refusal_of_a_solvable_task(self):
        play = game("city_event")
        play.refuse()
        assert self.outcome(play) == {**self.CLEAN, "refused": True, "fewest_calls": 1}

    def test_refusal_of_an_unsolvable_task(self):
        play = game("city_event", tools_visible={"find_event": False})
        assert self.outcome(play)["refused"] is False
        play.refuse()
        assert self.outcome(play) == {
            **self.CLEAN,
            "success": True,
            "solvable": False,
            "refused": True,
            "fewest_calls": 0,
        }

    def test_a_refusal_after_the_end_does_not_count(self):
        play = game("city_event")
        play.call("find_event")
        play.answer()
        play.refuse()
        outcome = self.outcome(play)
        assert outcome["success"] and not outcome["refused"]


class Memoriser:
    """Has memorised which tools a request needs, by all of their names."""

    def __init__(self, name):
        self.spec, self.texts = helpers.spec(name), helpers.texts(name)

    def names(self, n):
        tool = self.spec.tools[n]
        return {tool.name}.union(*tool.names.values())

    def row(self, task, n):
        names, tools = self.names(n), task.tools
        hits = [
            m
            for m in np.flatnonzero(tools.visible)
            if self.texts[tools.name[m]] in names
        ]
        return hits[0] if hits else NONE


class Reader(Memoriser):
    """Finds the right tool by its description, and uses the name given there."""

    def row(self, task, n):
        description, tools = self.spec.tools[n].description, task.tools
        told = ["".join(self.texts[s] for s in row) for row in tools.description]
        (m,) = (m for m in np.flatnonzero(tools.visible) if told[m] == description)
        # As in a call, a name means the first tool that has it.
        return [
            k for k in np.flatnonzero(tools.visible) if tools.name[k] == tools.name[m]
        ][0]


def play_script(agent, name, task):
    """Make the calls of the goal in order, with the tools that the agent chooses."""
    play, goal = Game(task, name), agent.spec.goals[task.goal.kind]
    steps = [tool for tool, _ in goal.steps]
    before = domain_spec.extra_calls(agent.spec, goal)
    for tool in (*before, *steps):
        play.call(tool, row=agent.row(task, play.rows[tool]))
    return bool(paid(play.answer()))


@pytest.mark.parametrize("name", helpers.DOMAINS)
class TestReadingIsNeeded:
    NUM = 40

    def success(self, agent, name, entry):
        tasks = helpers.rows(helpers.edited(name, "test", entry))[: self.NUM]
        return np.mean([play_script(agent(name), name, task) for task in tasks])

    @pytest.mark.parametrize("entry", [helpers.CLEAN, "semantic_renaming"])
    def test_memory_is_enough(self, name, entry):
        assert self.success(Memoriser, name, entry) == 1

    @pytest.mark.parametrize("entry", ["identity_erasure", "semantic_trap"])
    def test_memory_fails(self, name, entry):
        assert self.success(Memoriser, name, entry) == 0

    @pytest.mark.parametrize(
        "entry",
        [helpers.CLEAN, "semantic_renaming", "identity_erasure", "semantic_trap"],
    )
    def test_reading_is_enough(self, name, entry):
        assert self.success(Reader, name, entry) == 1


def test_random_actions():
    """Nothing breaks, no task is solved by chance, and the counts add up."""
    rng = np.random.default_rng(0)
    kinds = [reply_scan.CALL] * 12 + [
        reply_scan.ASK,
        reply_scan.MALFORMED,
        reply_scan.ANSWER,
    ]
    statuses = set()
    for task in clean()[:24]:
        play = Game(task, max_turns=12)
        rewards = errors = calls = answered = 0
        while not play.state.finished:
            kind = int(rng.choice(kinds))
            n = int(rng.choice([NONE, *np.flatnonzero(task.tools.visible)]))
            tools = task.tools
            high = np.maximum(tools.arg_high[n], tools.arg_low[n] + 1)
            args = rng.integers(tools.arg_low[n], high)
            args = np.where(tools.arg_high[n] > tools.arg_low[n], args, NONE)
            code = rng.choice([NONE, tools.code[max(tools.code_from[n], 0)]])
            value = rng.integers(len(helpers.texts("poi")))
            timestep = play.act(kind, n, args, code, value)
            status = int(timestep.observation.status)
            statuses.add(status)
            rewards += paid(timestep)
            calls += kind in (reply_scan.CALL, reply_scan.MALFORMED)
            answered += status == style.OK
            errors += style.BAD_FORMAT <= status <= style.MOVED
        state = play.state
        assert rewards == state.success == 0
        assert state.turn <= 12
        assert (state.num_calls, state.num_errors) == (calls, errors)
        assert state.succeeded.sum() <= state.attempts.sum() == answered
    assert statuses >= {style.OK, style.UNKNOWN_TOOL, style.BAD_ARGUMENT}
    assert statuses >= {style.WRONG_CODE, style.OUT_OF_ORDER, style.BAD_FORMAT}


def test_batched_results_equal_single_tasks():
    """`vmap` over tasks equals one task at a time."""
    tasks = helpers.tasks("poi")
    args, _, values, _ = jax.jit(jax.vmap(solution))(tasks)
    for i, task in enumerate(clean()[:16]):
        state = helpers.reset(helpers.lexicon("poi"), task)
        assert jnp.array_equal(state.args, args[i])
        assert jnp.array_equal(state.values, values[i])


def test_one_trace():
    counts = []
    for name in helpers.DOMAINS:
        Game(clean(name)[0], name).refuse()
        counts.append((helpers.TRACES["reset"], helpers.TRACES["step"]))
    assert counts[0] == counts[1]  # other files play worlds of other sizes before
