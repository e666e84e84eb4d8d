"""A small byte-level BPE tokenizer, trained once on `words.txt` and shipped.

Words keep the blank or underscore that follows them, never one before: so a value
has the same tokens in a request and between the quotes of a call, and a small
model can copy it. Pieces of JSON that every message holds are tokens of their own.
"""

import itertools
from collections.abc import Iterable
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, trainers
from tokenizers import pre_tokenizers as pre

END = "<|end|>"
SPECIAL = ("<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", END)
GLUE_WEIGHT = 30
WORDS = Path(__file__).with_name("words.txt")


def train(syntax: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn merges from the word list, with `syntax` as whole tokens.

    Args:
      syntax: texts that become one token each, such as `{"name":"`.
      vocab_size: tokens in all, with the special ones and the syntax.
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
    # The last paragraph of the list is the glue of English: weigh it so.
    *content, glue = WORDS.read_text().rstrip().split("\n\n")
    words = " ".join(content).split() + glue.split() * GLUE_WEIGHT
    forms = (word + after for word in words for after in ("", " ", "_"))
    forms = itertools.chain(forms, (word.capitalize() for word in words))
    tokenizer.train_from_iterator(forms, trainer)
    # Not special: they are text like any other, only spelled by one token.
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in syntax])
    return tokenizer
