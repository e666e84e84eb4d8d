"""Write paraphrases by rule: of tool names, descriptions, arguments and requests.

Each function returns texts for training and different texts for the test: other verbs,
other nouns, another case of letters, another order of words, other request templates.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from openagent_jax.text.synonyms import (
    ARGUMENT_TEMPLATES,
    DESCRIPTION_TEMPLATES,
    FUNCTION_WORDS,
    LEAD_IN,
    NOUNS,
    REQUEST_TEMPLATES,
    TOOL_TEMPLATES,
    VERBS,
    VERBS_OR_NOUNS,
    Verb,
)

SPLITS = ("train", "test")
REWRITES = ("rewrite_train", "rewrite_test")
_VERB_OF_WORD = {word: verb for verb in reversed(VERBS) for word in verb.words.split()}
# Words that follow a verb, even an unknown one, and rarely another word.
_OBJECT = re.compile(r"(a|an|the|all|any|your|this|these) ", re.IGNORECASE)
_NEVER_VERBS = FUNCTION_WORDS | set(
    "all any both given half if is are no not than that this what when where which "
    "whether by as how who whose but until per via into over under about".split()
)
# Words that end like an adverb but are more often followed by a noun than by a verb.
_NO_ADVERBS = set(
    "hourly daily weekly monthly quarterly yearly early family reply apply".split()
)


class Purpose(NamedTuple):
    """What a tool does, in words.

    Attributes:
      verb: the group of its verb; None if the verb is not known, or there is none.
      verb_word: the base form of its verb as the description or the name has it; ""
        if there is none.
      nouns: the words of the name without its verb.
      phrase: what it does, as an infinitive: "get the status of an order".
      effect: whether it changes something, judging by its verbs.
    """

    verb: Verb | None
    verb_word: str
    nouns: tuple[str, ...]
    phrase: str
    effect: bool

    @property
    def request(self) -> str:
        """The phrase without the part that the values of a request express anyway."""
        text = re.split(r",| (?:by|using|based on) ", self.phrase)[0].strip()
        text = re.sub(r" \([^)]*$", "", text)  # what was cut off inside of brackets
        complete = text.count(" ") and text.split()[-1] not in FUNCTION_WORDS
        return text if complete else self.phrase


def words(name: str) -> list[str]:
    """Split an identifier into its words, in lower case.

    >>> words("getOrder_status2")
    ['get', 'order', 'status2']
    """
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name)
    return re.sub(r"[^A-Za-z0-9]+", " ", name).lower().split() or ["it"]


def singular(word: str) -> str:
    """Return the singular of an English noun.

    >>> [singular(word) for word in ("cities", "boxes", "orders", "status")]
    ['city', 'box', 'order', 'status']
    """
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word == "ids":
        return "id"
    is_singular = word.endswith(("ss", "us", "is")) or len(word) < 4
    if re.search("(ch|sh|x|ss)es$", word):
        return word[:-2]
    return word if is_singular else word.removesuffix("s")


def plural(word: str) -> str:
    """Return the plural of an English noun.

    >>> [plural(word) for word in ("city", "box", "order")]
    ['cities', 'boxes', 'orders']
    """
    if re.search("[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search("(ch|sh|x|s)$", word) else "s")


def base_verb(word: str) -> str:
    """Return the base form of a verb; "" if it is not one of the known verbs.

    >>> base_verb("Cancels"), base_verb("weather")
    ('cancel', '')
    """
    word = word.lower().strip(".,:;")
    forms = [word, word.removesuffix("s"), word.removesuffix("es"), singular(word)]
    return next((form for form in forms if form in _VERB_OF_WORD), "")


def first_sentence(text: str, max_bytes: int = 100) -> str:
    """Return the first sentence of a description, in characters that a domain may use.

    >>> first_sentence('Find "it". Be quick.')
    "Find 'it'"
    """
    return next(sentences(text, max_bytes))


def sentences(text: str, max_bytes: int = 100) -> Iterator[str]:
    """Yield the sentences of a description as `first_sentence` returns the first one.

    >>> list(sentences("Find it. Be quick!"))
    ['Find it', 'Be quick']
    """
    text = text.replace('"', "'").replace("\\", "").replace("{", "(").replace("}", ")")
    text = "".join(mark if mark.isprintable() else " " for mark in text)
    parts = re.split(r"(?<=[^.]{3})[.!?;](?:\s|$)| [-–—] ", " ".join(text.split()))
    for number, part in enumerate(parts):
        while len(part.encode(errors="replace")) > max_bytes:
            part = part.rpartition(" ")[0] or part[: max_bytes // 4]
        part = part.strip(" .:,")
        if part or number == 0:
            yield part


def purpose(name: str, description: str) -> Purpose:
    """Return what a tool does, judging by its description or else by its name.

    >>> purpose("cancelOrder", "This tool cancels an order.").phrase
    'cancel an order'
    >>> purpose("weather", "").phrase
    'get weather'
    """
    name_words = words(name)
    text = _without_lead_in(first_sentence(description))
    title, _, rest = text.partition(": ")
    if rest and (words(title) == name_words or title.lower() == "start here"):
        text = rest
    first, _, object_ = text.partition(" ")
    # A verb that may be a noun needs a description: `order_status` orders nothing.
    name_verbs = [x for x in name_words if base_verb(x) not in ("", *VERBS_OR_NOUNS)]
    if not text and not name_verbs and base_verb(name_words[0]):
        name_verbs = name_words[:1]
    verb_word = base_verb(first) if object_ else ""
    if verb_word:
        phrase = f"{verb_word}{',' * first.endswith(',')} {object_}"
    elif (unknown := singular(first.lower())).isalpha() and (
        (unknown not in _NEVER_VERBS and _OBJECT.match(object_))
        or (unknown[:2] in ("re", "un") and base_verb(unknown[2:]) and object_)
    ):
        verb_word, phrase = unknown, f"{unknown} {object_}"
    else:
        verb_word = base_verb(name_verbs[0]) if name_verbs else ""
        lowered = text if text[:2].isupper() else text[:1].lower() + text[1:]
        others = [word for word in name_words if word not in name_verbs[:1]]
        phrase = f"get {lowered}" if text else " ".join([verb_word or "get", *others])
    verb = _VERB_OF_WORD.get(verb_word)
    known = (verb_word, *map(base_verb, name_verbs[:1]))
    effect = any(_VERB_OF_WORD[x].effect for x in known if x in _VERB_OF_WORD)
    nouns = _without_verb(name_words, verb)
    return Purpose(verb, verb_word, nouns, phrase, effect)


def _without_lead_in(text: str) -> str:
    """Return a sentence from its verb on, where it begins with something else."""
    text = re.sub(f"^({LEAD_IN}) ", "", text, flags=re.IGNORECASE)
    text = re.sub(r"^[^\w'(]+ |^given [^,]*, ", "", text, flags=re.IGNORECASE)
    text = re.sub("^looks? up ", "find ", text, flags=re.IGNORECASE)
    adverb = re.match(r"(\w+ly) (?=(\w+) )", text)
    if adverb and base_verb(adverb[2]) and adverb[1].lower() not in _NO_ADVERBS:
        text = text[adverb.end() :]
    return text


def _without_verb(name_words: list[str], verb: Verb | None) -> tuple[str, ...]:
    """Return the words of a name without the one that is its verb."""
    same = [x for x in name_words if verb and base_verb(x) in verb.words.split()]
    # `return_order` (start a return) must not become `open_order`: where the verb has
    # an effect, a first word that may be a noun is kept.
    nouns = VERBS_OR_NOUNS if verb and verb.effect else ()
    same = same or [x for x in name_words[:1] if base_verb(x) not in ("", *nouns)]
    rest = list(name_words)
    if same and (verb or len(name_words) > 1):
        rest.remove(same[0])
    return tuple(rest)


def join_words(parts: Iterable[str], like: str, other_case: bool = False) -> str:
    """Join words into an identifier.

    >>> join_words(["get", "order"], like="sendMail")
    'getOrder'
    >>> join_words(["get", "order"], like="sendMail", other_case=True)
    'get_order'

    Args:
      parts: the words.
      like: an identifier whose case (camel or snake, `-` or `_`) is used.
      other_case: whether to swap camel and snake case.
    """
    parts = "_".join(parts).split("_")
    is_camel = "_" not in like and "-" not in like and like != like.lower()
    if is_camel != other_case:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return ("-" if "-" in like else "_").join(parts)


def tool_names(name: str, does: Purpose) -> dict[str, list[str]]:
    """Return synonymous names of a tool by split, the best first.

    >>> tool_names("cancel_order", purpose("cancel_order", "Cancel an order"))["train"]
    ... # doctest: +ELLIPSIS
    ['revoke_purchase', 'revoke_order', 'purchase_revoke', ...]
    """
    nouns, variants = list(does.nouns), {}
    for index, split in enumerate(SPLITS):
        verbs = _other_verbs(does, split)
        objects = [_with_synonyms(nouns, index), nouns] if nouns else []
        candidates = [[v, *n] for n, v in itertools.product(objects, verbs)]
        candidates += [[*n, v] for n, v in itertools.product(objects, verbs)]
        snake = "_".join(words(name))
        candidates += [[template.format(snake)] for template in TOOL_TEMPLATES[split]]
        other_case = split == "test"
        variants[split] = [join_words(x, name, other_case)[:64] for x in candidates]
    return variants


def descriptions(does: Purpose) -> dict[str, list[str]]:
    """Return paraphrases of the description of a tool by split, the best first.

    >>> descriptions(purpose("cancel_order", "Cancel an order"))["test"][:2]
    ['Call off an acquisition', 'With this one can cancel an order']
    """
    verb, _, object_ = does.phrase.partition(" ")
    if does.verb_word == "search":  # "search for files", but "find files"
        object_ = object_.removeprefix("for ")
    comma, variants = "," * verb.endswith(","), {}
    for index, split in enumerate(SPLITS):
        text = " ".join(_with_synonyms(object_.split(), index))
        text = re.sub(r"\ban? (?=(\w))", _article, text.replace("_", " ").strip())
        verbs = [v.replace("_", " ") for v in _other_verbs(does, split)]
        swapped = [f"{v.capitalize()}{comma} {text}" for v in verbs if text]
        framed = [x.format(does.phrase) for x in DESCRIPTION_TEMPLATES[split]]
        variants[split] = [*swapped[:1], framed[0], *swapped[1:], *framed[1:]]
    return variants


def argument_names(name: str) -> dict[str, list[str]]:
    """Return synonymous names of an argument by split, the best first.

    >>> argument_names("order_id")["train"][:2]
    ['purchase_number', 'order_number']
    """
    parts, variants = words(name), {}
    for index, split in enumerate(SPLITS):
        last = _with_synonyms(parts[-1:], index)
        swapped = [_with_synonyms(parts, index), [*parts[:-1], *last]]
        candidates = [x for x in swapped if x != parts]
        templates = ARGUMENT_TEMPLATES[split]
        candidates += [[template.format("_".join(parts))] for template in templates]
        other_case = split == "test"
        variants[split] = [join_words(x, name, other_case)[:64] for x in candidates]
    return variants


def requests(full: str, short: str) -> dict[str, list[str]]:
    """Return ways to ask for something, by pool.

    >>> requests("cancel order {order}", "cancel {order}")["rewrite_test"][1]
    'so, cancel {order}, quick'

    Args:
      full: the request as an infinitive, for the pools of original requests.
      short: the same in fewer words, for the pools of rewritten requests.
    """
    return {
        pool: [x.format(short if pool in REWRITES else full) for x in templates]
        for pool, templates in REQUEST_TEMPLATES.items()
    }


def take_unused(texts: Iterable[str], taken: set[str], num: int) -> list[str]:
    """Return the first `num` texts that are not taken, and add them to `taken`.

    If all are taken, the result is the last text with a number behind it.

    >>> take_unused(["a", "b", "c", "d"], {"a"}, num=2)
    ['b', 'c']
    """
    texts = list(texts)
    free = [text for text in dict.fromkeys(texts) if text not in taken][:num]
    if not free:
        numbered = (f"{texts[-1][:60]}_{i}" for i in itertools.count(2))
        free = [next(text for text in numbered if text not in taken)]
    taken.update(free)
    return free


def _other_verbs(does: Purpose, split: str) -> list[str]:
    if does.verb is None and does.verb_word:
        return []  # a verb whose synonyms we do not know
    if does.verb is None:
        return {"train": ["get", "fetch"], "test": ["obtain", "look_up"]}[split]
    verbs = getattr(does.verb, split).split()
    return [word for word in verbs if word != does.verb_word]


def _article(match: re.Match[str]) -> str:
    return "an " if match[1].lower() in "aeio" else "a "


def _with_synonyms(parts: Iterable[str], index: int) -> list[str]:
    """Replace nouns that have synonyms by those of a split."""

    def replace(word: str) -> str:
        base = singular(word.lower())
        if base not in NOUNS:
            return word
        synonym = NOUNS[base][index]
        return synonym if base == word.lower() else plural(synonym)

    return [replace(word) for word in parts]
