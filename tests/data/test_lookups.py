"""Exercises for pretraining: what they contain, and that they can be solved."""

import json
import random
import re
from functools import partial

import numpy as np
import pytest

from openagent_jax.data import lookups
from openagent_jax.environments.tools.worlds import random_words
from tests import helpers

NUM_TOKENS = 400


@pytest.fixture(scope="module")
def pools():
    words = random_words.random_words(helpers.tokenizer(), set())
    return lookups.Pools(words, words[::2], random_words.formatted(words))


@pytest.fixture(scope="module")
def made(pools):
    return lookups.Lookups(helpers.tokenizer(), pools, seed=(0, 0))


def exercises(pools, num, difficulty):
    """Yield documents, request and answers of some exercises, as texts."""
    for seed in range(num):
        rng = random.Random(seed)
        user, request, documents, again, same, assistant, *turns = lookups.exercise(
            rng, pools, difficulty
        )
        assert (user, request) == (again, same)
        assert user == ("<|user|>", False) and assistant == ("<|assistant|>", False)
        assert not request[1] and not documents[1]
        yield documents[0], request[0], turns


def stems(text):
    """Return the words of a text without plurals, except those that all have."""
    general = lookups.GLUE + lookups.OPENINGS + lookups.TAKES + lookups.ARTICLES
    known = {*re.findall(r"\w+", " ".join(general))}
    words = {*re.findall(r"\w+", text.lower())} - known
    return {word.rstrip("s") for word in words}


def known_names(arguments, required=False):
    """Return the names of arguments, given what a document says of them."""
    texts = [x for x in arguments if not required or "(optional)" not in x]
    return {re.match(r"\w+", x)[0] for x in texts}


def tools(documents):
    """Return the documents, by the names of the tools."""
    found = [json.loads(x) for x in re.findall(r'{"description.*?}', documents)]
    found = {x["name"]: x for x in found}
    assert documents.count('{"description"') == len(found) >= lookups.NUM_TOOLS[0]
    return found


@pytest.mark.parametrize("difficulty", [0.0, 0.5, 1.0])
def test_calls_follow_from_documents_and_requests(pools, difficulty):
    """No value is made up, and words of the request tell the tool."""
    for documents, request, turns in exercises(pools, 300, difficulty):
        known, said, called = tools(documents), request, []
        for text, own in turns:
            if own and text.startswith("{"):
                call = json.loads(text.removesuffix("<|end|>"))
                document = known[call["name"]]
                names = known_names(document["parameters"])
                required = known_names(document["parameters"], required=True)
                if before := document.get("code_from"):
                    names, required = names | {"code"}, required | {"code"}
                assert names >= {*call["arguments"]} >= required
                assert all(x in said for x in call["arguments"].values())
                if before := before or document.get("call_after"):
                    assert before in called
                called.append(call["name"])
            elif own:
                answer = text.removeprefix("Answer: ").removesuffix("<|end|>")
                assert f'"{answer}"' in said.rsplit("<|tool|>")[-1]
            said += text
        assert len({*called}) == len(called)
        for name in called:
            needed = {x.get("code_from", x.get("call_after")) for x in known.values()}
            asked = stems(request) & stems(known[name]["description"])
            assert asked or name in needed
        answers = turns[-1][0].startswith("Answer: ")
        assert answers or not any(x["parameters"] for x in known.values())


def test_all_values_of_a_request_are_arguments_if_tools_have_any(pools):
    """What means nothing is in lower case there, so that no value is ambiguous."""
    num_values = num_others = 0
    for documents, request, turns in exercises(pools, 1500, 1.0):
        has_arguments = any(x["parameters"] for x in tools(documents).values())
        called = "".join(text for text, own in turns if own)
        for value in re.findall(r"\S*\d\S*", request):
            num_values += has_arguments
            num_others += not has_arguments
            assert value.rstrip(".?,;") in called or not has_arguments
    assert num_values > 50 and num_others > 50


