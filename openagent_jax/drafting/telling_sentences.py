"""Find what a description says of its tool alone.

Lists often begin each description with the same words, such as what server the tools
are of. A request that is made from these would mean any of the tools.
"""

import collections
import itertools
import re
from collections.abc import Sequence

from openagent_jax.text import wording
from openagent_jax.text.synonyms import FUNCTION_WORDS

MAX_SENTENCES = 9  # of a description that are looked at
_LABEL = re.compile(r"(?:\w+ ){0,2}\w+: ")  # "Tool description: "


def of(descriptions: Sequence[str]) -> list[str]:
    """Return the sentence of each description from which requests are made.

    It is the first sentence that no other tool has, where later sentences count only if
    they say what to do. If there is none, it is the first sentence. A label that other
    tools share is left out.

    >>> of(["Uses the API. Does: finds a hive.", "Uses the API. Does: finds a jar."])
    ['finds a hive', 'finds a jar']
    """
    every = [
        list(itertools.islice(wording.sentences(text), MAX_SENTENCES))
        for text in descriptions
    ]
    labels = _counted([[x[0] for x in map(_LABEL.match, some) if x] for some in every])
    plain = [[_without(labels, x) for x in some] for some in every]
    num = _counted(plain)
    return [
        next((x for x in some if num[x] == 1 and _is_usable(x, some)), some[0])
        for some in plain
    ]


def _is_usable(sentence: str, sentences: list[str]) -> bool:
    """Tell whether a request can be made: a later sentence has to begin with a verb.

    Unknown words count as verbs if others follow; articles and pronouns do not.
    """
    words = sentence.lower().split()
    is_verb = len(words) > 1 and words[0] not in FUNCTION_WORDS
    return sentence == sentences[0] or is_verb


def _counted(texts: list[list[str]]) -> collections.Counter[str]:
    """Return how many of the lists have each text."""
    return collections.Counter(itertools.chain(*map(set, texts)))


def _without(labels: collections.Counter[str], sentence: str) -> str:
    label = _LABEL.match(sentence)
    return sentence[label.end() :] if label and labels[label[0]] > 1 else sentence
