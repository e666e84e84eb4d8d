"""A domain whose tools return lists in pages."""

import json
from typing import Any

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainSpec
from openagent_jax.domains.limits import Limits
from tests.domains import ferries

SIZES: dict[str, Any] = dict(num_fields=13, num_derived=5, depth=3, num_args=3)
LIMITS = Limits(**SIZES, conditions=True, paging=True)
PAGES = {"list": "crates", "size": 2, "cursor": "cursor", "next": "next_cursor"}


def _paged(tool, **pages):
    """Let a tool divide its list."""
    meaning = tool["x-openagent"]
    meaning["pages"] = PAGES | pages
    name = meaning["pages"]["cursor"]
    argument = {"type": "string", "description": "where the last page ended"}
    tool["function"]["parameters"]["properties"][name] = argument
    words = {"train": [f"{name}_one"], "test": [f"{name}_two"]}
    meaning["argument_names"][name] = words
    return tool


def good():
    """The document. Its tools: 0 list_crates, which has pages of 2 of up to 5 crates,
    1 list_seals, which has pages of 1 of up to 3, maybe none, and needs the code of
    2 open_office; 3 crate_details, and 4 ship_crate, an effect."""
    document = ferries.good()
    _do, _noun, _tool = ferries._do, ferries._noun, ferries._tool
    types = document["types"]
    types = {key: types[key] for key in ("harbor", "clerk", "reason", "fare", "seat")}
    types["crate"] = ferries._entity("CR")
    return document | {
        "name": "depots",
        "description": "depots and their crates",
        "types": types,
        "tools": [
            _paged(
                _tool(
                    "list_crates",
                    "crates in a depot",
                    {"depot": "harbor"},
                    {
                        "office.clerk": "clerk",
                        "crates": {
                            "list": {"id": "crate", "fare": "fare"},
                            "at_least": 1,
                            "at_most": 5,
                        },
                    },
                    _do("list", "crates in {depot}"),
                    {
                        "office.clerk": _noun("the * clerk for crates in {depot}"),
                        "count(crates)": _noun("the * number of crates in {depot}"),
                        "min(crates.fare).id": _noun("the * cheapest crate in {depot}"),
                        "max(crates.fare).fare": _noun(
                            "the * highest fare of crates in {depot}"
                        ),
                        "crates.0.id": _noun("the * first crate in {depot}"),
                    },
                )
            ),
            _paged(
                _tool(
                    "list_seals",
                    "seals of a crate, maybe none",
                    {"crate": "crate"},
                    {"seals": {"list": {"reason": "reason"}, "at_most": 3}},
                    _do("list", "seals of {crate}"),
                    {"count(seals)": _noun("the * number of seals of {crate}")},
                    code_from="open_office",
                ),
                list="seals",
                size=1,
                cursor="after",
                next="page.after",
            ),
            _tool(
                "open_office",
                "open the office",
                {},
                {"line": "seat"},
                _do("call", "a call to the office"),
                {"line": _noun("the * line of the office")},
            ),
            _tool(
                "crate_details",
                "fare of a crate",
                {"crate": "crate"},
                {"fare": "fare"},
                _do("look", "the fare of {crate}"),
                {"fare": _noun("the * fare of {crate}")},
            ),
            _tool(
                "ship_crate",
                "ship a crate",
                {"crate": "crate"},
                {"seat": "seat"},
                _do("book", "a ship for {crate}"),
                {"seat": _noun("the * ship for {crate}")},
                effect=True,
            ),
        ],
        "goals": [],
    }


def spec(document=None) -> DomainSpec:
    return domain_file.read(document or good(), LIMITS)


def save(folder):
    file = folder / "depots.json"
    file.write_text(json.dumps(good()), "utf-8")
    return file