def test_values_follow_the_word_that_the_description_has_before_the_argument(pools):
    takes, articles = ("|".join(x) for x in (lookups.TAKES, lookups.ARTICLES))
    num = others = 0
    for documents, request, turns in exercises(pools, 800, 1.0):
        known = tools(documents)
        results = "".join(text for text, own in turns if not own)
        for call in (json.loads(x[:-7]) for x, own in turns if own and x[0] == "{"):
            described = known[call["name"]]["description"]
            for name, value in call["arguments"].items():
                link = re.search(rf" ({takes})(?:{articles}){name}\b", described)
                if not link or f'"{value}"' in results:
                    continue
                found = re.search(rf"\b{link[1]}({name} )?{re.escape(value)}", request)
                num, others = num + bool(found), others + (not found)
    assert num > 200 and others < 0.02 * num


def test_easy_requests_repeat_a_description(pools):
    """Whole descriptions at first, and later mostly parts of them."""

    def share(difficulty):
        repeats = [
            any(x["description"] in asked for x in tools(documents).values())
            for documents, asked, _ in exercises(pools, 120, difficulty)
        ]
        return np.mean(repeats)

    assert share(0.0) == 1.0
    assert share(0.5) > share(1.0) + 0.1


def test_difficulty_makes_documents_longer(pools):
    sizes = [
        np.mean([len(text.split()) for text, *_ in exercises(pools, 50, difficulty)])
        for difficulty in (0.0, 0.5, 1.0)
    ]
    assert sizes[0] < sizes[1] < sizes[2]


def test_rows_are_filled_with_exercises(made):
    decode = partial(helpers.tokenizer().decode, skip_special_tokens=False)
    batch = made.batch(3, num_rows=64, num_columns=NUM_TOKENS, difficulty=1.0)
    # An exercise takes up to half of such a row. Four seeds gave 0.70 to 0.74.
    assert np.mean(batch.segments > 0) > 0.65
    for tokens, positions, segments, mask in zip(
        batch.tokens, batch.positions, batch.segments, batch.loss_mask, strict=True
    ):
        num = segments.max()
        in_order = dict.fromkeys(x for x in segments.tolist() if x)
        assert [*in_order] == [*range(1, num + 1)]
        for one in range(1, num + 1):
            here = segments == one
            assert positions[here].tolist() == [*range(here.sum())]
            text = decode(tokens[here])
            assert text.startswith("<|user|>") and text.endswith("<|end|>")
            own = decode(tokens[here & mask])
            assert own.count("<|end|>") == text.count("<|end|>") > 0
            assert not re.search(r"<\|(user|tool|assistant)\|>", own)
    assert batch.divisor.tolist() == batch.loss_mask.sum(axis=1).tolist()


def test_a_batch_is_a_function_of_the_seed_and_the_step(made, pools):
    def tokens(of, step):
        return of.batch(step, num_rows=2, num_columns=NUM_TOKENS, difficulty=1.0).tokens

    again = lookups.Lookups(helpers.tokenizer(), pools, seed=(0, 0))
    other = lookups.Lookups(helpers.tokenizer(), pools, seed=(0, 1))
    first = tokens(made, 0)
    np.testing.assert_array_equal(first, tokens(again, 0))
    assert not np.array_equal(first, tokens(made, 1))
    assert not np.array_equal(first, tokens(other, 0))


def test_content_words_are_those_of_the_pools(pools):
    glue = (*lookups.GLUE, *lookups.OPENINGS, *lookups.JOINS, *lookups.TAKES)
    known = {*pools.words, *re.findall("[a-z]+", " ".join(glue).lower())}
    known |= {f"{word}s" for word in pools.words}
    for documents, *_ in exercises(pools, 50, 1.0):
        for name, document in tools(documents).items():
            arguments = known_names(document["parameters"])
            used = {*name.split("_"), *arguments, *document["description"].split()}
            assert used <= known


def test_fixed_tokens(made):
    fixed = made.fixed_tokens()
    assert len(fixed) < 100
    for text in (*lookups.GLUE, *lookups.JOINS, "Find the "):
        assert {*helpers.tokenizer().encode(text).ids} <= fixed
