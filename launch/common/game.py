"""A game in the terminal: a person plays episodes, as any other agent by messages."""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from launch.common.errors import UsageError
from openagent_jax import perturb
from openagent_jax.agents import person, play
from openagent_jax.agents.agents import Reply
from openagent_jax.agents.dialogue import Dialogue
from openagent_jax.agents.log import Line
from openagent_jax.curriculum import draw
from openagent_jax.environments import transcript
from openagent_jax.evaluation import transcript as pages
from openagent_jax.suites.tasks import Suite
from openagent_jax.text import messages as openai
from openagent_jax.text.messages import Message

MOST_SKIPPED = 100  # tasks in a row that a scenario leaves as they are
# Colours that can be read on light and on dark.
GOOD, BAD, NEWS, TITLE, SOFT = "green", "red", "magenta", "bold", "dim"
GREETING = """\
You are the agent. Do what the user asks for, by calling the tools below: they are all
that you know. End with an answer, or refuse if the tools cannot do it."""
USAGE = """\
  TOOL arg=value, ...   call a tool (Tab completes)    answer VALUE  give the answer
  ask                   ask the user what is missing   refuse        it cannot be done
  /plan  what the oracle would do   /what  what is perturbed   /help  more"""
WHY = {  # of `evaluation.episodes.failure`
    "wrong_answer": "the answer is wrong, or something was not done or done wrongly",
    "false_refusal": "you refused, but the tools can do it",
    "missed_refusal": "it cannot be done, so you should have refused",
    "out_of_turns": "there are no turns left",
}


class Reader(Protocol):
    """Where lines come from: a terminal, a pipe, or a test."""

    async def __call__(
        self, prompt: str, complete: Callable[[str], Iterator[person.Completion]]
    ) -> str:
        """Read a line.

        Raises:
          EOFError: there are no more lines.
        """
        ...


class _Leave(Exception):
    """The person gives up an episode."""

    def __init__(self, command: str):
        super().__init__(command)
        self.command = command


@dataclass
class Score:
    """Episodes that were played to the end, and those that were solved."""

    solvable: int = 0
    solved: int = 0
    unsolvable: int = 0
    refused: int = 0  # of the unsolvable ones

    def add(self, line: Line) -> None:
        if line["solvable"]:
            self.solvable += 1
            self.solved += line["success"]
        else:
            self.unsolvable += 1
            self.refused += line["success"]

    def __str__(self) -> str:
        """
        >>> str(Score(3, 2)), str(Score(0, 0, 1, 1))
        ('solved 2 of 3 solvable tasks', 'refused 1 of 1 unsolvable tasks')
        """
        parts = []
        if self.solvable:
            parts.append(f"solved {self.solved} of {self.solvable} solvable tasks")
        if self.unsolvable:
            parts.append(
                f"refused {self.refused} of {self.unsolvable} unsolvable tasks"
            )
        return ", ".join(parts) or "no episode was finished"


