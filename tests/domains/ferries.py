"""A domain whose tools return lists and nested fields, and whose effects may depend on
what was found."""

import json

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainSpec
from openagent_jax.domains.limits import Limits

LIMITS = Limits(num_fields=7, num_derived=6, depth=3, conditions=True)
SIZES = dict(num_fields=7, num_derived=6, depth=3, conditions=True)

VERBS = {
    "list": ("list", "go through", "all", "every"),
    "book": ("book", "reserve", "get", "grab"),
    "call": ("place", "make", "start", "do"),
    "look": ("look at", "inspect", "check", "view"),
}
POOLS = ("train", "test", "rewrite_train", "rewrite_test")
# A word of each pool, in noun phrases.
MARKS = ("posted", "announced", "given", "shown")


def _do(verb, text):
    return {p: [f"{v} {text}"] for p, v in zip(POOLS, VERBS[verb], strict=True)}


def _noun(text):
    """The phrases of a value: `*` stands for the word of the pool."""
    return {p: [text.replace("*", m)] for p, m in zip(POOLS, MARKS, strict=True)}


def _tool(name, description, arguments, returns, do, fields, **meaning):
    properties = {key: {"type": "string"} for key in arguments}
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [*arguments],
    }
    words = {s: [f"{s} words for {description.lower()}"] for s in ("train", "test")}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": parameters,
        },
        "x-openagent": {
            "arguments": arguments,
            "returns": returns,
            **meaning,
            "names": {"train": [f"{name}_one"], "test": [f"{name}_two"]},
            "descriptions": words,
            "argument_names": {
                key: {"train": [f"{key}_one"], "test": [f"{key}_two"]}
                for key in arguments
            },
            "requests": {"do": do, "fields": fields},
        },
    }


def _entity(word, num=12):
    made = {}
    for split, letter in (("train", "a"), ("test", "b"), ("shift", "c")):
        made[split] = [f"{word}{letter}{n}" for n in range(num)]
    return {"kind": "entity", **made}


def good():
    """The document. Its tools: 0 list_sailings, 1 list_delays, whose list may be empty,
    2 sailing_details, 3 book_seat and 4 call_clerk, which are effects."""
    return {
        "name": "ferries",
        "description": "ferries and their sailings",
        "types": {
            "harbor": _entity("Port"),
            "sailing": _entity("SL"),
            "clerk": _entity("Clerk"),
            "reason": _entity("Cause"),
            "fare": {"kind": "number", "minimum": 1, "maximum": 60, "decimals": 1},
            "minutes": {"kind": "number", "minimum": 5, "maximum": 300},
            "status": {"kind": "enum", "values": ["open", "full"]},
            "seat": {"kind": "number", "minimum": 1, "maximum": 400},
        },
        "tools": [
            _tool(
                "list_sailings",
                "sailings from a harbor",
                {"harbor": "harbor"},
                {
                    "office.clerk": "clerk",
                    "sailings": {
                        "list": {"id": "sailing", "fare": "fare"},
                        "at_least": 1,
                        "at_most": 3,
                    },
                },
                _do("list", "sailings from {harbor}"),
                {
                    "office.clerk": _noun("the * clerk for sailings from {harbor}"),
                    "count(sailings)": _noun("the * number of sailings from {harbor}"),
                    "min(sailings.fare).id": _noun(
                        "the * cheapest sailing from {harbor}"
                    ),
                    "max(sailings.fare).id": _noun(
                        "the * dearest sailing from {harbor}"
                    ),
                    "min(sailings.fare).fare": _noun(
                        "the * lowest fare of sailings from {harbor}"
                    ),
                    "sailings.0.id": _noun("the * first sailing from {harbor}"),
                },
            ),
            _tool(
                "list_delays",
                "delays of a sailing, maybe none",
                {"sailing": "sailing"},
                {
                    "delays": {
                        "list": {"reason": "reason", "minutes": "minutes"},
                        "at_most": 2,
                    }
                },
                _do("list", "delays of {sailing}"),
                {"count(delays)": _noun("the * number of delays of {sailing}")},
            ),
            _tool(
                "sailing_details",
                "fare and status of a sailing",
                {"sailing": "sailing"},
                {"fare": "fare", "status": "status"},
                _do("look", "the fare of {sailing}"),
                {
                    "fare": _noun("the * fare of {sailing}"),
                    "status": _noun("the * status of {sailing}"),
                },
            ),
            _tool(
                "book_seat",
                "book a seat on a sailing",
                {"sailing": "sailing"},
                {"seat": "seat"},
                _do("book", "a seat on {sailing}"),
                {"seat": _noun("the * seat on {sailing}")},
                effect=True,
            ),
            _tool(
                "call_clerk",
                "call a clerk of the office",
                {"clerk": "clerk"},
                {"line": "seat"},
                _do("call", "a call to {clerk}"),
                {"line": _noun("the * line of the clerk {clerk}")},
                effect=True,
            ),
        ],
        "goals": [],
    }


def spec(document=None) -> DomainSpec:
    return domain_file.read(document or good(), LIMITS)


def save(folder, **changes):
    file = folder / "ferries.json"
    file.write_text(json.dumps(good() | changes), "utf-8")
    return file
