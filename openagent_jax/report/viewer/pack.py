"""Pack episodes into text that a page can hold: compressed JSON in base64.

An index has what is needed to list, search and filter all episodes. The rest is in
chunks, which the page unpacks when it shows one of their episodes. The episodes of a
task are in the same chunk whatever their scenario and run, because they are shown
together and share most of their text: a chunk holds equal messages, tools and steps of
a plan once.
"""

import base64
import gzip
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from openagent_jax.report import causes, trajectories

CHUNK_BYTES = 400_000  # of JSON, before compression
_FLAGS = ("success", "solvable", "refused", "changed", "answered")
_COUNTS = ("num_calls", "num_errors", "fewest_calls")
_SHARED = ("tools", "messages", "plan")
# Fields that the index has, or that follow from the messages.
_LEFT_OUT = {*_FLAGS, *_COUNTS, *_SHARED, "scenario", "index", "failure"}
_LEFT_OUT |= {"unsolvable", "actions", "results", "rewards", "task_key"}
Glossary = Mapping[str, Mapping[str, str]]


class _Episode(NamedTuple):
    run: int
    scenario: str
    index: int
    line: trajectories.Line
    size: int  # bytes of JSON


def pack(
    runs: Mapping[str, Sequence[pathlib.Path]], glossary: Glossary | None = None
) -> dict[str, str]:
    """Return the parts of the data by name: `index`, and chunks from `0` on.

    The arguments are those of `viewer.embed`.
    """
    named, folders = labels(runs), [x for some in runs.values() for x in some]
    episodes, notes = [], []
    for run, folder in enumerate(folders):
        episodes += _read(run, folder, notes)
    scenarios = sorted({x.scenario for x in episodes}, key=lambda x: (x != "clean", x))
    rank = {name: i for i, name in enumerate(scenarios)}
    episodes.sort(key=lambda x: (rank[x.scenario], x.index, x.run))
    by_task = sorted(range(len(episodes)), key=lambda i: (episodes[i].index, i))
    parts, places = {}, {}
    for number, members in enumerate(_chunks(episodes, by_task)):
        places |= {i: (number, place) for place, i in enumerate(members)}
        parts[str(number)] = _compressed(_chunk([episodes[i].line for i in members]))
    index = {
        "runs": [{"name": x, "column": column} for column, x in named],
        "scenarios": scenarios,
        "notes": notes,
        "glossary": _glossary(folders) if glossary is None else _checked(glossary),
        **_columns(episodes, rank, [places[i] for i in range(len(episodes))]),
    }
    return {"index": _compressed(_json(index)), **parts}


def labels(runs: Mapping[str, Sequence[pathlib.Path]]) -> list[tuple[str, str]]:
    """Return the column and the name of each run, in order; no two names are equal."""
    found, taken = [], set()
    for column, folders in runs.items():
        for number, folder in enumerate(folders, 1):
            folder = folder.absolute()
            run = folder.parents[1] if folder.parent.name == "eval" else folder
            name = _sound(column if len(folders) == 1 else f"{column}: {run.name}")
            while name in taken:
                name = f"{name} ({number})"
            taken.add(name)
            found.append((_sound(column), name))
    return found


def _read(run: int, folder: pathlib.Path, notes: list[str]) -> Iterator[_Episode]:
    """Yield the whole episodes of an evaluation; add what it lost to the notes."""
    kept = folder / trajectories.FOLDER
    if not (names := trajectories.scenarios(kept)):
        notes.append(f"{folder}: it has no episodes; eval.keep says how many to keep")
    for name in names:
        lines, lost = trajectories.salvage(kept, name)
        notes += lost
        sizes = [_size(line) for line in lines]
        if strange := sizes.count(None):
            notes.append(f"{kept}: lines of {name} that are not episodes: {strange}")
        for line, size in zip(lines, sizes, strict=True):
            if size is not None:
                yield _Episode(run, _sound(name), line["index"], line, size)


def _size(line: trajectories.Line) -> int | None:
    """Return the size of an episode; None if it is not one that can be shown."""
    if type(line.get("index")) is not int or line["index"] < 0:
        return None
    for items in (line.get(key, []) for key in _SHARED):
        if not isinstance(items, list) or not all(isinstance(x, dict) for x in items):
            return None
    try:  # a page reads numbers and nesting less freely than Python does
        return len(json.dumps(line, allow_nan=False))
    except (ValueError, RecursionError):
        return None


def _chunks(
    episodes: Sequence[_Episode], by_task: Sequence[int]
) -> Iterator[list[int]]:
    """Yield the episodes of each chunk, without parting those of a task."""
    members, size, before = [], 0, None
    for i in by_task:
        if size > CHUNK_BYTES and episodes[i].index != before:
            yield members
            members, size = [], 0
        members.append(i)
        size += episodes[i].size
        before = episodes[i].index
    if members:
        yield members


