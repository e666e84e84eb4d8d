"""The limits that the domains of a world have to fit."""

from dataclasses import dataclass, replace

from openagent_jax.text.lexicon import MAX_TEXT

MAX_PAGES = 8  # of a list
MAX_SETS = 512  # different sets of tools that the goals of a domain may need
# Calls without arguments before a call, one after the other, that the oracle plans for.
# `launch.domain check` warns of goals that need more.
MAX_PREREQUISITES = 4


@dataclass(frozen=True)
class Limits:
    """The sizes of the arrays of a task, and the length of its values."""

    num_tools: int = 16
    num_args: int = 3  # of a tool, not counting the code; leaves, if they are nested
    depth: int = 1  # of arguments and results: 1 for scalars, 2 for `to.city`, `tags.0`
    num_unions: int = 0  # further types of an argument
    num_fields: int = 2  # of a result, not counting the code
    num_steps: int = 5  # of a goal, not counting prerequisites without arguments
    num_constants: int = 4  # of a request
    num_pieces: int = 4  # of a description
    num_phrase_pieces: int = 24  # of a request
    value_bytes: int = MAX_TEXT  # of a value or name that calls have, in UTF-8
    num_facts: int = 0  # recorded calls of a logged world; 0 for generated worlds
    num_derived: int = 0  # values derived from the lists of a result; 0: no lists
    conditions: bool = False  # whether steps of a goal may have conditions
    paging: bool = False  # whether results may come in pages
    num_columns: int = 0  # of a table; 0 if no tool reads or changes records

    @property
    def num_values(self) -> int:
        """V, the values of a result that goals can use."""
        return self.num_fields + self.num_derived

    def flat(self) -> "Limits":
        """Return the limits of worlds whose results have neither paths nor lists."""
        return replace(self, num_derived=0, depth=1, conditions=False, paging=False)
