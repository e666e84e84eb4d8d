"""The bytes that the tokens of a tokenizer stand for.

Two kinds of tokenizer are supported: byte-level BPE (GPT-2 and its descendants) and
SentencePiece. Both write bytes as printable characters in their vocabulary; this module
knows both alphabets. All other modules work on bytes, so that they understand every
segmentation of a text.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from tokenizers import Tokenizer

METASPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a space


def without_prefix_space(tokenizer: Tokenizer) -> Tokenizer:
    """Return the tokenizer without the space that SentencePiece puts before a text.

    The parts of a text can then be tokenized separately and their tokens concatenated.

    >>> from tokenizers import models, pre_tokenizers
    >>> vocab = [("<unk>", 0.0), ("\u2581a", -1.0), ("a", -2.0)]
    >>> tokenizer = Tokenizer(models.Unigram(vocab, unk_id=0))
    >>> tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    >>> tokenizer.encode("a").ids, without_prefix_space(tokenizer).encode("a").ids
    ([1], [2])
    """
    fields = json.loads(tokenizer.to_str())

    def walk(part: Any) -> Any:
        if isinstance(part, list):
            return [walk(x) for x in part if not _is_prepend(x)]
        if isinstance(part, dict):
            part = {key: walk(x) for key, x in part.items()}
            if part.get("type") == "Metaspace":
                part |= {"prepend_scheme": "never", "add_prefix_space": False}
        return None if _is_prepend(part) else part

    parts = {key: fields.get(key) for key in ("normalizer", "pre_tokenizer")}
    changed = {key: walk(part) for key, part in parts.items()}
    if changed == parts:
        return tokenizer
    return Tokenizer.from_str(json.dumps(fields | changed))


def _is_prepend(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "Prepend"


def num_tokens(tokenizer: Tokenizer) -> int:
    """Return one more than the largest token id; smaller ids may be unused.

    >>> from tokenizers import models
    >>> num_tokens(Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a")))
    8
    """
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def vocab_bytes(tokenizer: Tokenizer, marks: bytes) -> list[list[int]]:
    """Return the bytes of every token, by token id.

    Special tokens and unused ids become a NUL byte, which no text may contain.

    Args:
      tokenizer: a byte-level BPE or SentencePiece tokenizer.
      marks: the marks of a call; a special token that is part of them keeps its text.

    Raises:
      ValueError: the tokenizer is of another kind.

    >>> from tokenizers import decoders, models
    >>> tokenizer = Tokenizer(models.WordLevel({"a": 0, "\u0120a": 1}, unk_token="a"))
    >>> tokenizer.decoder = decoders.ByteLevel()
    >>> [bytes(row) for row in vocab_bytes(tokenizer, b"")]
    [b'a', b' a']
    """
    decoder = tokenizer.decoder.__getstate__() if tokenizer.decoder else b""
    byte_level, alphabet = b'"ByteLevel"' in decoder, _byte_level_alphabet()
    if not byte_level and METASPACE not in decoder.decode():
        raise ValueError(
            "tokenizer: its decoder is neither byte-level BPE nor SentencePiece; no "
            "other kind is supported"
        )

    def to_bytes(text: str) -> list[int]:
        if byte_level:
            return [alphabet[char] for char in text]
        if re.fullmatch("<0x[0-9A-F]{2}>", text):
            return [int(text[3:5], 16)]
        return list(text.replace(METASPACE, " ").encode())

    added = tokenizer.get_added_tokens_decoder()
    rows = []
    for token in range(num_tokens(tokenizer)):
        text = tokenizer.id_to_token(token)
        if token in added:
            data = added[token].content.encode()
            is_hidden = added[token].special and data not in marks
            rows.append([0] if is_hidden else list(data))
        else:
            rows.append([0] if text is None else to_bytes(text))
    return rows


def check_round_trip(
    texts: Sequence[str],
    spans: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    token_bytes: Sequence[Sequence[int]],
) -> None:
    """Check that the tokens of every text stand for exactly that text.

    Args:
      texts: the texts; they may contain the names of special tokens.
      spans: the tokens of each text.
      tokenizer: the tokenizer that produced them.
      token_bytes: the bytes of each token, from `vocab_bytes`.

    Raises:
      ValueError: the tokenizer changes a text.
    """
    added = tokenizer.get_added_tokens_decoder()
    names = {token: x.content.encode() for token, x in added.items()}
    for text, span in zip(texts, spans, strict=True):
        read = b"".join(names.get(x) or bytes(token_bytes[x]) for x in span)
        if read != text.encode():
            raise ValueError(
                f"tokenizer: it spells {text!r} as {read.decode(errors='replace')!r}; "
                "a tokenizer that changes texts cannot be used"
            )


def lossy_texts(texts: Sequence[str], tokenizer: Tokenizer) -> set[str]:
    """Return the texts that the tokenizer changes, or that contain a special token."""
    tokenizer = without_prefix_space(tokenizer)
    rows = vocab_bytes(tokenizer, b"")  # special tokens become NUL bytes
    spans = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return {
        text
        for text, span in zip(texts, spans, strict=True)
        if b"".join(bytes(rows[x]) for x in span.ids) != text.encode()
    }


def _byte_level_alphabet() -> dict[str, int]:
    """Return the byte for each printable character that byte-level BPE uses.

    This is the inverse of GPT-2's `bytes_to_unicode`.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table
