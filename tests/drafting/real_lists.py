"""Twenty real tool lists, and what the drafter does with each.

    python -m tests.drafting.real_lists

prints the outcomes as the table of lists/README.md.
"""

import json
import re
import sys
import tempfile
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openagent_jax.domains import domain_file
from openagent_jax.domains.domain_spec import DomainError
from openagent_jax.domains.limits import Limits
from openagent_jax.drafting import drafting, json_format
from tests.drafting import examples

FOLDER = Path(__file__).parent / "lists"
FILES = tuple(sorted(FOLDER.glob("*.json")))
README = FOLDER / "README.md"
LICENSES = FOLDER / "LICENSES.md"
# Room for any of the lists: whether the defaults of the limits that have a flag suffice
# is not the question.
ROOM = Limits(
    num_tools=64,
    num_args=16,
    num_fields=16,
    num_constants=16,
    depth=8,
    num_derived=1,
    paging=True,
)
LONG = 256  # bytes of a description that the environment has room for
_VALUE_PLACE = re.compile(r"types\.[^.\[]+\.(train|test|shift|values)\b")
_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema")


@dataclass(frozen=True)
class Outcome:
    """What became of a list.

    Attributes:
      file: the name of its file.
      num_tools: how many tools it has.
      error: the line with which the drafter refused the list; "" if it did not.
      refused: the tools that the error says have to be left out.
      value_holes: texts to fill in that are values of a type, each as `place: what`.
      other_holes: all other texts to fill in.
      num_arguments: how many arguments the tools of the draft have in the list.
      num_kept: how many of these the goals of the draft may give.
      faults: what is wrong with the drafted file once its holes are filled in.
    """

    file: str
    num_tools: int
    error: str = ""
    refused: tuple[str, ...] = ()
    value_holes: tuple[str, ...] = ()
    other_holes: tuple[str, ...] = ()
    num_arguments: int = 0
    num_kept: int = 0
    faults: tuple[str, ...] = ()

    @property
    def is_world(self) -> bool:
        """Whether the draft can be played without a word of Python."""
        return not self.error and not self.faults

    @property
    def needs_only_values(self) -> bool:
        """Whether nothing is left to write but values."""
        return self.is_world and not self.other_holes


def read(file: Path) -> dict[str, Any]:
    """Return the list in a file, as `tools/list` answered it."""
    return json.loads(file.read_text(encoding="utf-8"))


def names(document: dict[str, Any]) -> list[str]:
    """Return the names of the tools of a list, in its order."""
    return [_function(tool)["name"] for tool in document["tools"]]


def outcome(file: Path, skip: Collection[str] = ()) -> Outcome:
    """Draft a list, fill in its holes and look for faults; see `Outcome`."""
    document = read(file)
    num_tools = len(document["tools"])
    try:
        made = drafting.draft(document, file.stem, skip)
    except DomainError as error:
        line = " ".join(str(error).split())
        _, _, refused = line.partition("--skip=")
        refused = tuple(filter(None, refused.split(",")))
        return Outcome(file.name, num_tools, line, refused)
    values = tuple(hole for hole in made.holes if _VALUE_PLACE.match(hole))
    others = tuple(hole for hole in made.holes if hole not in values)
    with tempfile.TemporaryDirectory() as folder:
        filled = Path(folder) / file.name
        text = json_format.dumps(examples.filled(made.domain))
        filled.write_text(text, encoding="utf-8")
        faults = tuple(domain_file.faults(filled, ROOM))
    given = {
        one["name"]: len(_parameters(one).get("properties", ()))
        for one in map(_function, document["tools"])
    }
    kept = [
        {path.partition(".")[0] for path in tool["x-openagent"]["arguments"]}
        for tool in made.domain["tools"]
    ]
    return Outcome(
        file.name,
        num_tools,
        value_holes=values,
        other_holes=others,
        num_arguments=sum(given[name] for name in given if name not in skip),
        num_kept=sum(map(len, kept)),
        faults=faults,
    )


