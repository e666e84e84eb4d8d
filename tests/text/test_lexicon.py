"""The lexicon against plain Python: writing, searching, and equal texts."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
)

from openagent_jax.environments.tools.worlds.symbols import ToolSymbols
from openagent_jax.text import lexicon as lexicons
from openagent_jax.text import scalars, style
from openagent_jax.text.token_bytes import METASPACE
from tests import helpers

NONE = jnp.int32(-1)  # no symbol, no number
ROOM = 96  # bytes of the buffers searched
write = jax.jit(jax.vmap(lexicons.write, (None, 0, None)), static_argnums=2)


def build(table):
    return lexicons.build(table, helpers.tokenizer(), style.compact(3))


@jax.jit
def find(lexicon, text, begin, end):
    one = jax.vmap(lexicons.find, (None, 0, 0, 0))
    return one(lexicon, text, begin[:, None], end[:, None])[:, 0]


@pytest.fixture(scope="module")
def lexicon():
    return helpers.lexicon("poi")


@pytest.fixture(scope="module")
def texts():
    return helpers.texts("poi")


def search(lexicon, texts, seed=0, size=8192):
    """Find the symbols of texts (bytes), each placed among random bytes."""
    rng = np.random.default_rng(seed)
    found = []
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        part += [b"-"] * (size - len(part))  # so that one program serves all
        length = np.array([len(text) for text in part])
        buffer = rng.integers(0, 256, (size, ROOM), dtype=np.uint8)
        begin = rng.integers(0, ROOM - length + 1)
        for row, b, text in zip(buffer, begin, part, strict=True):
            row[b : b + len(text)] = list(text)
        found += np.asarray(find(lexicon, buffer, begin, begin + length)).tolist()
    return found[: len(texts)]


class TestWrite:
    def test_concatenates_pieces(self, lexicon, texts):
        rng = np.random.default_rng(0)
        pieces = rng.integers(0, len(texts), (64, 24)).astype(np.int32)
        pieces[rng.random(pieces.shape) < 0.3] = 0  # the empty text
        pieces[0], pieces[1, 1:] = 0, 0
        tokens, index, length = map(np.asarray, write(lexicon, pieces, 96))
        spans = [e.ids for e in helpers.tokenizer().encode_batch(texts)]
        lengths = []
        for b, row in enumerate(pieces):
            wanted = [(t, i) for i, symbol in enumerate(row) for t in spans[symbol]]
            lengths.append(len(wanted))
            assert length[b] == len(wanted)  # the full length, even if it does not fit
            fits = wanted[:96]
            assert tokens[b, : len(fits)].tolist() == [t for t, _ in fits]
            assert index[b, : len(fits)].tolist() == [i for _, i in fits]
            assert not tokens[b, len(fits) :].any()
        assert min(lengths) == 0
        assert max(lengths) > 96 > np.median(lengths)

    def test_every_text_is_spelled(self, lexicon, texts):
        spans = helpers.ragged(lexicon.spans)
        assert all(
            helpers.spell(span) == text for span, text in zip(spans, texts, strict=True)
        )


class TestFind:
    def test_every_surface_form(self, lexicon, texts):
        raw = [text.encode() for text in texts]
        short = [t for t in raw if len(t) <= lexicons.MAX_TEXT]
        assert len(short) > 0.9 * len(raw)
        first = {}
        for symbol, text in enumerate(raw):
            first.setdefault(text, symbol)
        found = search(lexicon, list(short))
        assert found == [first[text] for text in short]

    def test_near_misses(self, lexicon, texts):
        raw = [t.encode() for t in texts]
        first = {t: symbol for symbol, t in reversed(list(enumerate(raw)))}
        rng = np.random.default_rng(1)
        near = []
        for i in rng.integers(1, len(raw), 8192):
            text = bytearray(raw[i][: lexicons.MAX_TEXT])
            at, byte = rng.integers(len(text)), int(rng.integers(256))
            match rng.integers(5):
                case 0:
                    text[at] = byte
                case 1:
                    del text[at]
                case 2:
                    text.insert(at, byte)
                case 3:
                    text = bytearray(text.swapcase())
                case 4:  # same bytes in another order
                    text.reverse()
            near.append(bytes(text[: lexicons.MAX_TEXT]))
        found = search(lexicon, near)
        assert found == [first.get(text, -1) for text in near]
        assert 0 < np.mean(np.array(found) < 0) < 1

    def test_hash_matches_are_verified(self, lexicon, texts):
        """If all hashes match but no text does, nothing is found."""
        flat = lexicon.texts.flat.at[:-64].add(1)
        table = dataclasses.replace(lexicon.texts, flat=flat)
        liar = dataclasses.replace(lexicon, texts=table)
        some = [t.encode() for t in texts[1:3000] if len(t) <= lexicons.MAX_TEXT]
        assert min(search(lexicon, list(some))) >= 0
        assert set(search(liar, list(some))) == {-1}

    def test_empty_and_reversed_runs(self, lexicon):
        text = np.full((8192, ROOM), ord("7"), np.uint8)
        begin, end = np.full(8192, 9), np.full(8192, 9)
        end[1] = 8  # ends before it begins
        begin[2], end[2] = 0, ROOM  # longer than any surface form
        found = find(lexicon, text, begin, end)
        assert found[:3].tolist() == [0, -1, -1]


@pytest.fixture(scope="module")
def ranges():
    table = ToolSymbols()
    one = table.add(["red", "green", "blue"])
    two = table.add(["blue", "grey", "red"])
    three = table.add(["red"])
    return build(table), one, two, three


def test_hash_collisions(monkeypatch):
    """If no base separates all hashes, the bytes are compared."""
    monkeypatch.setattr(lexicons, "NUM_BASES", 1)
    letters = np.random.default_rng(0).integers(97, 123, (300_000, 8))
    powers = [pow(1_000_003, k, 2**32) for k in range(8)]
    hashes = ((letters + 1) * np.array(powers) % 2**32).sum(axis=1) % 2**32
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(np.diff(hashes[order]) == 0)
    pairs = [{bytes(letters[order[i + j]].tolist()) for j in (0, 1)} for i in same]
    pair = sorted(next(pair for pair in pairs if len(pair) == 2))
    table = ToolSymbols()
    added = table.add([text.decode() for text in pair])
    lexicon = build(table)
    assert lexicon.num_probes == 2
    assert search(lexicon, pair) == [added.low, added.low + 1]
    code = table.codes.low
    assert search(lexicon, [table.texts[code].encode(), b"no text"]) == [code, -1]


class TestEqualTexts:
    """Equal texts with different symbols, such as values of several types."""

    def test_resolve(self, ranges):
        lexicon, one, two, three = ranges
        resolve = jax.jit(lexicons.resolve)
        red = jnp.int32(one.low)
        assert lexicon.max_equal == 3
        assert [
            int(resolve(lexicon, red, NONE, r.low, r.high)) for r in ranges[1:]
        ] == [
            one.low,
            two.low + 2,
            three.low,
        ]
        assert resolve(lexicon, jnp.int32(two.low + 1), NONE, one.low, one.high) == -1
        assert resolve(lexicon, NONE, NONE, 0, 1 << 20) == -1
        assert resolve(lexicon, red, NONE, one.low, one.low) == -1  # an empty range

    def test_numbers_are_resolved_by_value(self):
        table = ToolSymbols()
        texts, bare = table.add(["red", "2.50"]), table.add(["true", "2.5"])
        lexicon = build(table)
        half, two = (jnp.int32(scalars.code(x)) for x in ("2.5", "2"))
        numbers = scalars.number_range(0, 3, 1)
        ends = [x + scalars.UNQUOTED for x in (bare.low, bare.high)]

        def resolve(symbol, number, low, high):
            return lexicons.resolve(lexicon, jnp.int32(symbol), number, low, high)

        for symbol in (-1, texts.low + 1):  # written 25e-1, or 2.50
            assert resolve(symbol, half, texts.low, texts.high) == texts.low + 1
            assert resolve(symbol, half, *ends) == bare.low + 1
            assert resolve(symbol, half, *numbers) == half
        assert resolve(-1, two, texts.low, texts.high) == -1
        assert resolve(-1, two, *numbers) == two

    def test_the_text_as_it_stands_comes_first(self):
        table = ToolSymbols()
        texts = table.add(["2.5", "2.50"])
        lexicon, half = build(table), jnp.int32(scalars.code("2.5"))
        for symbol in (texts.low, texts.low + 1):
            ends = texts.low, texts.high
            found = lexicons.resolve(lexicon, jnp.int32(symbol), half, *ends)
            assert found == symbol

    def test_same_value(self):
        table = ToolSymbols()
        texts = table.add(["red", "2.50", "red"])
        lexicon = build(table)
        half = scalars.code("2.5")
        a = jnp.array([texts.low, texts.low + 1, half, half, texts.low, -1])
        b = jnp.array([texts.low + 2, half, half, scalars.code(2), half, -1])
        same = lexicons.same_value(lexicon, a, b)
        assert same.tolist() == [True, True, True, False, False, False]

    def test_same_text(self, ranges):
        lexicon, one, two, _ = ranges
        a = jnp.array([one.low, one.low, one.low + 2, -1, 0])
        b = jnp.array([two.low + 2, one.low + 1, two.low, -1, 0])
        same = lexicons.same_text(lexicon, a, b)
        assert same.tolist() == [True, False, True, False, True]

    def test_a_range_added_after_single_texts(self):
        table = ToolSymbols()
        done = table.one("done")
        pool = table.add(["done", "undone"])
        assert table.one("done") == done != pool.low
        lexicon = build(table)
        ends = vars(pool).values()
        assert lexicons.resolve(lexicon, jnp.int32(done), NONE, *ends) == pool.low


def sentencepiece(metaspace):
    """A tokenizer like that of Llama 2 and Mistral, with a few merges."""
    blank = METASPACE
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    letters = [blank, *map(chr, range(33, 127))]
    merges = [(blank, "t"), ("o", "w"), (blank, blank), ("a", "y")]
    pieces = [*byte_tokens, *letters, *map("".join, merges)]
    vocab = {piece: i for i, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocab, merges, byte_fallback=True))
    if metaspace:
        made.pre_tokenizer = pre_tokenizers.Metaspace(blank, "always", split=False)
    else:
        made.normalizer = normalizers.Sequence(
            [normalizers.Prepend(blank), normalizers.Replace(" ", blank)]
        )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace(blank, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    marks = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
    made.add_special_tokens([AddedToken(mark, normalized=False) for mark in marks])
    return made


class TestTokenizer:
    def test_bytes_of_tokens(self, lexicon):
        """Compared with the decoder of the library; special tokens are read as NUL."""
        tokenizer = helpers.tokenizer()
        special = {
            i for i, t in tokenizer.get_added_tokens_decoder().items() if t.special
        }
        assert lexicon.end_token in special
        rows = helpers.ragged(lexicon.token_bytes)
        assert len(rows) == tokenizer.get_vocab_size() == lexicon.vocab_size
        for token, data in enumerate(rows):
            if token in special:
                assert data.tolist() == [0]
            else:
                text = bytes(data).decode(errors="replace")
                assert text == tokenizer.decode([token]), token

    def test_transformers_gives_the_same_ids(self, texts):
        transformers = pytest.importorskip("transformers")
        other = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(helpers.TOKENIZER)
        )
        some = texts[1 :: len(texts) // 500]
        joined = ["".join(some[i : i + 7]) for i in range(0, len(some), 7)]
        for text in some + joined:
            ids = helpers.tokenizer().encode(text, add_special_tokens=False).ids
            assert other.encode(text, add_special_tokens=False) == ids
            assert other.decode(ids) == text

    @pytest.mark.parametrize("metaspace", [False, True])
    def test_sentencepiece(self, metaspace):
        """Blanks join the next word, texts start with one, and bytes can be tokens."""
        made = sentencepiece(metaspace)
        assert made.decode(made.encode("two words").ids) == "two words"
        assert made.encode("two").tokens[0].startswith(METASPACE)
        table = ToolSymbols()
        table.add(["Oak Bay", "caf\u00e9 \u20ac", " "])
        lexicon = lexicons.build(table, made, style.compact(3))
        token_bytes = [bytes(row) for row in helpers.ragged(lexicon.token_bytes)]
        spans = helpers.ragged(lexicon.spans)
        for text, span in zip(table.texts, spans, strict=False):
            if text.startswith("<|"):  # a special token
                assert [token_bytes[t] for t in span] == [b"\0"]
            else:
                assert b"".join(token_bytes[t] for t in span) == text.encode()
        assert token_bytes[made.token_to_id("<0xE2>")] == b"\xe2"
        assert token_bytes[made.token_to_id("<|end|>")] == b"\0"

    def test_a_blank_is_tokenized_with_what_follows(self):
        made, table = sentencepiece(metaspace=False), ToolSymbols()
        made.normalizer = normalizers.Replace(" ", METASPACE)
        texts = ["say ", "to", "", "to ", "tow", "<|assistant|>", "Answer: "]
        pieces = [table.one(text) for text in texts]
        lexicon = lexicons.build(table, made, style.compact(3))
        rng = np.random.default_rng(0)
        rows = rng.choice(len(texts), (64, 24)).astype(np.int32)
        rows[0, :4], rows[0, 4:] = (0, 2, 1, 0), 2  # ends with a blank
        tokens, index, length = map(
            np.asarray, write(lexicon, np.array(pieces, np.int32)[rows], 256)
        )
        for row, ids, where, num in zip(rows, tokens, index, length, strict=True):
            text = "".join(texts[i] for i in row)
            assert ids[:num].tolist() == made.encode(text).ids
            assert np.all(np.diff(where[:num]) >= 0)
        assert index[0, : length[0]].max() == 3  # the final blank stays where it is

    def test_the_agents_text_takes_no_preceding_blank(self):
        """Otherwise its words would be tokenized differently than in a rollout."""
        made, table = sentencepiece(metaspace=False), ToolSymbols()
        made.normalizer = normalizers.Replace(" ", METASPACE)
        form = dataclasses.replace(style.compact(3), assistant="<|assistant|>: ")
        say, to = table.one("say "), table.one("to")
        lexicon = lexicons.build(table, made, form)
        rows = np.array([[say, lexicon.style.assistant, to]] * 64, np.int32)
        tokens, _, length = map(np.asarray, write(lexicon, rows, 256))
        apart = made.encode("say <|assistant|>: ").ids + made.encode("to").ids
        assert tokens[0, : length[0]].tolist() == apart
        assert apart != made.encode("say <|assistant|>: to").ids

    def test_special_tokens_of_a_call_can_be_read(self):
        plain = style.compact(3)
        form = dataclasses.replace(
            plain, marks=plain.marks._replace(call_open=b"<|tool|>")
        )
        made = helpers.tokenizer()
        for one, text in ((plain, b"\0"), (form, b"<|tool|>")):
            lexicon = lexicons.build(ToolSymbols(), made, one)
            rows = helpers.ragged(lexicon.token_bytes)
            assert bytes(rows[made.token_to_id("<|tool|>")]) == text
            assert bytes(rows[made.token_to_id("<|user|>")]) == b"\0"

    def test_lossy_tokenizers_are_refused(self):
        made = helpers.tokenizer().from_str(helpers.tokenizer().to_str())
        made.normalizer = normalizers.Lowercase()
        with pytest.raises(ValueError, match="it spells 'I said all' as 'i said all'"):
            lexicons.build(ToolSymbols(), made, style.compact(3))

    def test_unsupported_tokenizers_are_refused(self):
        made = Tokenizer(models.WordPiece({"a": 0, "<|end|>": 1}, unk_token="a"))
        made.decoder = decoders.WordPiece()
        with pytest.raises(ValueError, match="neither byte-level BPE nor Sente"):
            lexicons.build(ToolSymbols(), made, style.compact(3))

    def test_unassigned_token_ids(self):
        """Some tokenizers skip token ids; these have no text."""
        fields = json.loads(helpers.tokenizer().to_str())
        last = helpers.tokenizer().get_vocab_size() + 3
        fields["model"]["vocab"]["~odd"] = last
        made = Tokenizer.from_str(json.dumps(fields))
        lexicon = lexicons.build(ToolSymbols(), made, style.compact(3))
        rows = [bytes(row) for row in helpers.ragged(lexicon.token_bytes)]
        holes = [i for i in range(last) if made.id_to_token(i) is None]
        assert holes and {rows[i] for i in holes} == {b"\0"}
        assert rows[last:] == [b"~odd"]

    def test_vocab_size_of_the_model(self):
        """Tokens that the tokenizer lacks have no text; a smaller model is refused."""
        size = helpers.tokenizer().get_vocab_size()
        args = ToolSymbols(), helpers.tokenizer(), style.compact(3)
        lexicon = lexicons.build(*args, vocab_size=size + 2)
        assert lexicon.vocab_size == size + 2
        assert helpers.ragged(lexicon.token_bytes)[-1].tolist() == [0]
        with pytest.raises(ValueError, match=f"it has {size} tokens, but the vocabul"):
            lexicons.build(*args, vocab_size=size - 1)

    def test_needs_the_end_token(self):
        with pytest.raises(ValueError, match="no token '<|end|>'"):
            lexicons.build(ToolSymbols(), Tokenizer(models.BPE()), style.compact(3))

    @pytest.mark.parametrize("max_text", [64, 300])
    def test_texts_of_any_length_are_written_and_some_are_found(self, max_text):
        table = ToolSymbols()
        long, short = table.one("ab " * 100), table.one("ab " * 21)
        form = style.compact(3)
        built = lexicons.build(table, helpers.tokenizer(), form, max_text=max_text)
        tokens, _, length = lexicons.write(built, jnp.array([short, long]), 512)
        assert helpers.spell(tokens[:length]) == "ab " * 121
        text = jnp.array(list(b"ab " * 121), jnp.uint8)
        begin, end = jnp.array([0, 63]), jnp.array([63, 363])
        found = lexicons.find(built, text, begin, end).tolist()
        assert found == [short, long if max_text == 300 else -1]
