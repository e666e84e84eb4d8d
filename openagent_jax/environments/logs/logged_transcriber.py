"""Write the episodes of logged worlds with the JSON types that the log has.

The values of a logged world are texts, apart from the numbers 0 to 999. What agents
that communicate by messages see, and what is exported, has numbers, booleans and null
where the log had them.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from openagent_jax.environments.logs import json_kinds
from openagent_jax.environments.logs.logged_task import LoggedTask
from openagent_jax.environments.logs.logged_worlds import LoggedWorlds
from openagent_jax.environments.tools import types
from openagent_jax.environments.tools.conversation import Transcriber
from openagent_jax.environments.tools.types import Task
from openagent_jax.environments.tools.worlds.documents import Documents
from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import messages


class LoggedTranscriber(Transcriber):
    """Writes the episodes of logged worlds as messages and tools.

    Tasks of other worlds, which a perturbation may bring in, are written as usual.
    """

    def __init__(
        self,
        symbols: ToolSymbols,
        max_args: int,
        goals: Sequence[str],
        tasks: Sequence[LoggedTask],
        source: LoggedWorlds,
        documents: Documents,
    ):
        """
        Args:
          symbols: as for the base, like the next two.
          max_args: the most arguments of a tool, not counting the code.
          goals: a name for each kind of goal.
          tasks: all tasks of the log.
          source: the same tasks as arrays.
          documents: those of the domain that tasks may be transferred from.
        """
        super().__init__(symbols, max_args, goals, documents)
        self._literals = [task.literals for task in tasks]
        self._document_of_row = np.asarray(source.document)
        own = [
            [task.kinds.get(document.name, ()) for document in task.documents]
            for task in tasks
        ]
        # The hidden rows of a task are tools of other tasks.
        shared: dict[int, tuple[str, ...]] = {}
        for rows, kinds in zip(self._document_of_row, own, strict=True):
            for d, found in zip(rows.tolist(), kinds, strict=False):
                shared.setdefault(d, found)
        self._kinds = [
            [*kinds, *(shared.get(d, ()) for d in rows[len(kinds) :].tolist())]
            for rows, kinds in zip(self._document_of_row, own, strict=True)
        ]

    def shown(
        self, pieces: Sequence[int], task: Task | None = None
    ) -> tuple[str, str] | None:
        """Return role and content for the result of `observe`; None if it is empty.

        Fields of a result that is a JSON object have their types, given the task.
        """
        found = super().shown(pieces)
        if found is None or found[0] != "tool" or task is None or not _is_logged(task):
            return found
        literals = self._literals[int(task.world) >> 1]
        try:
            fields = json.loads(found[1])
        except ValueError:  # in a format other than JSON
            return found
        if not isinstance(fields, dict) or not literals & fields.keys():
            return found
        typed = {
            key: json_kinds.parsed(x) if key in literals else x
            for key, x in fields.items()
        }
        text = json.dumps(typed, ensure_ascii=False, separators=(",", ":"))
        return found[0], text

    def _kind(self, task: Task, n: int, a: int) -> str:
        if _is_logged(task):
            # A row that a perturbation has copied keeps its relation.
            kinds = self._kinds[int(task.world) >> 1]
            row = int(task.tools.relation[n])
            if row < len(kinds) and a < len(kinds[row]):
                return kinds[row][a]
        return super()._kind(task, n, a)

    def _json(self, task: Task, n: int, a: int, value: Any) -> Any:
        kind, text = self._kind(task, n, a), self._text(value)
        if kind == messages.STRING or not json_kinds.fits(text, kind):
            return super()._json(task, n, a, value)
        return json_kinds.parsed(text)


def _is_logged(task: Task) -> bool:
    """Tell whether a task is of a log: its tools only return recorded results."""
    low = np.asarray(task.tools.result_low)[np.asarray(task.tools.visible)]
    return bool(low.size and np.all(low == types.RECORDED))
