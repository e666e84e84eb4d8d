"""Write the episodes of tool tasks as messages and tools of OpenAI's protocol.

This runs on the host: tasks are in NumPy here, and texts are in the compact style.
Replies are parsed by the parser of the tool worlds, so that the same rules hold for all
agents (see `parse`).
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Int

from openagent_jax.environments.tools import render
from openagent_jax.environments.tools.types import Action, State, Task, ToolResult
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import chat, messages, nesting, reply_scan, scalars, style

OF_ANOTHER_DOMAIN = "of another domain"  # what stands for the name of a goal


class Transcriber:
    """Writes the episodes of tool worlds as OpenAI messages and tools.

    See `environments.world.Transcriber`.
    """

    def __init__(
        self,
        symbols: ToolSymbols,
        max_args: int,
        goals: Sequence[str],
        documents: Documents | None = None,
    ):
        """
        Args:
          symbols: the surface forms; the texts of the compact style are added to them.
          max_args: the most arguments of a tool, not counting the code.
          goals: a name for each kind of goal.
          documents: the documents of tools; None if no tool has one of its own.
        """
        self._documents = documents or Documents(style.compact(max_args))
        digits, compact = symbols.digits(), style.compact(max_args)
        if self._documents.style.nested is not None:
            compact = style.with_nesting(compact)
        self._style = style.mapped(compact, symbols.one, digits=digits)
        self._texts, self._goals = symbols.texts, goals

    def tools(self, task: Task, state: State | None = None) -> messages.Tools:
        """Return the documents of the visible tools, in the order of the prompt.

        With a state, the tools that feedback has named follow them. One that has the
        name of a documented tool replaces it.
        """
        order, visible = np.argsort(task.tools.place, kind="stable"), task.tools.visible
        rows = [int(n) for n in order if visible[n]]
        if state is not None:
            told = np.asarray(state.known_from)
            new = [int(n) for n in order if told[n] and not visible[n]]
            names = task.tools.name
            rows = [n for n in rows if names[n] not in names[new]] + new
        return [self._document(task, n) for n in rows]

    def opening(self, task: Task) -> list[messages.Message]:
        """Return the messages before the first message of the agent."""
        phrase = np.asarray(render.request(self._style, task))
        return messages.opening("".join(map(self._text, phrase)))

    def message(self, task: Task, action: Action) -> messages.Message:
        """Return an action as a message; that of a malformed action has no content."""
        if action.kind != reply_scan.CALL:
            content = {
                reply_scan.ANSWER: style.ANSWER + self._text(max(action.value, 0)),
                reply_scan.REFUSE: style.REFUSE,
                reply_scan.ASK: style.ASK,
            }
            return {"role": "assistant", "content": content.get(int(action.kind), "")}
        n, leaves = int(action.call.tool), {}
        if n < 0:  # no such tool; the action does not hold the name that was written
            return {"role": "assistant", "content": ""}
        for a, value in enumerate(np.asarray(action.call.args)):
            if value >= 0:
                leaves[self._path(task, n, a)] = self._json(task, n, a, value)
        if action.call.code >= 0:
            leaves[(style.CODE,)] = self._texts[action.call.code]
        name = self._texts[task.tools.name[n]]
        return messages.call(name, nesting.nested(leaves))

    def observe(self, task: Task, observation: ToolResult) -> Int[Array, "P"]:
        """Return the pieces of the text shown after an action."""
        return render.observation(self._style, task, observation)

    def shown(self, pieces: Sequence[int]) -> tuple[str, str] | None:
        """Return role and content for the result of `observe`; None if it is empty."""
        if not pieces[0]:
            return None
        role = "user" if pieces[0] == self._style.reply_open else "tool"
        return role, self._join(pieces[1:-1])

    def goal(self, task: Task) -> str:
        """Return the name of the kind of goal of a task, if it is of this domain."""
        kind = int(task.goal.kind)
        return self._goals[kind] if kind >= 0 else OF_ANOTHER_DOMAIN

    def _document(self, task: Task, n: int) -> dict[str, Any]:
        tools, untold = task.tools, bool(task.faults.untold[n])
        description = "".join(
            self._documents.original(int(symbol), self._texts)
            for symbol in tools.description[n]
        )
        for row, (before, after) in (
            (tools.code_from[n], chat.CODE_FROM),
            (tools.call_after[n], chat.CALL_AFTER),
        ):
            if row >= 0 and not untold:
                description += before + self._texts[tools.name[row]] + after
        name = self._texts[tools.name[n]]
        needs_code = bool(tools.code_from[n] >= 0) and not untold
        num_args = tools.arg_name.shape[1]
        arguments = [nesting.written(self._path(task, n, a)) for a in range(num_args)]
        if tools.document[n] >= 0:
            function = self._documents.functions[int(tools.document[n])]
            made = function.reworded(name, description, arguments, needs_code)
            return messages.as_tools([made])[0]
        parameters = {}
        for a in np.flatnonzero(tools.arg_high[n] > tools.arg_low[n]):
            parameters[arguments[a]] = self._kind(task, n, int(a))
        if needs_code:
            parameters[style.CODE] = messages.STRING
        return messages.tool(name, description, parameters)

    def _path(self, task: Task, n: int, a: int) -> nesting.Path:
        """Return the path of an argument; of none, that of an empty name."""
        outer = np.asarray(task.tools.arg_path)[n, a].tolist()
        name = int(task.tools.arg_name[n, a])
        return nesting.decoded(outer, name, self._texts) or ("",)

    def _kind(self, task: Task, n: int, a: int) -> str:
        """Return the JSON type of an argument in a generic document."""
        is_bare = task.tools.arg_low[n, a] >= scalars.UNQUOTED
        return messages.INTEGER if is_bare else messages.STRING

    def _json(self, task: Task, n: int, a: int, value: Any) -> Any:
        """Return the value of an argument as JSON has it."""
        if value >= scalars.NUMBER:
            return scalars.python(value)
        text = self._texts[value]
        is_bare = task.tools.arg_low[n, a] >= scalars.UNQUOTED
        for low, high in np.asarray(task.tools.arg_also)[n, a].tolist():
            shift = scalars.UNQUOTED if low >= scalars.UNQUOTED else 0
            if low <= value + shift < high:
                is_bare = bool(shift)
        return json.loads(text) if is_bare else text

    def _text(self, value: Any) -> str:
        is_number = value >= scalars.NUMBER
        return scalars.spelled(value) if is_number else self._texts[value]

    def _join(self, pieces: Any) -> str:
        return "".join(self._texts[symbol] for symbol in pieces)