def _chunk(lines: Sequence[trajectories.Line]) -> str:
    """Return what the page shows of some episodes, as JSON."""
    shared: dict[str, int] = {}

    def numbers(items: Sequence[Any]) -> list[int]:
        return [shared.setdefault(_json(item), len(shared)) for item in items]

    episodes = [
        {
            **{key: numbers(line.get(key, [])) for key in _SHARED},
            "rewards": _rewards(line.get("rewards")),
            "more": {key: x for key, x in line.items() if key not in _LEFT_OUT},
        }
        for line in lines
    ]
    return f'{{"shared":[{",".join(shared)}],"episodes":{_json(episodes)}}}'


def _rewards(rewards: Any) -> Any:
    """Return the rewards that are paid at all."""
    rewards = rewards if isinstance(rewards, dict) else {}
    return {
        name: paid
        for name, paid in rewards.items()
        if isinstance(paid, list) and any(paid)
    }


def _columns(
    episodes: Sequence[_Episode],
    rank: Mapping[str, int],
    places: Sequence[tuple[int, int]],
) -> dict[str, Any]:
    """Return the table of the index, one list a column."""
    failures, reasons, tasks, why = {"": 0}, {"": 0}, {}, {"": 0}
    lines = [x.line for x in episodes]
    found = [causes.why(line) for line in lines]
    used = {x.cause for x in found}
    why |= {x: i for i, x in enumerate((x for x in causes.CAUSES if x in used), 1)}

    def number(names: dict[str, int], name: Any) -> int:
        return names.setdefault(
            name if isinstance(name, str) else _json(name), len(names)
        )

    table = {
        "run": [x.run for x in episodes],
        "scenario": [rank[x.scenario] for x in episodes],
        "index": [x.index for x in episodes],
        "task": [
            number(tasks, x.line.get("task_key") or f"#{x.index}") for x in episodes
        ],
        "failure": [number(failures, line.get("failure", "")) for line in lines],
        "cause": [why[x.cause] for x in found],
        "turn": [0 if x.turn is None else x.turn + 1 for x in found],
        "unsolvable": [number(reasons, line.get("unsolvable", "")) for line in lines],
        "flags": [
            sum(bool(line.get(x)) << bit for bit, x in enumerate(_FLAGS))
            for line in lines
        ],
        **{key: [_count(line.get(key)) for line in lines] for key in _COUNTS},
        "request": [_request(line) for line in lines],
        "said": [_said(line) for line in lines],
        "chunk": [chunk for chunk, _ in places],
        "place": [place for _, place in places],
    }
    return {
        "failures": list(failures),
        "reasons": list(reasons),
        "causes": list(why),
        "meanings": {x: causes.MEANINGS[x] for x in why if x},
        "table": table,
    }


def _count(value: Any) -> int:
    return value if type(value) is int else 0


def _request(line: trajectories.Line) -> str:
    """Return what the user asks for first."""
    texts = (
        x.get("content") for x in line.get("messages", []) if x.get("role") == "user"
    )
    return next((text for text in texts if isinstance(text, str)), "")


def _said(line: trajectories.Line) -> str:
    """Return what the agent called, without repetition, and what it said last."""
    replies = [x for x in line.get("messages", []) if x.get("role") == "assistant"]
    names = {}
    for reply in replies:
        calls = reply.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            names |= {name: None} if isinstance(name, str) else {}
    last = replies[-1].get("content") if replies else None
    return " ".join([*names, last[:200] if isinstance(last, str) else ""])


def _glossary(folders: Sequence[pathlib.Path]) -> Glossary:
    """Return what the reports of some evaluations say of their scenarios."""
    found = {}
    for folder in folders:
        try:
            report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):  # the report says so, if anyone asks for it
            continue
        found = (
            _checked(report.get("glossary")) if isinstance(report, dict) else {}
        ) | found
    return found


def _checked(glossary: Any) -> dict[str, dict[str, str]]:
    """Return the texts of a glossary that may be of any form."""
    entries = glossary.items() if isinstance(glossary, Mapping) else ()
    return {
        name: {key: str(entry.get(key) or "") for key in ("summary", "right")}
        for name, entry in entries
        if isinstance(entry, Mapping)
    }


def _sound(name: str) -> str:
    """Return a name without lone surrogates, which an address cannot hold."""
    return name.encode(errors="replace").decode()


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _compressed(text: str) -> str:
    # Without a time stamp, so that equal episodes give equal pages.
    data = gzip.compress(text.encode(), compresslevel=9, mtime=0)
    return base64.b64encode(data).decode()