class Game:
    """Plays the tasks of one scenario, one after the other."""

    def __init__(
        self,
        suite: Suite,
        scenario: str,
        reader: Reader,
        console: Console,
        hints: bool = False,
    ):
        """
        Args:
          suite: the tasks.
          scenario: one of the scenarios of the suite.
          reader: where the lines of the person come from.
          console: where everything is printed.
          hints: whether to say what is perturbed before each episode.
        """
        self.score = Score()
        self._suite, self._reader, self._console = suite, reader, console
        self._hints, self._scenario = hints, scenario
        self._dialogue: Dialogue | None = None  # the episode that is played
        self._seen = self._num_actions = 0  # messages that are printed, and actions
        self._offered: list[str] = []  # names of the tools that are printed

    def run(self) -> None:
        """Play until the person ends it, or there are no more lines or tasks."""
        self._print(GREETING)
        number = 0
        with contextlib.suppress(EOFError):
            while episode := self._find(number):
                command = self._play(episode)
                if command == "/quit":
                    break
                number = episode.index + (command == "/next")
        self._print(f"\nScore: {self.score}.", TITLE)

    def _find(self, number: int) -> play.Episode | None:
        """Return the first episode from a number on that the scenario changes.

        Raises:
          UsageError: it changes hardly any.
        """
        last = min(number + MOST_SKIPPED, self._suite.num_tasks)
        for n in range(number, last):
            episode = self._suite.episode(self._scenario, n)
            if self._scenario == draw.CLEAN or episode.facts["changed"]:
                return episode
        if last < self._suite.num_tasks or not number:
            raise UsageError(
                f"--scenario={self._scenario} at --strength={self._suite.strength:g} "
                f"changes none of tasks {number} to {last - 1}; take another one"
            )
        self._print("\nThere are no more tasks.")
        return None

    def _play(self, episode: play.Episode) -> str:
        """Play one episode, and return what to do then: /next, /again or /quit."""
        self._open(episode)

        def begin() -> play.Turns:
            dialogue = episode.begin()
            assert isinstance(dialogue, Dialogue)
            self._dialogue = dialogue
            self._seen, self._num_actions = len(dialogue.messages), 0
            return dialogue

        waiting = self._console.status("Compiling the first turn ...")

        async def agent(messages: list[Message], tools: list[dict]) -> Reply:
            waiting.stop()
            self._show_news(messages, tools)
            self._num_actions += 1
            turn, of = self._num_actions, self._num_turns
            while True:
                line = await self._read(f"turn {turn} of {of}> ", messages, tools)
                try:
                    found = person.read(line, tools) if line.strip() else None
                except ValueError as error:
                    self._print(f"{error}", BAD)
                    continue
                if isinstance(found, person.Command):
                    self._obey(found, episode)
                elif found:
                    return Reply(found)

        async def go() -> Line:
            one = [episode._replace(begin=begin)]
            playing = play.play(one, agent, 1, play.Budget())
            async with contextlib.aclosing(playing):
                return await anext(playing)

        try:
            with waiting:  # until a first turn is compiled
                line = asyncio.run(go())
            self._close(episode, line)
            return asyncio.run(self._ask_what_next(episode))
        except _Leave as left:
            return left.command

    async def _ask_what_next(self, episode: play.Episode) -> str:
        while True:
            line = await self._read("Enter or /next, /again, /what, /plan, /quit> ")
            try:
                found = person.read(line, ()) if line.strip() else None
            except ValueError:
                found = ""  # an action
            if found is None:
                return "/next"
            if isinstance(found, person.Command):
                self._obey(found, episode)
            else:
                self._print("This episode is over: /again plays it again.", BAD)

    async def _read(
        self,
        prompt: str,
        messages: Sequence[Message] = (),
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        values = person.values_in(messages)
        return await self._reader(
            prompt, lambda line: person.complete(line, tools, values)
        )

    def _obey(self, command: person.Command, episode: play.Episode) -> None:
        """Do what a command says.

        Raises:
          _Leave: it ends the episode.
        """
        dialogue = self._dialogue
        assert dialogue is not None
        if command.name in ("/next", "/again", "/quit"):
            raise _Leave(command.name)
        if command.name == "/help":
            self._print(f"{USAGE}\n")
            for name, about in (person.WORDS | person.COMMANDS).items():
                self._print(f"  {name:8} {about}")
        elif command.name == "/tools":
            self._show_tools(dialogue.tools)
        elif command.name == "/what":
            self._show_perturbed(episode)
        elif command.name == "/plan":
            start = dialogue.finished or command.rest == "start"
            self._show_plan(episode.facts["plan"] if start else dialogue.plan(), start)

    def _open(self, episode: play.Episode) -> None:
        """Show the documents and the request of an episode."""
        suite, opening = self._suite, episode.begin()
        where = f"{self._scenario} at strength {suite.strength:g}"
        if self._scenario == draw.CLEAN:
            where = self._scenario
        task = f"task {episode.index} of seed {suite.seed}, {suite.split} split"
        self._print(f"\n--- {where}: {task}\n", TITLE)
        if self._hints:
            self._show_meaning()
            self._print("")
        self._offered = []
        self._show_tools(opening.tools)
        self._print("")
        for message in opening.messages:
            if message["role"] == "user":
                self._say("user", message["content"])
        self._print(f"\n{USAGE}\n", SOFT)

    def _show_news(self, messages: list[Message], tools: list[dict]) -> None:
        """Show what the agent has been told since its last action."""
        for message in messages[self._seen :]:
            if message["role"] != "assistant":
                self._say(message["role"], message["content"])
        self._seen = len(messages)
        names = [tool["function"]["name"] for tool in tools]
        if new := [x for x in tools if x["function"]["name"] not in self._offered]:
            self._print("There are new tools:", NEWS)
            self._show_tools(new)
        elif gone := [name for name in self._offered if name not in names]:
            self._print(f"No longer offered: {', '.join(gone)}", NEWS)
        self._offered = names

    def _close(self, episode: play.Episode, line: Line) -> None:
        """Show how an episode ended, and what would have been right."""
        self.score.add(line)
        if line["success"]:
            right = "Right: it cannot be done, and you refused."
            self._print(f"\n{'Solved.' if line['solvable'] else right}", GOOD)
        else:
            why = WHY.get(line["failure"], line["failure"])
            self._print(f"\nNot solved: {why}.", BAD)
        errors = f", {line['num_errors']} of them answered by an error"
        text = f"Calls: {line['num_calls']}{errors * bool(line['num_errors'])}"
        if line["solvable"]:
            text += f"; the oracle needs {line['fewest_calls']}"
        else:
            text += f"; why it cannot be done: {line['unsolvable'].replace('_', ' ')}"
        if needless := line["num_needless_questions"]:
            text += f"; needless questions: {needless}"
        self._print(f"{text}.")
        self._show_meaning()
        self._show_plan(episode.facts["plan"], True)
        self._print(f"Score: {self.score}.\n", TITLE)

    def _show_meaning(self) -> None:
        """Say what the scenario changes, and what is right to do then."""
        entries = self._suite.entries
        known = [entries[self._scenario]] if self._scenario in entries else []
        for name, meaning in perturb.glossary(known).items():
            summary, right = (meaning[x].replace("`", "") for x in ("summary", "right"))
            self._print(f"Perturbed by {name}: {summary}", NEWS)
            self._print(f"Right to do: {right}", NEWS)
        if not known:
            self._print("Nothing is perturbed.", NEWS)

    def _show_perturbed(self, episode: play.Episode) -> None:
        """Show the clean task beside the perturbed one; afterwards, as it is solved."""
        self._show_meaning()
        if self._scenario == draw.CLEAN:
            return
        over = self._dialogue is not None and self._dialogue.finished
        clean = self._suite.episode(draw.CLEAN, episode.index)
        left, right = (_lines(x, over) for x in (clean, episode))
        if left == right:
            self._print(
                "Documents and request are those of the clean task. The perturbation "
                "shows only in what the tools and the user say; type /what after the "
                "episode to see it."
            )
            return
        width = self._console.width
        self._print(f"{'clean':{(width - 3) // 2}}   {self._scenario}", TITLE)
        for mark, row in pages.side_by_side(left, right, width):
            self._print(row, "" if mark == pages.SAME else NEWS)

    def _show_plan(self, plan: Sequence[Mapping[str, Any]], start: bool) -> None:
        where = "from the start" if start else "from here"
        self._print(f"The oracle, {where}:")
        for action in plan:
            self._print(f"  {transcript.in_short(action)}")

    def _show_tools(self, tools: Sequence[Mapping[str, Any]]) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style=TITLE)
        for tool in tools:
            about = " ".join((tool["function"].get("description") or "").split())
            table.add_row(f"  {person.signature(tool)}", about)
        self._console.print(table)
        self._offered += [tool["function"]["name"] for tool in tools]

    def _say(self, role: str, content: str) -> None:
        line = Text(f"{role}: ", TITLE)
        line.append(content, "not bold")
        self._console.print(line)

    def _print(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style))

    @property
    def _num_turns(self) -> int:
        return self._suite.world.environment.sizes.max_turns


def _lines(episode: play.Episode, whole: bool) -> list[str]:
    """Return documents and request of an episode, with all that follows if `whole`."""
    dialogue = episode.begin()
    tools = dialogue.tools
    for action in episode.facts["plan"] if whole else ():
        if dialogue.finished:
            break
        dialogue.receive(_message(action), False)
    return list(pages.conversation(dialogue.messages, tools))


def _message(action: Mapping[str, Any]) -> Message:
    """Return an action of a plan as a message of the agent."""
    if "name" not in action:
        return openai.assistant(action["text"])
    arguments = json.dumps(action["arguments"], ensure_ascii=False)
    return openai.assistant("", [openai.Call("call", action["name"], arguments)])
