"""A small domain whose tools have words for requests: `aquarium.json`."""

import copy
import json
import re
from pathlib import Path

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainSpec
from openagent_jax.domains.limits import Limits

FILE = Path(__file__).with_suffix(".json")
DOCUMENT = json.loads(FILE.read_text(encoding="utf-8"))
LIMITS = Limits()


def good():
    """The document. Its tools: 0 find_tank, with an optional argument, 1 tank_keeper, 2
    largest_fish, which returns two fields, 3 favourite_food, 4 food_store, 5 hold_slot,
    6 feed_tank, an effect that needs the code of 5, 7 write_keeper, an effect that is
    called after 8 sign_in."""
    return copy.deepcopy(DOCUMENT)


def required_only():
    """The document without its optional argument."""
    document = good()
    meaning = document["tools"][0]["x-openagent"]
    del meaning["arguments"]["hall"], meaning["argument_names"]["hall"]
    del document["tools"][0]["function"]["parameters"]["properties"]["hall"]
    requests = meaning["requests"]
    for pools in (requests["do"], *requests["fields"].values()):
        for pool, texts in pools.items():
            pools[pool] = [re.sub(r"\[.*?\]", "", text) for text in texts]
    return document


def spec(document=None, limits=LIMITS) -> DomainSpec:
    return domain_file.read(document or good(), limits)


def libraries() -> dict[str, DomainSpec]:
    """The domains with words for requests: this one, and those of the package."""
    builtin = {name: domain_file.load(name) for name in domain_file.builtins()}
    found = {"aquarium": spec(), **builtin}
    return {
        name: domain
        for name, domain in found.items()
        if any(tool.requests for tool in domain.tools)
    }
