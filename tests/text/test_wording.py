"""The purpose of a tool in words, and paraphrases of names and descriptions."""

import pytest

from openagent_jax.text import wording


@pytest.mark.parametrize(
    "name, description, phrase, effect",
    [
        ("get_x", "Retrieves the state.", "retrieve the state", False),
        ("cancel_x", "This tool cancels an order.", "cancel an order", True),
        ("close_x", "Use this to close a case. Be careful.", "close a case", True),
        ("f", "A function that searches flights", "search flights", False),
        ("f", "Allows you to delete e.g. a file", "delete e.g. a file", True),
        ("create_order", "Returns the new order.", "return the new order", True),
        ("order_status", "State of an order", "get state of an order", False),
        ("order_cancel", "", "cancel order", True),
        ("bookRoom", "", "book room", True),
        ("book_title", "Title of a book", "get title of a book", False),
        ("weather", "", "get weather", False),
        ("get_NASA", "NASA pictures", "get NASA pictures", False),
        # Unknown verbs, and words that only look like verbs.
        ("press_key", "Presses a key", "press a key", False),
        ("poke", "Poke this user.", "poke this user", False),
        ("weather", "Weather of the day", "get weather of the day", False),
        ("orders", "All the orders", "get all the orders", False),
        ("heat", "°C of a city", "get °C of a city", False),
        ("turn_on", "Turn on the light", "turn on the light", True),
        ("find_user", "Look up a user", "find a user", False),
        ("play_it", "🎵 Play music", "play music", True),
        ("f", "Recursively search for files", "search for files", False),
        ("f", "Daily schedule of a team", "get daily schedule of a team", False),
        ("f", "Given a city, returns the weather", "return the weather", False),
        ("tabs", "List, create or close a tab", "list, create or close a tab", False),
    ],
)
def test_purpose(name, description, phrase, effect):
    does = wording.purpose(name, description)
    assert (does.phrase, does.effect) == (phrase, effect)


@pytest.mark.parametrize(
    "name, description, expected, never",
    [
        ("press_key", "Press a key", "Use it to press a key", "Get a key"),
        ("search_x", "Search for files", "Find documents", "Find for documents"),
        ("tabs", "List, create or close", "Gather, create or close", "Gather create"),
    ],
)
def test_paraphrases_are_english(name, description, expected, never):
    variants = wording.descriptions(wording.purpose(name, description))["train"]
    assert expected in variants and never not in variants


def test_synonymous_names_keep_the_meaning():
    does = wording.purpose("return_order", "Start a return of an order")
    names = wording.tool_names("return_order", does)
    assert "open_return_order" in names["train"]
    assert not {"open_order", "create_order"} & {*names["train"]}
    does = wording.purpose("press_key", "Press a key")
    assert wording.tool_names("press_key", does)["train"] == [
        "press_key_tool",
        "do_press_key",
    ]


@pytest.mark.parametrize(
    "name, parts",
    [
        ("getOrderStatus", ["get", "order", "status"]),
        ("get_order-status", ["get", "order", "status"]),
        ("HTTPRequest2", ["http", "request2"]),
        ("_", ["it"]),
    ],
)
def test_words_of_an_identifier(name, parts):
    assert wording.words(name) == parts
