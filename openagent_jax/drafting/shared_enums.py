"""Divide the values of enums that overlap, since no two types may share a value.

A tool should not be called with a value that its own schema does not allow. So each
enum keeps the values that all enums that overlap have, if there are two or more, or
else those that no other one has. Where neither is left, the enums become one type,
with the values of all.
"""

from collections.abc import Iterable, Sequence

Divided = dict[frozenset[str], tuple[str, list[str]]]


def divided(enums: Iterable[tuple[str, Sequence[str]]]) -> Divided:
    """Return the name and the values of the type of each enum, by its own values.

    >>> made = divided([("way", ["up", "down", "left"]), ("side", ["left", "right"])])
    >>> [*made.values()]
    [('way', ['up', 'down']), ('side', ['right'])]
    >>> made = divided([("by", ["asc", "desc", "rank"]), ("sort", ["asc", "desc"])])
    >>> [*made.values()]
    [('by', ['asc', 'desc']), ('by', ['asc', 'desc'])]
    >>> [*divided([("a", ["x", "y"]), ("b", ["x"]), ("c", ["y"])]).values()][1:]
    [('a', ['x', 'y']), ('a', ['x', 'y'])]

    Args:
      enums: names and values; equal sets of values are one enum, with the first name.
    """
    found: dict[frozenset[str], tuple[str, Sequence[str]]] = {}
    for name, values in enums:
        found.setdefault(frozenset(values), (name, values))
    made: Divided = {}
    for group in _groups(found):
        made |= _of_group([(key, *found[key]) for key in found if key in group])
    return {key: made[key] for key in found}


def _groups(sets: Iterable[frozenset[str]]) -> list[list[frozenset[str]]]:
    """Return sets in groups, no two of which have a value in common."""
    groups: list[list[frozenset[str]]] = []
    for one in sets:
        touched = [group for group in groups if any(one & other for other in group)]
        groups = [group for group in groups if group not in touched]
        groups.append([*(x for group in touched for x in group), one])
    return groups


def _of_group(enums: list[tuple[frozenset[str], str, Sequence[str]]]) -> Divided:
    name, sets = enums[0][1], [key for key, _, _ in enums]
    shared = frozenset.intersection(*sets)
    if len(shared) > 1:
        kept = [x for x in enums[0][2] if x in shared]
        return dict.fromkeys(sets, (name, kept))
    made: Divided = {}
    for key, own_name, values in enums:
        others = frozenset().union(*(x for x in sets if x != key))
        if own := [x for x in values if x not in others]:
            made[key] = own_name, own
    if rest := [x for x in enums if x[0] not in made]:
        taken = {x for _, values in made.values() for x in values}
        all_of_rest = dict.fromkeys(x for _, _, values in rest for x in values)
        kept = [x for x in all_of_rest if x not in taken]
        made |= dict.fromkeys([key for key, _, _ in rest], (rest[0][1], kept))
    return made
