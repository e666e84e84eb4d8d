"""Refusals and questions in English, as people and agents write them."""

import pytest

from openagent_jax.environments.logs import log_language

REFUSALS = [
    "I have no tool for that.",
    "I have no tool for that. You could call the office instead.",
    "Sorry, I can't cancel orders.",
    "I'm sorry, but I cannot do that.",
    "I\N{RIGHT SINGLE QUOTATION MARK}m sorry. I can\N{RIGHT SINGLE QUOTATION MARK}t "
    "help with this request.",
    "I am unable to change the address of a parcel.",
    "Unfortunately, I'm not able to book hotels.",
    "I don't have access to the payroll system.",
    "I do not have a suitable tool to do this.",
    "We currently have no way to refund this.",
    "There is no tool that books flights.",
    "There's no way to do that with the tools that I have.",
    "None of my tools can send e-mails.",
    "None of the available tools books a table.",
    "The available tools do not support cancellations.",
    "I'm afraid that is not something I can do.",
    "Thanks for asking, but I can't place orders.",
    "My apologies, I lack the ability to sign documents.",
    "**I can't do that.**",
    "Sorry for the inconvenience, but I cannot order honey.",
    "I won't be able to do that.",
    "As an AI assistant, I can't place phone calls.",
    "That's not possible with my tools.",
    "I do not have the tools required to answer this.",
]
NO_REFUSALS = [
    "",
    "It is sunny.",
    "Done! I cannot wait to see it.",
    "I can't find order A-17.",
    "I couldn't find the order.",
    "I cannot see any parcel of that name.",
    "I can't thank you enough.",
    "I'm unable to locate the parcel.",
    "I can't do that without the order number.",
    "I can't ship it until you confirm the address.",
    "I'm unable to proceed. Please provide the order number.",
    "Sorry, I can't tell which one. Which order do you mean?",
    "I can't cancel it, so I opened a ticket.",
    "I can't use the old tool, but I shipped it with the new one.",
    "You can't return this item.",
    "The order can't be cancelled.",
    "There is no order of that number.",
    "I have no idea.",
    "The parcel cannot be found; I am sorry.",
    "Sorry for the wait! Your label is L-4.",
    "I'm sorry to hear that. The refund is on its way.",
    "I can help with that.",
    "I have a tool for that.",
    "No tools were needed.",
    "I cannot cancel it myself, but it will be cancelled on Friday.",
    "I cannot complete this right now; the service is down.",
    "I'm unable to say more than this: it arrives on Friday.",
    "Je ne peux pas le faire.",
]


@pytest.mark.parametrize("text", REFUSALS)
def test_refusals(text):
    assert log_language.refuses(text)


@pytest.mark.parametrize("text", NO_REFUSALS)
def test_what_is_no_refusal(text):
    assert not log_language.refuses(text)


ASKING = [
    "When will order A-17 arrive?",
    "The state of B-20?",
    "Weather in Rome?",
    "Is it open on Sunday?",
    "Can you tell me the price of item 7?",
    "Could you check whether the hive is full",
    "Please tell me the label.",
    "I'd like to know the price",
    "I need to know how many parcels are left.",
    "Ship A-17 and tell me the label.",
    "Cancel A-17. What is the refund?",
    "Give me the opening hours of the Oak Bay.",
    "List the loans of member 12.",
    "Find the price of item 7.",
    "Look up the arrival of p9, please",
    "Please could you get me the state of A-17.",
    "Show the humidity in hive 3",
    "How much is it",
    "Hi! I want to find out where p9 is.",
    "Order A-17: which parcel?",
    "Let me know the label.",
    "I am looking for the price of item 7.",
    "Return the state of order A-17.",
    "Please provide the arrival date of p9.",
    "Look up the arrival of p9, and the state",
    "Quel temps fait-il ?",
]
DOING = [
    "",
    "Please ship order A-17 of 2024 to Oslo, I am in Oslo-Nord.",
    "Cancel A-17 and B-20",
    "Could you ship order A-17 to Oslo?",
    "Would you please cancel it?",
    "Can you book a table for two, please? Thanks!",
    "Ship it. OK?",
    "Find order A-17 and ship it to Oslo.",
    "Get the parcel of A-17 and send it to Bern, please.",
    "Book the hotel that I stayed in last year.",
    "Send the parcel to the address which I gave you.",
    "I want you to cancel my order.",
    "Move the loan of member 12 to branch 3.",
    "Register hive 7 as treated.",
    "Hi, please pay the bill. Thank you!",
    "Please return item 7 to the supplier.",
    "Can you get A-17 shipped?",
    "Order three jars of honey and count me in.",
    "Add hive 4 to the list.",
    "Check in passenger Kim.",
    "Show up at 9 and open the door.",
]


@pytest.mark.parametrize("text", ASKING)
def test_requests_that_ask_for_something_to_be_told(text):
    assert log_language.asks(text)


@pytest.mark.parametrize("text", DOING)
def test_requests_that_ask_for_something_to_be_done(text):
    assert not log_language.asks(text)


@pytest.mark.parametrize("word", ["thanks for ", "sorry for the, ", "no ", "get a ed "])
def test_long_texts_take_no_long_time(word):
    """The patterns do not backtrack: a text of this kind took hours."""
    text = word * 5000
    assert not log_language.refuses(text)
    log_language.asks(text)
