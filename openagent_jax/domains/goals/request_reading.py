"""Read the words for requests of a tool (`x-openagent.requests`).

`do` asks for the call of the tool, `fields` names what it returns:

    "do": {"train": ["find the tank in which {fish} lives[ in {hall}]", ...], ...},
    "fields": {"tank": {"train": ["the tank in which {fish} lives[ in {hall}]", ...]}}

Each has the four pools of the phrases of a goal. A slot in square brackets is that of
an optional argument: the bracketed text is left out where the argument is not given.
The slot of a nested argument is its path, as in `{to.city}` and `[ and {tags.1}]`.
`request_writing.py` puts requests together from them.
"""

import re
from collections.abc import Collection
from functools import lru_cache

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains import nested_arguments, result_reading
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import (
    Fields,
    ListSpec,
    Requests,
    Synonyms,
)

# Words that say nothing about which tool is meant.
FUNCTION_WORDS = frozenset(
    "a all also an and any are as at be been before but by can could do does for from "
    "get give had has have her his how i if in into is it its let many me much my no "
    "not of off on once one or our out over own per please she should since so some "
    "such tell than that the their them then there these they this those to under "
    "until up upon us via want was we were what when where which while who whom whose "
    "why will with within without would you your".split()
)
_BRACKETED = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{([^{}]*)\}")


@lru_cache(4096)
def content_words(text: str) -> frozenset[str]:
    """Return the words of a text that mean something, without a plural s.

    >>> sorted(content_words("the opening hours of {inn}s"))
    ['hour', 'opening']
    """
    text = re.sub("([a-z])([A-Z])", r"\1 \2", _SLOT.sub(" ", text))
    words = set(re.findall("[a-z]+", text.lower())) - FUNCTION_WORDS
    return frozenset(_singular(word) for word in words if len(word) > 1)


def _singular(word: str) -> str:
    is_plural = len(word) > 3 and word.endswith("s") and not word.endswith("ss")
    return word[:-1] if is_plural else word


def without_optional(phrase: str, given: Collection[str]) -> str:
    """Return a phrase without the bracketed texts whose argument is not given.

    >>> without_optional("the inn of {city}[ near {park}]", {"city"})
    'the inn of {city}'
    """

    def kept(match: re.Match[str]) -> str:
        slots = _SLOT.findall(match[1])
        return match[1] if all(slot in given for slot in slots) else ""

    return _BRACKETED.sub(kept, phrase)


def read(
    tool: schema.Tool,
    returns: Fields,
    lists: tuple[ListSpec, ...],
    place: str,
    check: Checker,
) -> Requests | None:
    """Return the words for requests of a tool, or None if it has none.

    Fields of lists, and what is derived from lists, need no words: goals are sampled
    from those that have some.

    Args:
      tool: the tool.
      returns: the fields of its results.
      lists: the lists of its results.
      place: where its `x-openagent` block is.
      check: collects the faults.
    """
    if (given := tool.meaning.requests) is None:
        return None
    place = f"{place}.requests"
    derived = result_reading.derivable(lists, check.types)
    may_lack = {name for x in lists for name, _ in result_reading.leaves(x)} | {
        *derived
    }
    known = [*dict(returns), *derived]
    check.names(given.fields, known, f"{place}.fields", "field", may_lack)
    for name in {*given.fields} & {*result_reading.optional(lists)}:
        message = "not every call returns it; raise at_least of its list, or remove it"
        check.require(False, f"{place}.fields.{name}", message)
    fields: dict[str, str] = {}  # all noun phrases of the tool must differ
    return Requests(
        _pools(given.do, tool, {}, f"{place}.do", check),
        {
            name: _pools(phrases, tool, fields, f"{place}.fields.{name}", check)
            for name, phrases in given.fields.items()
        },
    )


def _pools(
    phrases: schema.Phrases,
    tool: schema.Tool,
    used: dict[str, str],
    place: str,
    check: Checker,
) -> Synonyms:
    pools = {}
    for pool, texts in phrases:
        for index, text in enumerate(texts):
            _check(text, tool, f"{place}.{pool}[{index}]", check)
        pools[pool] = check.unused(texts, used, f"{place}.{pool}")
    return pools


def _check(text: str, tool: schema.Tool, place: str, check: Checker) -> None:
    """Check one phrase of a tool."""
    message = "begins or ends with a blank; remove it"
    check.require(text == text.strip(), place, message)
    message = f"ends with {text[-1:]!r}; remove it, since requests add their own"
    check.require(text[-1:] not in (".", "?", "!"), place, message)
    message = "contains '|', which separates the texts of a choice; remove it"
    check.require("|" not in text, place, message)
    bare = _BRACKETED.sub("", text)
    message = "square brackets that do not match; close each [ with ], one inside no "
    check.require(not re.search(r"[\[\]]", bare), place, f"{message}other")
    names = list(tool.meaning.arguments)
    gates = nested_arguments.gates(tool.function.parameters.model_dump(), names)
    required = [name for name in names if not gates[name]]
    slots = [f"{{{name}}}" for name in names]
    check.names(re.findall(r"[{}][^{}]*}?", text), slots, place, "slot")
    optional = _SLOT.findall(" ".join(_BRACKETED.findall(text)))
    for name in names:
        message = f"slot {{{name}}} occurs twice; keep one"
        check.require(_SLOT.findall(text).count(name) < 2, place, message)
        message = f"{name!r} is required; write its slot outside of brackets"
        check.require(name not in optional or name not in required, place, message)
        message = f"{name!r} is optional; put its slot in square brackets, with the "
        message += f"words that vanish with it: [ in {{{name}}}]"
        bare_slot = f"{{{name}}}" in bare
        check.require(not bare_slot or name in required, place, message)
    for inner in _BRACKETED.findall(text):
        message = f"[{inner}] has no slot; write its text without the brackets"
        check.require(_SLOT.search(inner), place, message)
    document = content_words(tool.function.description)
    message = "shares no word with the description of the tool, so that a reader who "
    message += f"knows nothing else cannot find it; use one of {sorted(document)}"
    check.require(content_words(bare) & document, place, message)
