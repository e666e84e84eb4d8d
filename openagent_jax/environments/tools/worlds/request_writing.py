"""Write the requests of goals, from the words of the tools and a grammar."""

import itertools
import random

from openagent_jax.environments.tools.types import Limits
from openagent_jax.environments.tools.worlds import (
    phrase_syntax,
    request_grammar,
    request_text,
    tool_phrases,
)
from openagent_jax.environments.tools.worlds.domain_spec import (
    DomainSpec,
    GoalSpec,
    Synonyms,
)
from openagent_jax.environments.tools.worlds.goal_plan import Plan
from openagent_jax.environments.tools.worlds.request_grammar import Construction
from openagent_jax.environments.tools.worlds.tool_phrases import Phrase

MAX_WORDS = 90
MAX_PHRASES = 4  # of a goal and pool


class Writer:
    """Writes requests for the goals of a domain."""

    def __init__(self, spec: DomainSpec, limits: Limits):
        self.tools = {tool.name: tool for tool in spec.tools}
        self.units = {kind.name: kind.unit for kind in spec.types}
        self.limits = limits
        self.constructions = request_grammar.by_pool(spec.divided)
        self._phrases: dict[tuple, tuple[Phrase, ...]] = {}

    def phrases(self, goal: GoalSpec, rng: random.Random) -> Synonyms | None:
        """Return the phrases of a goal by pool, each by another construction.

        Args:
          goal: its own phrases are not looked at.
          rng: draws from the words of the tools.

        Returns:
          The phrases; None if no construction of one of the pools suits the goal.
        """
        plan = Plan(goal, self.tools)
        pools = {}
        for pool, constructions in self.constructions.items():
            tried = rng.sample(constructions, len(constructions))
            texts = (self.text(plan, form, pool, rng) for form in tried)
            some = itertools.islice(filter(None, texts), MAX_PHRASES)
            if not (texts := tuple(dict.fromkeys(some))):
                return None
            pools[pool] = texts
        return pools

    def text(
        self, plan: Plan, form: Construction, pool: str, rng: random.Random
    ) -> str:
        """Return a request; "" if the construction does not suit the goal.

        Args:
          plan: the goal.
          form: the construction.
          pool: the pool whose words of the tools are used.
          rng: draws from these.
        """
        try:
            pieces = request_text.RequestText(
                plan, form, pool, rng, self.options, self.units
            ).pieces()
        except request_text.Unsuitable:
            return ""
        text = phrase_syntax.write(pieces)
        fits = len(phrase_syntax.parse(text)) <= self.limits.num_phrase_pieces
        return text if fits and phrase_syntax.num_words(text) <= MAX_WORDS else ""

    def options(
        self, name: str, field: str, pool: str, given: tuple[str, ...]
    ) -> tuple[Phrase, ...]:
        """Return the phrases of a tool; see `tool_phrases.phrases`."""
        key = name, field, pool, given
        if key not in self._phrases:
            found = tool_phrases.phrases(self.tools[name], field, pool, given)
            self._phrases[key] = found
        return self._phrases[key]
