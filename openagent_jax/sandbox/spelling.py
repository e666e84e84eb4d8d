"""What the tokens of any tokenizer read, in bytes: byte-level BPE and SentencePiece."""

import json
import re
from collections.abc import Sequence

from tokenizers import Tokenizer

BLANK = "\N{LOWER ONE EIGHTH BLOCK}"  # how SentencePiece writes a blank


def as_it_is(tokenizer: Tokenizer) -> Tokenizer:
    """The same without the blank that SentencePiece puts in front of a text."""
    fields = json.loads(tokenizer.to_str())

    def walk(x):
        if isinstance(x, list):
            return [walk(y) for y in x if not _puts_in_front(y)]
        if isinstance(x, dict):
            x = {key: walk(y) for key, y in x.items()}
            if x.get("type") == "Metaspace":
                x |= {"prepend_scheme": "never", "add_prefix_space": False}
        return None if _puts_in_front(x) else x

    parts = {key: fields.get(key) for key in ("normalizer", "pre_tokenizer")}
    changed = {key: walk(part) for key, part in parts.items()}
    if changed == parts:
        return tokenizer
    return Tokenizer.from_str(json.dumps(fields | changed))


def _puts_in_front(part) -> bool:
    return isinstance(part, dict) and part.get("type") == "Prepend"


def num_tokens(tokenizer: Tokenizer) -> int:
    """Up to the last one: some numbers may have none."""
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def token_bytes(tokenizer: Tokenizer, marks: bytes) -> list[list[int]]:
    """Bytes of every token; special tokens are a NUL, which no text may hold, but for
    those that stand in the marks of a call.

    Raises:
      ValueError: the tokenizer is of another kind.
    """
    decoder = tokenizer.decoder.__getstate__() if tokenizer.decoder else b""
    byte_level, alphabet = b'"ByteLevel"' in decoder, _byte_level_alphabet()
    if not byte_level and BLANK not in decoder.decode():
        raise ValueError(
            "tokenizer: its decoder is neither of byte-level BPE nor of SentencePiece"
        )

    def spelled(text: str) -> list[int]:
        if byte_level:
            return [alphabet[char] for char in text]
        if re.fullmatch("<0x[0-9A-F]{2}>", text):
            return [int(text[3:5], 16)]
        return list(text.replace(BLANK, " ").encode())

    added = tokenizer.get_added_tokens_decoder()
    rows = []
    for token in range(num_tokens(tokenizer)):
        text = tokenizer.id_to_token(token)
        if token in added:
            data = added[token].content.encode()
            unread = added[token].special and data not in marks
            rows.append([0] if unread else list(data))
        else:
            rows.append([0] if text is None else spelled(text))
    return rows


def check(
    texts: Sequence[str],
    spans: Sequence[Sequence[int]],
    tokenizer: Tokenizer,
    token_bytes: Sequence[Sequence[int]],
) -> None:
    """Every text is spelled as it is; a special token reads as its name.

    Raises:
      ValueError: one is not.
    """
    added = tokenizer.get_added_tokens_decoder()
    names = {token: x.content.encode() for token, x in added.items()}
    for text, span in zip(texts, spans, strict=True):
        read = b"".join(names.get(x) or bytes(token_bytes[x]) for x in span)
        if read != text.encode():
            raise ValueError(
                f"tokenizer: it spells {text!r} as {read.decode(errors='replace')!r}; "
                "one that changes texts cannot be used"
            )


def misread(texts: Sequence[str], tokenizer: Tokenizer) -> set[str]:
    """Texts that it does not spell as they are, or that hold a special token."""
    tokenizer = as_it_is(tokenizer)
    rows = token_bytes(tokenizer, b"")  # a special token reads as a NUL
    spans = tokenizer.encode_batch(list(texts), add_special_tokens=False)
    return {
        text
        for text, span in zip(texts, spans, strict=True)
        if b"".join(bytes(rows[x]) for x in span.ids) != text.encode()
    }


def _byte_level_alphabet() -> dict[str, int]:
    """The printable stand-ins that byte-level BPE uses for the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table = {chr(byte): byte for byte in keep}
    others = [byte for byte in range(256) if byte not in keep]
    table.update({chr(256 + i): byte for i, byte in enumerate(others)})
    return table
