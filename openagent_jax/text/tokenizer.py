"""A small byte-level BPE tokenizer, trained once on `words.txt` and shipped.

A space or underscore belongs to the token of the word before it, never to that of the
word after it. A value therefore has the same tokens in a request and between the quotes
of a call, so that a small model can copy it. Pieces of JSON that occur in every message
are single tokens.
"""

from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, trainers
from tokenizers import pre_tokenizers as pre

END = "<|end|>"
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", END)
GLUE_WEIGHT = 9  # how often the corpus repeats each function word
WORDS = Path(__file__).with_name("words.txt")


def train(syntax: Iterable[str], vocab_size: int) -> Tokenizer:
    """Return a BPE tokenizer whose merges are learnt from the word list.

    Args:
      syntax: texts that become one token each, such as `{"name":"`. Single characters
        and duplicates are left out.
      vocab_size: number of tokens, including the special tokens and `syntax`.

    >>> train(['{"name":"'], vocab_size=400).encode('{"name":"look').tokens[0]
    '{"name":"'
    """
    syntax = [text for text in dict.fromkeys(syntax) if len(text) > 1]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(r"[A-Za-z]+[ _]?|[0-9]|[^A-Za-z0-9]"), "isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(syntax),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    # These are not special tokens: they are ordinary text that takes one token.
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in syntax])
    return tokenizer


def words() -> set[str]:
    """Return the words of the word list, except the function words of English."""
    *content, _ = _paragraphs()
    return {word for paragraph in content for word in paragraph}


def _paragraphs() -> list[list[str]]:
    return [part.split() for part in WORDS.read_text().split("\n\n")]


def _corpus() -> Iterable[str]:
    """Yield the words in the forms that texts use; frequent ones are merged first."""
    content, services, names, glue = _paragraphs()
    for word in names:
        yield from (word, word + " ")
    for word in content + services + glue:
        yield from (word.capitalize(), word.capitalize() + " ")
    for word in content + services * 3 + glue * GLUE_WEIGHT:
        yield from (word, word + " ")
    for word in services * 2 + glue:
        yield word + "_"
