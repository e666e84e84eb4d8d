"""Other words for the same, by rule: names, descriptions, arguments and requests.

Each function gives what to say in training and, apart from it, what to say in the test:
other verbs, other nouns, other case, another order of words, other openings.
"""

import itertools
import re
from collections.abc import Iterable
from typing import NamedTuple

from openagent_jax.sandbox.synonyms import (
    AFFIXES,
    LEAD,
    NAME_AFFIXES,
    NOUNS_TOO,
    OPENINGS,
    SMALL,
    SUMMARY,
    SYNONYMS,
    VERBS,
    Verb,
)

SPLITS = ("train", "test")
REWRITES = ("rewrite_train", "rewrite_test")
_VERB = {word: verb for verb in reversed(VERBS) for word in verb.words.split()}
# What stands behind a verb, known or not, and behind few other words.
_OBJECT = re.compile(r"(a|an|the|all|any|your|this|these) ", re.IGNORECASE)
_NO_VERB = SMALL | set(
    "all any both given half if is are no not than that this what when where which "
    "whether by as how who whose but until per via into over under about".split()
)
_NO_ADVERB = set(
    "hourly daily weekly monthly quarterly yearly early family reply apply".split()
)


class Doing(NamedTuple):
    """What a tool does, in words."""

    verb: Verb | None
    said: str  # the verb as it was found; "" if there is none
    rest: tuple[str, ...]  # the other words of the name
    phrase: str  # "get the status of an order"
    effect: bool

    @property
    def request(self) -> str:
        """The phrase without what a request says by its values."""
        text = re.split(r",| (?:by|using|based on) ", self.phrase)[0].strip()
        return (
            text if text.count(" ") and text.split()[-1] not in SMALL else self.phrase
        )


