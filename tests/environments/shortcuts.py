"""Whether a shortcut tells unsolvable tasks from their solvable counterparts.

Only the relation between the request and the documents may tell whether a task can be
solved. So classifiers get everything else, and must not do better than chance:

    request    gradient-boosted trees over numbers and lengths of the request
    documents  gradient-boosted trees over numbers and lengths of the documents, one by
               one and in all, and over what else their reader counts in them
    places     gradient-boosted trees over the places of the documents that an entry is
               about, such as those that were changed
    words      words and pairs of words of the request and of the documents, which enter
               a logistic regression linearly
    both       a logistic regression on words, numbers and lengths of both
    counting   refuses where `Environment.counts` were mostly those of unsolvable tasks

None multiplies a feature of the request by one of the documents: even their lengths
can tell a reader of both which tool is asked for, and whether it is there.

Each is trained on half of the tasks and tested on the other half, in two samples:

    separate  unsolvable and solvable tasks of different keys
    paired    each key gives one of both, and both are in the same half. Besides, the
              classifier chooses which of the two tasks of a pair is the solvable one,
              which finds much smaller differences.

An accuracy, an area under the ROC curve (AUC) or a share of right choices may exceed
1/2 by `Z` standard deviations of chance, a one-sided level of 0.5 %. A pair of entries
has 30 such numbers (6 classifiers, 2 measures in one sample and 3 in the other), so
that about one pair in seven exceeds some limit by chance. A number above its limit is
therefore measured again on other tasks, and is a leak if it is above the limit again.
Keys are fixed: the same code finds the same.

A new environment needs a reader of its prompts in `READERS`.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from openagent_jax import perturb
from openagent_jax.curriculum import draw
from openagent_jax.environments.crafting import words as crafting_words
from openagent_jax.environments.world import World
from openagent_jax.perturb import Entry
from openagent_jax.text import lexicon as lexicons

NUM = 5000  # tasks of each entry
BATCH = 1000
Z = 2.576
SHOWN = 8  # features that a leak names
MIN_DF = 10  # tasks that a word or a pair of words occurs in, or else is left out
SEPARATE, PAIRED = SAMPLES = ("separate", "paired")
PLACES = 16  # of documents, and of parts of the request
SYSTEM, USER, ASSISTANT = "<|system|>", "<|user|>", "<|assistant|>"


class Reading(NamedTuple):
    """A prompt, taken apart."""

    request: tuple[str, ...]  # its parts
    documents: tuple[tuple[str, ...], ...]  # in their order, each as its parts
    # What else can be counted in the documents alone, by name.
    figures: Mapping[str, int] = MappingProxyType({})
    # Places of documents by name, for entries that choose the documents of a task anew.
    places: Mapping[str, int] = MappingProxyType({})


class Tasks(NamedTuple):
    """Tasks under an entry and under its counterpart."""

    readings: list[Reading]
    before: list[Reading]  # the same tasks without the entry
    counts: np.ndarray  # [N, K], of `Environment.counts`
    solvable: np.ndarray  # [N]
    group: np.ndarray  # [N]: tasks of one group are in the same half


class Table(NamedTuple):
    """What a classifier is given."""

    values: Any  # [N, F], dense or sparse
    names: list[str]  # of the features; none for `Environment.counts`


class Score(NamedTuple):
    """What a classifier reached on the half that it was not trained on."""

    sample: str
    classifier: str
    measure: str
    value: float
    limit: float  # of chance
    features: str  # which features tell most; only said above the limit


# Take a prompt of the compact style apart.


def read_tools(prompt: str) -> Reading:
    """Return the request, and the parts of each document of a tool."""
    _, first, again = prompt.split(USER)
    request, documents = first.split(SYSTEM)
    assert again == request + ASSISTANT  # it is there twice
    found, decoder, at = [], json.JSONDecoder(), 0
    while at < len(documents):
        document, at = decoder.raw_decode(documents, at)
        parts = [document.pop(key) for key in ("name", "description")]
        parts += document.pop("parameters")
        parts += [f"{key} {value}" for key, value in document.items()]
        found.append(tuple(parts))
    return Reading((request,), tuple(found), places=_places(found))


def _places(documents) -> dict[str, int]:
    """Where the documents stand that a reader might take for changed ones."""
    needs = [
        {
            part.split(" ", 1)[1]
            for part in x
            if re.match("code_from |call_after ", part)
        }
        for x in documents
    ]
    names = [name for name, *_ in documents]
    described = [x[1] for x in documents]
    found = {
        "needs another": [i for i, x in enumerate(needs) if x],
        "is needed": [i for i, x in enumerate(names) if x in set().union(*needs)],
        "needs what needs it": [
            i
            for i, name in enumerate(names)
            if any(name in needs[names.index(x)] for x in needs[i] if x in names)
        ],
        "is described twice": [
            i for i, x in enumerate(described) if described.count(x) > 1
        ],
        "takes nothing": [i for i, x in enumerate(documents) if len(x) == 2],
    }
    end = len(documents) - 1
    return {
        f"{which}, {what}": place
        for what, rows in found.items()
        for which, place in (
            ("number", len(rows)),
            ("first", rows[0] if rows else -1),
            ("last", rows[-1] if rows else -1),
            ("last from the end", end - rows[-1] if rows else -1),
        )
    }


def read_crafting(prompt: str) -> Reading:
    """Return the goal and its phrasing, and the two lists and the recipes."""
    request = prompt.split(USER)[1].removesuffix(ASSISTANT)
    match = next(filter(None, (p.fullmatch(request) for p in _patterns())))
    lists = [tuple(match[name].split(", ")) for name in ("raw", "held")]
    recipes = [re.split(": |, ", line) for line in match["book"].split("\n")]
    around = [match[name] for name in match.re.groupindex if name.startswith("text")]
    documents = (*lists, *map(tuple, recipes))
    return Reading((*around, match["goal"]), documents, _figures(*lists, recipes))


def _figures(raw, held, recipes) -> dict[str, int]:
    """What a reader of the lists and recipes can tell without knowing the goal."""
    made = {head: ingredients for head, *ingredients in recipes}
    used = {item for ingredients in made.values() for item in ingredients}
    known = {*raw, *held}
    for _ in made:
        known |= {item for item, row in made.items() if known.issuperset(row)}
    tops = made.keys() - used
    return {
        "ingredients without a source": len(used - made.keys() - {*raw}),
        "ingredients that cannot be had": len(used - known),
        "items that can be crafted": len(made.keys() & known),
        "items that are no ingredient": len(tops),
        "of these, can be crafted": len(tops & known),
        "raw items that are used": len(used & {*raw}),
        "raw items that can be crafted": len(made.keys() & {*raw}),
        "held items that are used": len(used & {*held}),
        "most uses of an item": max(
            Counter(x for row in made.values() for x in row).values()
        ),
    }


@functools.cache
def _patterns() -> list[re.Pattern]:
    """The phrases of crafting worlds as patterns of their requests."""
    tables = (crafting_words.PHRASES, crafting_words.REWRITES)
    phrases = [x for table in tables for split in table.values() for x in split]
    patterns = []
    for phrase in phrases:
        parts = re.split(r"{(\w+)}", phrase)
        texts = [f"(?P<text{i}>{re.escape(x)})" for i, x in enumerate(parts[::2])]
        slots = [f"(?P<{name}>.*)" for name in parts[1::2]]
        rows = [x for pair in zip(texts, [*slots, ""]) for x in pair]
        patterns.append(re.compile("".join(rows), re.DOTALL))
    return patterns


READERS = {"tools": read_tools, "crafting": read_crafting}


# Sample tasks.


def pairs(environment: Any) -> list[tuple[Entry, Entry]]:
    """Return the unsolvable entries that name a counterpart, each with it."""
    entries = perturb.catalogue(environment)
    return [(x, entries[x.counterpart]) for x in entries.values() if x.counterpart]


def find(
    world: World, entries: Sequence[Entry], split: str, num: int = NUM
) -> tuple[list["Score"], str]:
    """Return the shortcuts that tell two entries apart, and a report of all scores.

    Args:
      world: under the compact style.
      entries: an unsolvable entry and its counterpart.
      split: the split of the tasks.
      num: number of tasks of each entry.
    """
    found, leaks = [], []
    for name in SAMPLES:
        scored = scores(sample(world, entries, split, name, num), name)
        found += scored
        if any(map(above, scored)):
            again = scores(sample(world, entries, split, name, num, 1), name)
            found += again
            leaks += [x for x, y in zip(scored, again) if above(x) and above(y)]
    return leaks, f"{entries[0].name} against {entries[1].name}\n{report(found)}"


def sample(
    world: World,
    entries: Sequence[Entry],
    split: str,
    kind: str,
    num: int = NUM,
    seed: int = 0,
) -> Tasks:
    """Sample tasks under each of two entries, only tasks that the entries change.

    Args:
      world: under the compact style.
      entries: an unsolvable entry and its counterpart.
      split: the split of the tasks.
      kind: "separate" or "paired"; see the docstring of this module.
      num: number of tasks of each entry. Fewer are returned if the entries change less
        than a fifth of all tasks.
      seed: another seed gives other tasks.
    """
    environment, paired = world.environment, kind == PAIRED
    make = _maker(environment, tuple(entries), split)
    batches, kept = ([], []), [0, 0]
    for start in range(0, 5 * num, BATCH):
        for which in range(2):
            first = start if paired else start + which * 5 * num
            keys = draw.task_keys(jax.random.key(seed), first, BATCH)
            made = jax.device_get(make(world.tables, keys, which))
            batches[which].append((*made, first + np.arange(BATCH)))
        hits = [batch[-1][0] for batch in batches]
        hits = [hits[0] & hits[1]] * 2 if paired else hits
        for which, hit in enumerate(hits):
            rows = np.flatnonzero(hit)[: num - kept[which]]
            batches[which][-1] = [x[rows] for x in batches[which][-1][1:]]
            kept[which] += len(rows)
        if min(kept) == num:
            break
    solvable, counts, prompt, before, group = (
        np.concatenate(x) for x in zip(*(row for batch in batches for row in batch))
    )
    texts = np.array(lexicons.texts(world.tables.lexicon), dtype=object)
    reader = READERS[environment.name]
    read = [
        [reader("".join(row)) for row in texts[pieces]] for pieces in (prompt, before)
    ]
    return Tasks(*read, counts, solvable, group)


@functools.cache
def _maker(environment, entries, split):
    """A compiled function that makes a batch of tasks under one of two entries."""

    @jax.jit
    def make(tables, keys, which):
        pools = environment.pools

        def one(key):
            old = environment.sample(tables, key, split)
            edits = [x.make(pools(tables, old, split)) for x in entries]
            edit_key = jax.random.fold_in(key, draw.EDIT)
            new = jax.lax.switch(which, edits, edit_key, old, jnp.float32(1))
            changed = ~perturb.equal(new, old)
            return (
                changed,
                environment.certificate(tables, new).solvable,
                environment.counts(tables, new),
                environment.prompt(tables, new),
                environment.prompt(tables, old),
            )

        return jax.vmap(one)(keys)

    return make


# What the classifiers are given.


def request_numbers(tasks: Tasks) -> Table:
    """Return numbers and lengths of the requests."""
    texts = [x.request for x in tasks.readings]
    columns = _measured(texts)
    columns |= _columns("characters of part", [[*map(len, x)] for x in texts])
    return _table(columns, "of request")


def document_numbers(tasks: Tasks) -> Table:
    """Return numbers, lengths and figures of the documents."""
    documents = [x.documents for x in tasks.readings]
    columns = _measured([sum(x, ()) for x in documents])
    columns["documents"] = [len(x) for x in documents]
    for name, size in (
        ("characters", lambda document: sum(map(len, document))),
        ("texts", len),
    ):
        sizes = [[*map(size, x)] for x in documents]
        columns |= _columns(f"{name} of document", sizes)
        sizes = [sorted(x, reverse=True) for x in sizes]
        columns |= _columns(f"{name}, by size, of document", sizes)
    for name in tasks.readings[0].figures:
        columns[name] = [x.figures[name] for x in tasks.readings]
    for k, column in enumerate(tasks.counts.T):
        columns[f"counts[{k}]"] = column
    return _table(columns, "of documents")


def _measured(texts: list[tuple[str, ...]]) -> dict[str, list[int]]:
    """What can be measured in some texts of each task."""
    words = [_words(" ".join(x)) for x in texts]
    return {
        "texts": [len(x) for x in texts],
        "distinct texts": [len({*x}) for x in texts],
        "characters": [sum(map(len, x)) for x in texts],
        "words": [len(x) for x in words],
        "distinct words": [len({*x}) for x in words],
    }


def _columns(name: str, rows: list[list[int]]) -> dict[str, list[int]]:
    """One column for each place of a ragged table."""
    num = min(max(map(len, rows)), PLACES)
    return {
        f"{name} {i}": [x[i] if i < len(x) else -1 for x in rows] for i in range(num)
    }


def _table(columns: dict[str, Any], suffix: str = "") -> Table:
    names = [f"{name} {suffix}".strip() for name in columns]
    return Table(np.array([*columns.values()], float).T, names)


def places(tasks: Tasks) -> Table:
    """Return which documents the entry has changed, or is about.

    An agent does not see what was changed, but it sees documents by their places. Where
    entries choose the documents anew, the difference to the task as it was says nothing
    about what the agent sees; the reader gives the places then.
    """
    if named := tasks.readings[0].places:
        return _table(
            {name: [x.places[name] for x in tasks.readings] for name in named}
        )
    documents = [x.documents for x in tasks.readings]
    changed = [
        [i for i, document in enumerate(new) if document not in old.documents]
        for old, new in zip(tasks.before, documents)
    ]
    gone = [{*x.documents} - {*new} for x, new in zip(tasks.before, documents)]
    ends = [len(x) - 1 for x in documents]
    return _table(
        {
            "changed documents": [len(x) for x in changed],
            "documents that are gone": [len(x) for x in gone],
            "first changed document": [x[0] if x else -1 for x in changed],
            "last changed document": [x[-1] if x else -1 for x in changed],
            "last changed document, from the end": [
                end - x[-1] if x else -1 for x, end in zip(changed, ends)
            ],
        }
    )


def words(tasks: Tasks) -> Table:
    """Return how often words and pairs of words occur; the values are sparse.

    The request and the documents have separate vocabularies.
    """
    tables, names = [], []
    for name, texts in (
        ("request", [[" ".join(x.request)] for x in tasks.readings]),
        ("documents", [map(" ".join, x.documents) for x in tasks.readings]),
    ):
        counter = CountVectorizer(analyzer=_terms, min_df=MIN_DF)
        tables.append(counter.fit_transform(map(list, texts)).minimum(3))
        names += [f'"{term}" in {name}' for term in counter.get_feature_names_out()]
    return Table(sparse.hstack(tables).tocsr().astype(float), names)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+(?:[-']\w+)*|[^\w\s]", text)


def _terms(texts: list[str]) -> list[str]:
    """Return the words and the pairs of neighbouring words of texts."""
    rows = [_words(text) for text in texts]
    return [term for row in rows for term in (*row, *map(" ".join, zip(row, row[1:])))]


# The classifiers.


@threadpool_limits.wrap(limits=1)  # threads that wait for others take 30 times as long
def scores(tasks: Tasks, sample: str) -> list[Score]:
    """Return how well each classifier tells what is solvable from a shortcut.

    Args:
      tasks: as many solvable as unsolvable tasks are used; the others are left out.
      sample: "separate" or "paired"; see the docstring of this module.
    """
    random = np.random.default_rng(0)
    kept = _balanced(tasks, random, sample == PAIRED)
    solvable = tasks.solvable[kept]
    groups = random.permutation(np.unique(tasks.group[kept]))
    train = np.isin(tasks.group[kept], groups[: len(groups) // 2])
    request, document, place, term = (
        Table(values[kept], names)
        for values, names in (
            make(tasks) for make in (request_numbers, document_numbers, places, words)
        )
    )
    dense = np.concatenate([request.values, document.values], axis=1)
    dense = StandardScaler().fit(dense[train]).transform(dense)
    both = Table(
        sparse.hstack([term.values, dense]).tocsr(),
        [*term.names, *request.names, *document.names],
    )
    counts = Table(tasks.counts[kept], [])
    found = []
    for name, model, (inputs, labels) in (
        ("request", _trees(), request),
        ("documents", _trees(), document),
        ("places", _trees(), place),
        ("words", _linear(), term),
        ("both", _linear(), both),
        ("counting", Counting(), counts),
    ):
        model.fit(inputs[train], solvable[train])
        believed = model.predict_proba(inputs[~train])[:, 1]
        for measure, value, limit in _measures(
            believed, solvable[~train], tasks.group[kept][~train], sample
        ):
            telling = ""
            if value > limit and labels:
                telling = _telling(model, inputs[~train], solvable[~train], labels)
            found.append(Score(sample, name, measure, value, limit, telling))
    return found


def above(score: Score) -> bool:
    """Tell whether a score is higher than chance explains."""
    return bool(score.value > score.limit)


def report(found: list[Score]) -> str:
    """Return the scores as lines of text."""
    return "\n".join(
        f"{x.sample:9} {x.classifier:9} {x.measure:9} {x.value:.3f}"
        f" {'>' if above(x) else '<='} {x.limit:.3f}  {x.features}"
        for x in found
    )


class Counting:
    """Refuses a task if most training tasks with the same counts were unsolvable."""

    def fit(self, counts, solvable):
        self.share = {}
        for row in {*map(tuple, counts)}:
            same = np.all(counts == row, axis=1)
            self.share[row] = np.mean(solvable[same])

    def predict_proba(self, counts):
        solvable = np.array([self.share.get(tuple(row), 0.5) for row in counts])
        return np.stack([1 - solvable, solvable], axis=1)


def _trees():
    return HistGradientBoostingClassifier(max_iter=100, random_state=0)


def _linear():
    return LogisticRegression(C=0.03, tol=1e-3, max_iter=300)


def _balanced(tasks, random, paired):
    """Indices of as many solvable as unsolvable tasks."""
    if paired:
        return np.arange(len(tasks.solvable))
    rows = [np.flatnonzero(tasks.solvable == flag) for flag in (False, True)]
    num = min(map(len, rows))
    return np.sort(np.concatenate([random.permutation(x)[:num] for x in rows]))


def _measures(believed, solvable, group, sample):
    """Each measure with its value and its limit."""
    num = len(solvable)
    accuracy = np.mean((believed > 0.5) == solvable)
    # The two tasks of a pair may be judged rightly or wrongly together, so that a pair
    # counts as one task.
    independent = num / 2 if sample == PAIRED else num
    yield "accuracy", accuracy, 0.5 + Z * np.sqrt(0.25 / independent)
    # The standard deviation of the statistic of Mann and Whitney for equal classes.
    deviation = np.sqrt((num + 1) / (3 * num * num))
    deviation *= np.sqrt(num / independent)
    yield "AUC", roc_auc_score(solvable, believed), 0.5 + Z * deviation
    if sample == PAIRED:
        order = np.lexsort((solvable, group))
        unsolvable, solved = believed[order].reshape(-1, 2).T
        choice = np.mean(solved > unsolvable) + 0.5 * np.mean(solved == unsolvable)
        yield "choice", choice, 0.5 + Z * np.sqrt(0.25 / (num / 2))


def _telling(model, inputs, solvable, names):
    """The features that a classifier relies on most."""
    if hasattr(model, "coef_"):
        weight = model.coef_[0] * StandardScaler(with_mean=False).fit(inputs).scale_
    else:
        weight = permutation_importance(
            model, inputs, solvable, n_repeats=3, random_state=0
        ).importances_mean
    first = np.argsort(-np.abs(weight))[:SHOWN]
    return ", ".join(f"{names[i]} ({weight[i]:+.3f})" for i in first)
