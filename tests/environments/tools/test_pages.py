"""Pages of results, against a list in Python."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openagent_jax.environments.tools import pages as paging
from openagent_jax.environments.tools.pages import Pages, Reading

NUM_FIELDS, LOW, HIGH = 8, 100, 612
# Field 0 is none of the list, which has two columns; the last is the next cursor.
RECORD = [0, 1, 1, 2, 2, 3, 3, 0]
NEXT = NUM_FIELDS - 1


def make(size):
    """Two tools: the first divides its list, the second returns it whole."""
    record = np.array([RECORD, [0] * NUM_FIELDS])
    last = np.where(record > 0, (record - 1) // size, 0)
    last = np.pad(last, ((0, 0), (0, 2)))
    last[0, -2:] = paging.ALL  # the number of records, and the best one
    rows = ([size, 0], record, [2, 0], [2, 0], [1 + NEXT, 0], last)
    return Pages(*(jnp.asarray(x, jnp.int32) for x in rows))


def result(num):
    """All values of a result with some records; 20 + r is in the record r."""
    fields = [7, *(10 * c + r + 20 for r in range(3) for c in range(2)), -1]
    absent = np.repeat(np.arange(3) >= num, 2)
    fields[1:7] = np.where(absent, -1, fields[1:7])
    return jnp.array([*fields, 30, 31], jnp.int32)


def cursors_of(pages, call, tool=0):
    low, high = jnp.full((2, 3), LOW), jnp.full((2, 3), HIGH)
    return paging.cursors(pages, jnp.uint32(call), jnp.int32(tool), low, high)


@pytest.mark.parametrize(("size", "num"), [*itertools.product((1, 2, 3), range(4))])
def test_a_list_is_divided(size, num):
    pages, values, tool = make(size), result(num), jnp.int32(0)
    every = cursors_of(pages, 5)
    records = [(20 + r, 30 + r) for r in range(num)]
    cursor, shown, steps = jnp.int32(0), [], 0
    while True:
        page = paging.turn(pages, tool, values, every, cursor)
        fields = np.asarray(page.fields)
        assert page.number == steps and fields[0] == 7
        rows = [tuple(x) for x in fields[1:7].reshape(3, 2).tolist() if x[0] >= 0]
        assert (fields[1 + 2 * len(rows) : 7] == -1).all()
        shown, steps = shown + rows, steps + 1
        assert len(rows) == size or len(shown) == num
        if fields[NEXT] < 0:
            break
        assert len(shown) < num
        cursor = jnp.int32(fields[NEXT])
    assert shown == records
    assert steps == max(-(-num // size), 1) == paging.num_pages(pages, tool, values)


def test_a_whole_result_is_one_page():
    pages, values, tool = make(1), result(3), jnp.int32(1)
    page = paging.turn(pages, tool, values, cursors_of(pages, 5, 1), jnp.int32(0))
    np.testing.assert_array_equal(page.fields, values[:NUM_FIELDS])
    assert page.number == 0 and paging.num_pages(pages, tool, values) == 1


def test_other_cursors_are_wrong():
    """Those of another call, of a page that is not there, and the empty one."""
    pages, values, tool = make(1), result(2), jnp.int32(0)
    every, other = cursors_of(pages, 5), cursors_of(pages, 6)
    assert not set(every[1:].tolist()) & set(other[1:].tolist())
    for cursor in (*other[1:], *every[2:], jnp.int32(LOW), jnp.int32(-1)):
        assert paging.turn(pages, tool, values, every, cursor).number == -1
    assert paging.turn(pages, tool, values, every, every[1]).number == 1


def test_cursors_cannot_be_guessed():
    """Each is about as likely as any other, whatever the one before is."""
    pages = make(1)
    find = jax.jit(jax.vmap(lambda call: cursors_of(pages, call)))
    found = np.asarray(find(jnp.arange(20_000, dtype=jnp.uint32)))
    assert (found[:, 0] == 0).all()
    assert found[:, 1:].min() >= LOW and found[:, 1:].max() < HIGH
    assert all(len(set(row)) == paging.MAX_PAGES for row in found[:100].tolist())
    num = (HIGH - LOW) // paging.MAX_PAGES
    for page in range(1, 3):
        counts = np.bincount((found[:, page] - LOW) // paging.MAX_PAGES, minlength=num)
        assert 0.6 < counts.min() * num / 20_000 and counts.max() * num / 20_000 < 1.4
    pairs = (found[:, 1] // 8) * 1000 + found[:, 2] // 8
    assert len(set(pairs.tolist())) > 0.9 * num**2


@pytest.mark.parametrize(
    ("value", "needed"), [(0, 1), (1, 1), (3, 2), (8, 3), (9, 3), (-1, 1)]
)
def test_what_has_to_be_read(value, needed):
    """A goal that uses a value reads until it is known, and no further."""
    goal_tool, values = jnp.array([0, -1]), jnp.stack([result(3), result(0)])
    sources = jnp.array([-5, value])
    reading = paging.start(make(1), goal_tool, sources, values)
    assert reading.needed.tolist() == [needed, 1] and reading.read.tolist() == [0, 0]
    # No more pages than there are.
    short = paging.start(make(1), goal_tool, sources, values.at[0].set(result(1)))
    assert short.needed[0] == 1


def test_pages_count_in_their_order():
    """A page that is shown again, or that was reached by chance, counts for nothing."""
    reading = Reading(jnp.zeros(2, jnp.int32), jnp.array([3, 1]))
    step = jnp.array([True, False])
    for page, read in ((0, 1), (0, 1), (2, 1), (1, 2), (0, 2), (2, 3)):
        assert not paging.complete(reading)[0]
        reading = paging.noted(reading, step, jnp.int32(page))
        assert reading.read.tolist() == [read, 0]
    assert paging.complete(reading).tolist() == [True, False]
    assert paging.num_further(reading, jnp.array([True, True])) == 2
    assert paging.num_further(reading, jnp.array([False, True])) == 0