def words(name: str) -> list[str]:
    """`getOrder_status2` as `get order status 2`, in lower case."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.sub(r"[^A-Za-z0-9]+", " ", name).lower().split() or ["it"]


def singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    plain = word.endswith(("ss", "us", "is")) or len(word) < 4
    if re.search("(ch|sh|x|ss)es$", word):
        return word[:-2]
    return word if plain else word.removesuffix("s")


def plural(word: str) -> str:
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(ch|sh|x|s)$", word) else "s")


def verb(word: str) -> str:
    """What a word is a form of: `Cancels` of `cancel`; "" if it is no verb we know."""
    word = word.lower().strip(".,:;")
    forms = [word, word.removesuffix("s"), word.removesuffix("es"), singular(word)]
    return next((form for form in forms if form in _VERB), "")


def sentence(text: str, room: int = 100) -> str:
    """The first sentence of a description, in letters that the sandbox takes."""
    text = text.replace('"', "'").replace("\\", "").replace("{", "(").replace("}", ")")
    text = "".join(mark if mark.isprintable() else " " for mark in text)
    text = re.split(r"(?<=[^.]{3})[.!?;](?:\s|$)| [-–—] ", " ".join(text.split()))[0]
    while len(text.encode(errors="replace")) > room:
        text = text.rpartition(" ")[0] or text[: room // 4]
    return text.strip(" .:,")


def doing(name: str, description: str) -> Doing:
    """What a tool does, from its description, or else from its name."""
    parts = words(name)
    text = re.sub(f"^({LEAD}) ", "", sentence(description), flags=re.IGNORECASE)
    text = re.sub(r"^[^\w'(]+ |^given [^,]*, ", "", text, flags=re.IGNORECASE)
    text = re.sub("^looks? up ", "find ", text, flags=re.IGNORECASE)
    if (how := re.match(r"(\w+ly) (?=(\w+) )", text)) and verb(how[2]):
        text = text if how[1].lower() in _NO_ADVERB else text[how.end() :]
    first, _, behind = text.partition(" ")
    # Not an order or a book, if the description has no verb for it.
    named = [part for part in parts if verb(part) not in ("", *NOUNS_TOO)]
    if not text and not named and verb(parts[0]):
        named = parts[:1]
    said = verb(first) if behind else ""
    if said:
        phrase = f"{said}{',' * first.endswith(',')} {behind}"
    elif (unknown := singular(first.lower())).isalpha() and (
        unknown not in _NO_VERB and _OBJECT.match(behind)
    ):
        said, phrase = unknown, f"{unknown} {behind}"
    else:
        said = verb(named[0]) if named else ""
        lowered = text if text[:2].isupper() else text[:1].lower() + text[1:]
        others = [part for part in parts if part not in named[:1]]
        phrase = f"get {lowered}" if text else " ".join([said or "get", *others])
    found = _VERB.get(said)
    same = [part for part in parts if found and verb(part) in found.words.split()]
    # What starts a return is no other word for what starts an order.
    told = NOUNS_TOO if found and found.effect else ()
    same = same or [part for part in parts[:1] if verb(part) not in ("", *told)]
    rest = list(parts)
    if same and (found or len(parts) > 1):
        rest.remove(same[0])
    known = [_VERB[x] for x in (said, *map(verb, named[:1])) if x in _VERB]
    return Doing(found, said, tuple(rest), phrase, any(x.effect for x in known))


def joined(parts: Iterable[str], like: str, other: bool = False) -> str:
    """Words as a name, in the case of another one, or not in it."""
    parts = "_".join(parts).split("_")
    camel = "_" not in like and "-" not in like and like != like.lower()
    if camel != other:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return ("-" if "-" in like else "_").join(parts)


def names(tool: str, does: Doing) -> dict[str, list[str]]:
    """Synonymous names of a tool."""
    rest, found = list(does.rest), {}
    for index, split in enumerate(SPLITS):
        other = split == "test"
        verbs = _others(does, split)
        nouns = [_swap(rest, index), rest] if rest else []
        said = [[v, *n] for n, v in itertools.product(nouns, verbs)]
        said += [[*n, v] for n, v in itertools.product(nouns, verbs)]
        plain = "_".join(words(tool))
        said += [[affix.format(plain)] for affix in NAME_AFFIXES[split]]
        found[split] = [joined(parts, tool, other)[:64] for parts in said]
    return found


def descriptions(does: Doing) -> dict[str, list[str]]:
    """Paraphrases of what a tool does."""
    head, _, behind = does.phrase.partition(" ")
    if does.said == "search":  # what is searched for is found
        behind = behind.removeprefix("for ")
    comma, found = "," * head.endswith(","), {}
    for index, split in enumerate(SPLITS):
        text = " ".join(_swap(behind.split(), index)).replace("_", " ").strip()
        text = re.sub(r"\ban? (?=(\w))", _article, text)
        verbs = [v.replace("_", " ") for v in _others(does, split)]
        said = [f"{v.capitalize()}{comma} {text}" for v in verbs if text]
        summaries = [form.format(does.phrase) for form in SUMMARY[split]]
        found[split] = [*said[:1], summaries[0], *said[1:], *summaries[1:]]
    return found


def arguments(name: str) -> dict[str, list[str]]:
    """Synonymous names of an argument."""
    parts, found = words(name), {}
    for index, split in enumerate(SPLITS):
        swapped = [_swap(parts, index), [*parts[:-1], *_swap(parts[-1:], index)]]
        said = [x for x in swapped if x != parts]
        said += [[affix.format("_".join(parts))] for affix in AFFIXES[split]]
        found[split] = [joined(x, name, split == "test")[:64] for x in said]
    return found


def requests(full: str, short: str) -> dict[str, list[str]]:
    """A request in many words, and in few ones for those who rewrite it."""
    return {
        pool: [form.format(short if pool in REWRITES else full) for form in forms]
        for pool, forms in OPENINGS.items()
    }


def unclaimed(texts: Iterable[str], taken: set[str], num: int) -> list[str]:
    """The first few texts that nobody has; if there are none, one with a number."""
    texts = list(texts)
    free = [text for text in dict.fromkeys(texts) if text not in taken][:num]
    if not free:
        numbered = (f"{texts[-1][:60]}_{i}" for i in itertools.count(2))
        free = [next(text for text in numbered if text not in taken)]
    taken.update(free)
    return free


def _others(does: Doing, split: str) -> list[str]:
    if does.verb is None and does.said:
        return []  # a verb that we do not know
    if does.verb is None:
        return {"train": ["get", "fetch"], "test": ["obtain", "look_up"]}[split]
    verbs = getattr(does.verb, split).split()
    return [word for word in verbs if word != does.said]


def _article(match: re.Match[str]) -> str:
    return "an " if match[1].lower() in "aeio" else "a "


def _swap(parts: Iterable[str], index: int) -> list[str]:
    """Words with their synonyms, where they have some."""

    def one(word: str) -> str:
        base = singular(word.lower())
        if base not in SYNONYMS:
            return word
        other = SYNONYMS[base][index]
        return other if base == word.lower() else plural(other)

    return [one(word) for word in parts]
