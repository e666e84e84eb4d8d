"""Write the requests of goals, from the words of the tools and a grammar."""

import itertools
import random

from openagent_jax.domains.domain_spec import (
    DomainSpec,
    GoalSpec,
    Synonyms,
)
from openagent_jax.domains.goals import (
    phrase_syntax,
    phrasebook,
    request_grammar,
    request_text,
)
from openagent_jax.domains.goals.goal_plan import Plan
from openagent_jax.domains.goals.request_grammar import Construction
from openagent_jax.domains.limits import Limits

MAX_WORDS = 90
MAX_PHRASES = 4  # of a goal and pool


class Writer:
    """Writes requests for the goals of a domain."""

    def __init__(self, spec: DomainSpec, limits: Limits):
        self.tools = {tool.name: tool for tool in spec.tools}
        self.around = {
            kind.name: (kind.name.replace("_", " ") * kind.identifier, kind.unit)
            for kind in spec.types
        }
        self.limits = limits
        self.constructions = request_grammar.by_pool(spec.divided)
        self.book = phrasebook.Phrasebook(self.tools)

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
                plan, form, pool, rng, self.book, self.around
            ).pieces()
        except request_text.Unsuitable:
            return ""
        text = phrase_syntax.write(pieces)
        # Neighbours may become one piece or one word, so that these are upper bounds. A
        # request near the limits is parsed.
        most, most_words = len(pieces), text.count(" ") + 2 * len(pieces)
        if most > self.limits.num_phrase_pieces:
            most = len(phrase_syntax.parse(text))
        if most_words > MAX_WORDS:
            most_words = phrase_syntax.num_words(text)
        fits = most <= self.limits.num_phrase_pieces and most_words <= MAX_WORDS
        return text if fits else ""