def features(document: dict[str, Any]) -> list[str]:
    """Return in alphabetical order what the schemas of a list use.

    The words are those of the table in lists/README.md.
    """
    found = set()
    for tool in document["tools"]:
        function = _function(tool)
        if re.search("[.-]", function["name"]):
            found.add("dots or dashes in names")
        if len(str(function.get("description", "")).encode()) > LONG:
            found.add("long descriptions")
        if "outputSchema" in function or "response" in function:
            found.add("output schemas")
        schema = _parameters(function)
        required = schema.get("required", ())
        if any(key not in required for key in schema.get("properties", {})):
            found.add("optional arguments")
        for one, depth in _schemas(schema):
            found.update(_features(one, depth))
    return sorted(found)


def table(files: Iterable[Path] = FILES) -> str:
    """Return the outcomes as tables in Markdown, with the totals between them.

    The second table has the refused lists once more, without the tools that the
    drafter asks to leave out.
    """
    outcomes = [outcome(file) for file in files]
    worlds = sum(one.is_world for one in outcomes)
    only_values = sum(one.needs_only_values for one in outcomes)
    refused = [one for one in outcomes if one.error]
    without = [outcome(FOLDER / one.file, one.refused) for one in refused]
    return "\n".join(
        (
            *_rows(outcomes),
            "",
            f"Of {len(outcomes)} lists {worlds} became worlds, {only_values} of them "
            "with nothing but values to fill in.",
            "",
            "The refused lists once more, with the `--skip` that the error proposes:",
            "",
            *_rows(without, [len(one.refused) for one in refused]),
        )
    )


def _rows(outcomes: list[Outcome], skipped: Iterable[int] = ()) -> Iterator[str]:
    """Yield a table of outcomes; with `skipped`, how many tools were left out."""
    counts = list(skipped) or [0] * len(outcomes)
    yield "| file | tools | values to write | other texts | arguments | error |"
    yield "| --- | ---: | ---: | ---: | ---: | --- |"
    for one, count in zip(outcomes, counts, strict=True):
        num = f"{one.num_tools - count} of {one.num_tools}" if count else one.num_tools
        values, texts = str(len(one.value_holes)), str(len(one.other_holes))
        cells = [one.file, str(num), values, texts]
        cells.append(f"{one.num_kept} of {one.num_arguments}")
        if one.error:
            cells[2:] = "", "", ""
        wrong = [line for line in (one.error, *one.other_holes, *one.faults) if line]
        more = f", and {len(wrong) - 1} more like it" if len(wrong) > 1 else ""
        cells.append("".join(map(_cell, wrong[:1])) + more)
        yield f"| {' | '.join(cells)} |"


def _cell(line: str) -> str:
    line = line.replace("|", "\\|").replace("`", "'")
    return f"`{line}`"


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    return tool.get("function", tool)


def _parameters(function: dict[str, Any]) -> dict[str, Any]:
    return next((function[key] for key in _SCHEMA_KEYS if key in function), {})


def _schemas(value: Any, depth: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield each schema inside a schema, with the number of properties around it.

    The items of an array begin at zero again: an array of objects is no nested object.
    """
    if not isinstance(value, dict):
        return
    yield value, depth
    for key in ("properties", "$defs", "definitions"):
        for one in value.get(key, {}).values():
            yield from _schemas(one, depth + 1)
    yield from _schemas(value.get("items"))
    for key in ("anyOf", "oneOf", "allOf"):
        for one in value.get(key, ()):
            yield from _schemas(one, depth)


def _features(schema: dict[str, Any], depth: int) -> Iterator[str]:
    """Yield what one schema uses; at depth 0 it is that of all arguments."""
    kind = schema.get("type")
    words = {
        "number": "numbers",
        "float": "numbers",
        "integer": "integers",
        "boolean": "booleans",
        "array": "arrays",
    }
    for one in kind if isinstance(kind, list) else [kind]:
        if one in words:
            yield words[one]
        elif one == "null":
            yield "nullable"
    options = [
        one for key in ("anyOf", "oneOf", "allOf") for one in schema.get(key, ())
    ]
    if len([one for one in options if one != {"type": "null"}]) > 1:
        yield "unions"
    if kind in ("dict", "float"):
        yield "types that are not JSON Schema's"
    if depth and "properties" in schema:
        yield "nested objects"
    if kind == "array" and "properties" in (schema.get("items") or {}):
        yield "arrays of objects"
    for key, word in (
        ("$ref", "references"),
        ("const", "constants"),
        ("default", "defaults"),
        ("enum", "enums"),
        ("format", "formats"),
        ("pattern", "patterns"),
    ):
        if key in schema:
            yield word


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
