"""Requests are made from what a description says of its tool alone."""

import pytest

from openagent_jax.drafting import drafting, telling_sentences
from tests.drafting import real_lists


def test_what_others_say_too_is_passed_over():
    shared = "Uses the API of the bees."
    texts = [
        f"{shared} Finds a hive. Fast.",
        f"{shared} Weighs a hive. Fast.",
        "Waits.",
    ]
    assert telling_sentences.of(texts) == ["Finds a hive", "Weighs a hive", "Waits"]


@pytest.mark.parametrize("text", ["", "Finds a hive.", "Finds a hive. Finds a hive."])
def test_the_first_sentence_where_nothing_differs(text):
    expected = "Finds a hive" if text else ""
    assert telling_sentences.of([text, text]) == [expected] * 2


def test_a_later_sentence_says_what_to_do():
    texts = ["Uses the API. A lot. Finds a hive.", "Uses the API. A little."]
    assert telling_sentences.of(texts) == ["Finds a hive", "Uses the API"]


def test_labels_that_several_have_are_left_out():
    texts = ["Note: waits.", "Does: rests.", "Does: sleeps."]
    assert telling_sentences.of(texts) == ["Note: waits", "rests", "sleeps"]


@pytest.mark.parametrize("name", ["travel", "vehicle"])
def test_real_lists_whose_descriptions_begin_alike(name):
    """Goals of different tools ask for different things."""
    document = real_lists.read(real_lists.FOLDER / f"{name}.json")
    goals = drafting.draft(document, name).domain["goals"]
    asked = {}
    for goal in goals:
        if len(goal["steps"]) == 1:
            request = goal["phrases"]["train"][0].split(" with ")[0]
            assert "tool" not in request.lower() and "system" not in request
            asked.setdefault(goal["steps"][0]["tool"], request.split(" and tell")[0])
    assert len(set(asked.values())) == len(asked) > 15
