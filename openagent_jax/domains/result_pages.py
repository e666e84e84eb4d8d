"""Read how a tool divides a list into pages (`x-openagent.pages`).

    "pages": {"list": "orders", "size": 2, "cursor": "cursor", "next": "next_cursor"}

A call shows `size` records of `list`, and in the field `next` the cursor of the next
page, until the last page, which has none. `cursor` is an optional argument of the
schema that takes it. Neither is in `arguments` or `returns`, since no goal gives a
cursor or asks for one; `argument_names` has synonyms of the argument.
"""

from openagent_jax.domains import domain_schema as schema
from openagent_jax.domains import value_schema
from openagent_jax.domains.domain_checks import Checker
from openagent_jax.domains.domain_spec import ListSpec, PageSpec
from openagent_jax.domains.limits import MAX_PAGES
from openagent_jax.text import nesting, schema_paths

EXAMPLE = "zuk4"  # all cursors have four letters and digits


def read(
    tool: schema.Tool, lists: tuple[ListSpec, ...], place: str, check: Checker
) -> PageSpec | None:
    """Return how a tool divides a list; None if that has faults.

    Args:
      tool: the tool, which has `pages`.
      lists: the lists of its results.
      place: where its `x-openagent` block is.
      check: collects the faults.
    """
    meaning, pages, num_faults = tool.meaning, tool.meaning.pages, len(check.faults)
    at = f"{place}.pages"
    message = "pages are off; set sandbox.paging=True"
    check.require(check.limits.paging, at, message)
    for key, why in (
        ("effect", "a call that changes something"),
        ("state", "a call that touches a record"),
    ):
        message = f"{why} has one result; remove {key!r} or pages"
        check.require(not getattr(meaning, key), at, message)
    paths = [made.path for made in lists]
    found = check.known(pages.path, paths, f"{at}.list", "unknown list")
    if not paths:
        check.require(False, f"{place}.returns", "no list to divide; add one")
    message = f"{pages.size} records; write at least 1"
    sound = check.require(pages.size >= 1, f"{at}.size", message)
    if found and sound:
        (divided,) = (made for made in lists if made.path == pages.path)
        most, size = divided.at_most, pages.size
        message = f"a page has room for all records (at_most {most}, size {size}); "
        check.require(most > size, f"{at}.size", message + "raise at_most")
        least = -(-most // MAX_PAGES)
        message = f"{most} records on {-(-most // size)} pages, but the limit is "
        message += f"{MAX_PAGES} pages; raise size to {least} or lower at_most"
        check.require(size >= least, f"{at}.size", message)
    _check_cursor(tool, place, check)
    if len(check.faults) > num_faults:
        return None
    cursor = nesting.written((pages.cursor,))
    return PageSpec(pages.path, pages.size, cursor, pages.next)


def _check_cursor(tool: schema.Tool, place: str, check: Checker) -> None:
    """Check the argument that takes a cursor."""
    name, at = tool.meaning.pages.cursor, f"{place}.pages.cursor"
    parameters = tool.function.parameters
    where = f"{place.removesuffix('.x-openagent')}.function.parameters"
    if name in parameters.properties:
        found = parameters.properties[name]
        message = f"{name!r} is required, but the first call has no cursor; make it "
        optional = name not in parameters.required or schema_paths.may_be_null(found)
        check.require(optional, f"{where}.required", f"{message}optional")
        root = parameters.model_dump()
        kinds = _kinds(found)
        message = f"{name!r} is not a string, but cursors are; write a string"
        check.require(not kinds or "string" in kinds, f"{where}.properties", message)
        wrong = value_schema.misfit(found, EXAMPLE, root=root)
        message = (
            f"{name!r} takes cursors such as {EXAMPLE!r}, but {wrong}; remove that"
        )
        check.require(not wrong, f"{where}.properties", message)
    else:
        message = f"the schema has no argument {name!r}; add it there as an optional "
        check.require(False, at, f"{message}string")
    message = f"{name!r} is in arguments, which goals give; remove it there"
    given = {nesting.parse(path)[0] for path in tool.meaning.arguments}
    check.require(name not in given, at, message)
    num, limit = 1 + len(tool.meaning.arguments), check.limits.num_args
    message = f"{num} arguments with the cursor, but the limit is {limit}; remove some "
    check.require(num <= limit, at, f"{message}or raise sandbox.num_args to {num}")


def _kinds(found: object) -> list[str]:
    """Return the types that a schema names; none if it names none."""
    kinds = found.get("type") if isinstance(found, dict) else None
    return [kinds] if isinstance(kinds, str) else kinds or []
