"""Other words for the same, by rule: names, descriptions, arguments and requests.

Each function gives what to say in training and, apart from it, what to say in the test:
other verbs, other nouns, other case, another order of words, other openings.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

SPLITS = ("train", "test")


class Verb(NamedTuple):
    """What a tool does; `words` all mean about the same."""

    words: str
    train: str
    test: str
    effect: bool = False


VERBS = (
    Verb("get fetch read load retrieve give return tell", "fetch load", "obtain pull"),
    Verb("show view display describe inspect", "show view", "present inspect"),
    Verb("find search lookup locate discover query", "find search", "locate seek"),
    Verb("list browse enumerate", "list gather", "enumerate survey"),
    Verb("check verify validate test confirm", "check examine", "verify review"),
    Verb("count", "count number", "tally total"),
    Verb("compute calculate estimate", "compute estimate", "calculate derive"),
    Verb("convert translate", "convert change", "translate turn"),
    Verb("compare", "compare contrast", "match weigh"),
    Verb("track monitor watch follow", "track follow", "monitor trace"),
    Verb("summarize summarise", "summarize shorten", "digest condense"),
    Verb("create make generate open start", "create open", "make set_up", True),
    Verb("add append insert attach", "add put", "append attach", True),
    Verb("update edit change modify set adjust", "update edit", "change modify", True),
    Verb("delete remove drop erase clear", "delete remove", "erase drop", True),
    Verb("cancel abort revoke void", "cancel revoke", "call_off void", True),
    Verb("close resolve finish complete end stop", "close finish", "end wrap_up", True),
    Verb("book reserve hold", "book reserve", "secure hold", True),
    Verb("order buy purchase", "order buy", "purchase acquire", True),
    Verb("pay charge bill", "pay charge", "settle bill", True),
    Verb("refund reimburse", "refund repay", "reimburse credit", True),
    Verb("send submit post publish email notify", "send submit", "post deliver", True),
    Verb("invite", "invite ask", "summon call", True),
    Verb("reply respond answer comment", "reply respond", "answer react", True),
    Verb("save store write record log", "save store", "write keep", True),
    Verb("move transfer migrate", "move transfer", "shift relocate", True),
    Verb("copy clone duplicate", "copy clone", "duplicate replicate", True),
    Verb("rename", "rename retitle", "relabel call", True),
    Verb("assign allocate delegate", "assign allot", "allocate delegate", True),
    Verb("approve accept", "approve accept", "grant allow", True),
    Verb("reject deny decline", "reject deny", "decline refuse", True),
    Verb("schedule plan", "schedule plan", "arrange time", True),
    Verb("register enroll subscribe", "register enroll", "sign_up subscribe", True),
    Verb("unsubscribe unregister", "unsubscribe leave", "unregister quit", True),
    Verb("enable activate", "enable activate", "switch_on allow", True),
    Verb("disable deactivate", "disable deactivate", "switch_off block", True),
    Verb("lock block", "lock block", "shut seal", True),
    Verb("unlock unblock", "unlock unblock", "release free", True),
    Verb("upload import", "upload import", "bring_in feed", True),
    Verb("download export", "download export", "take_out save"),
    Verb("archive", "archive shelve", "store_away file", True),
    Verb("restore reset restart", "restore reset", "bring_back restart", True),
    Verb("run execute trigger launch", "run execute", "trigger launch", True),
    Verb("merge join", "merge join", "combine unite", True),
    Verb("renew extend", "renew extend", "prolong continue", True),
    Verb("escalate", "escalate raise", "pass_up forward", True),
    Verb("place issue", "place issue", "put_in lodge", True),
)
# Nouns as well: at the head of a name they say nothing without a description.
NOUNS_TOO = set(
    "order book place post email open record log comment answer charge bill hold test "
    "query list set plan schedule issue block lock copy end start view display count "
    "return change drop purchase refund file match track".split()
)
SYNONYMS = {
    "order": ("purchase", "acquisition"),
    "customer": ("client", "buyer"),
    "user": ("member", "account_holder"),
    "account": ("profile", "membership"),
    "ticket": ("case", "incident"),
    "book": ("volume", "publication"),
    "product": ("item", "article"),
    "item": ("article", "piece"),
    "status": ("state", "condition"),
    "price": ("cost", "charge"),
    "message": ("note", "letter"),
    "email": ("mail", "mailbox"),
    "file": ("document", "record"),
    "document": ("file", "paper"),
    "city": ("town", "municipality"),
    "place": ("spot", "location"),
    "location": ("place", "position"),
    "date": ("day", "calendar_day"),
    "time": ("hour", "moment"),
    "name": ("label", "title"),
    "title": ("heading", "caption"),
    "number": ("no", "ref"),
    "quantity": ("amount", "units"),
    "amount": ("sum", "total"),
    "id": ("number", "key"),
    "agent": ("clerk", "operator"),
    "employee": ("worker", "staff_member"),
    "team": ("group", "crew"),
    "room": ("chamber", "suite"),
    "hotel": ("inn", "lodging"),
    "flight": ("plane_trip", "air_journey"),
    "booking": ("reservation", "appointment"),
    "appointment": ("visit", "meeting"),
    "meeting": ("session", "gathering"),
    "event": ("occasion", "happening"),
    "task": ("job", "assignment"),
    "issue": ("problem", "matter"),
    "comment": ("remark", "note"),
    "subject": ("topic", "theme"),
    "priority": ("urgency", "rank"),
    "article": ("page", "entry"),
    "invoice": ("bill", "statement"),
    "payment": ("transaction", "settlement"),
    "weather": ("climate", "forecast"),
    "stock": ("inventory", "supply"),
    "phone": ("telephone", "mobile"),
    "reason": ("cause", "motive"),
    "text": ("words", "wording"),
    "query": ("question", "terms"),
}
# Of names without any of these words.
_AFFIXES = {"train": ("{}_value", "the_{}"), "test": ("{}_field", "given_{}")}
_NAME_AFFIXES = {"train": ("{}_tool", "do_{}"), "test": ("{}_service", "perform_{}")}
_SUMMARY = {
    "train": ("Use it to {}", "A tool to {}", "It serves to {}"),
    "test": ("With this one can {}", "For whoever wants to {}", "Meant to {}"),
}
OPENINGS = {
    "train": (
        "Please {}.",
        "I need you to {}.",
        "Can you {}?",
        "I want to {}.",
        "Go and {}.",
        "Help me {}.",
        "Let us {}.",
        "You should {}.",
    ),
    "test": (
        "Could somebody {}?",
        "My wish is to {}.",
        "Now {}.",
        "Would it be possible to {}?",
        "Be so good as to {}.",
    ),
    "rewrite_train": (
        "hi there, {}, thanks a lot",
        "{} please",
        "kindly now, {}",
        "gimme this, {}",
        "ok so {}",
    ),
    "rewrite_test": (
        "um, {}?",
        "so, {}, quick",
        "{}, cheers",
        "be nice, {}",
        "{} asap",
    ),
}


REWRITES = ("rewrite_train", "rewrite_test")


class Doing(NamedTuple):
    """What a tool does, in words."""

    verb: Verb | None
    said: str  # the verb as it was found
    rest: tuple[str, ...]  # the other words of the name
    phrase: str  # "get the status of an order"
    effect: bool

    @property
    def request(self) -> str:
        """The phrase without what a request says by its values."""
        text = re.split(r",| (?:by|given|using|based on) ", self.phrase)[0]
        return text.strip() if " " in text.strip() else self.phrase


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


def verb(word: str) -> Verb | None:
    """Of a word as it stands in a description: `Cancels` is `cancel`."""
    word = word.lower().strip(".,:;")
    forms = [word, word.removesuffix("s"), word.removesuffix("es"), singular(word)]
    return next((v for v in VERBS if set(v.words.split()) & set(forms)), None)


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
    parts, text = words(name), sentence(description)
    first, _, behind = text.partition(" ")
    found, said = verb(first), first.lower()
    if found and behind:
        base = next(
            form
            for form in (said, said.removesuffix("s"), said.removesuffix("es"), "")
            if form in found.words.split() or not form
        )
        said = base or singular(said)
        phrase = f"{said} {behind}"
    else:
        at = [i for i, part in enumerate(parts) if verb(part)]
        at = [i for i in at if i == 0 or parts[i] not in NOUNS_TOO]
        if at and text and parts[at[0]] in NOUNS_TOO:
            at = []  # the description would say so
        found = verb(parts[at[0]]) if at else None
        said = parts[at[0]] if at else "get"
        named = [part for i, part in enumerate(parts) if i not in at[:1]]
        phrase = f"{said} {' '.join(named)}".strip()
        if text:
            whole = text if text[:2].isupper() else text[0].lower() + text[1:]
            phrase = f"get {whole}"
    rest = [part for part in parts if not (found and part in found.words.split())]
    if verb(parts[0]) and len(parts) > 1 and rest[:1] == parts[:1]:
        rest = rest[1:]
    return Doing(found, said, tuple(rest), phrase, bool(found and found.effect))


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
        said += [[affix.format(plain)] for affix in _NAME_AFFIXES[split]]
        found[split] = [joined(parts, tool, other)[:64] for parts in said]
    return found


def descriptions(does: Doing) -> dict[str, list[str]]:
    """Paraphrases of what a tool does."""
    behind, found = does.phrase.partition(" ")[2], {}
    for index, split in enumerate(SPLITS):
        text = " ".join(_swap(behind.split(), index)).replace("_", " ").strip()
        text = re.sub(r"\ban? (?=(\w))", _article, text)
        verbs = [v.replace("_", " ") for v in _others(does, split)]
        said = [f"{v.capitalize()} {text}" for v in verbs if text]
        summaries = [form.format(does.phrase) for form in _SUMMARY[split]]
        found[split] = [*said[:1], summaries[0], *said[1:], *summaries[1:]]
    return found


def arguments(name: str) -> dict[str, list[str]]:
    """Synonymous names of an argument."""
    parts, found = words(name), {}
    for index, split in enumerate(SPLITS):
        swapped = [_swap(parts, index), [*parts[:-1], *_swap(parts[-1:], index)]]
        said = [x for x in swapped if x != parts]
        said += [[affix.format("_".join(parts))] for affix in _AFFIXES[split]]
        found[split] = [joined(x, name, split == "test")[:64] for x in said]
    return found


def requests(full: str, short: str) -> dict[str, list[str]]:
    """A request in many words, and in few ones for those who rewrite it."""
    return {
        pool: [form.format(short if pool in REWRITES else full) for form in forms]
        for pool, forms in OPENINGS.items()
    }


def unclaimed(texts: Iterable[str], taken: set[str], num: int) -> list[str]:
    """The first few texts that nobody has; others are made up from the last."""
    found: list[str] = []
    texts = list(dict.fromkeys(texts))
    numbered = (f"{texts[-1][:60]}_{i}" for i in itertools.count(2))
    more: Iterator[str] = itertools.islice(numbered, len(taken) + num)
    for text in itertools.chain(texts, more):
        if len(found) == num or (len(found) and text not in texts):
            break
        if text not in taken:
            taken.add(text)
            found.append(text)
    return found


def _others(does: Doing, split: str) -> list[str]:
    if does.verb is None:
        return {"train": ["get", "fetch"], "test": ["obtain", "look_up"]}[split]
    verbs = getattr(does.verb, split).split()
    return [word for word in verbs if word != does.said]


def _article(match: re.Match[str]) -> str:
    return "an " if match[1].lower() in "aeio" else "a "


def _swap(parts: Iterable[str], index: int) -> list[str]:
    """Words with their synonyms, where they have some."""

    def one(word: str) -> str:
        pair = SYNONYMS.get(singular(word.lower()))
        return pair[index] if pair else word

    return [one(word) for word in parts]
