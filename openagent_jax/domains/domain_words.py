"""The words of a domain."""

import itertools
import re
from collections.abc import Iterator

from openagent_jax.domains.domain_spec import DomainSpec, ToolSpec


def of(spec: DomainSpec) -> set[str]:
    """Return all words of a domain in lower case."""
    texts = [spec.name, spec.description]
    for kind in spec.types:
        texts += [kind.name, *kind.train, *kind.test, *kind.shift]
    for tool in spec.tools:
        texts += [tool.name, tool.description, *(path for path, _ in tool.inputs)]
        texts += [name for name, _ in tool.returns]
        texts += itertools.chain(*synonyms(tool))
        if tool.requests:
            pools = (tool.requests.do, *tool.requests.fields.values())
            texts += (text for pool in pools for x in pool.values() for text in x)
    for goal in spec.goals:
        texts += itertools.chain(*goal.phrases.values())
    return set(re.findall(r"[a-z]+", " ".join(texts).lower()))


def synonyms(tool: ToolSpec) -> Iterator[tuple[str, ...]]:
    """Yield the pools of synonyms of a tool and its arguments."""
    for by_split in (tool.names, tool.descriptions, *tool.argument_names.values()):
        yield from by_split.values()
