"""GGUF files: weights, rope scaling, tokenizer, and files that are refused."""

import dataclasses
import json
import os
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from openagent_jax.interop import gguf
from openagent_jax.models import hf, rope, transformer

writer = pytest.importorskip("gguf")

CONFIG = transformer.ModelConfig(
    vocab_size=300,
    width=64,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=16,
    mlp_width=96,
    rope_theta=5000.0,
    norm_eps=1e-3,
    max_positions=99,
)
CONFIGS = {
    "llama": CONFIG,
    "qwen2": dataclasses.replace(CONFIG, qkv_bias=True, tied=False),
    "qwen3": dataclasses.replace(CONFIG, qk_norm=True, head_size=32),
}
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL, PAD = "<tool_call>", "[PAD299]"
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ hello"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def tokens_and_types():
    letters = sorted(gguf.pre.ByteLevel.alphabet())
    words = [merge.replace(" ", "") for merge in MERGES]
    tokens = [*SPECIAL, *letters, *words, TOOL]
    types = [3] * len(SPECIAL) + [1] * (len(letters) + len(words)) + [4]
    unused = [f"[PAD{i}]" for i in range(len(tokens), CONFIG.vocab_size)]
    return tokens + unused, types + [5] * len(unused)


def random_params(config):
    shapes = jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))
    numbers = np.random.default_rng(0)
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(x.ndim < 2, 0.3, x.shape), x.dtype),
        shapes,
    )


def permuted(x, num_heads):
    """Reorder the rows of Llama's queries and keys as llama.cpp's converter does."""
    pairs = x.reshape(num_heads, 2, x.shape[0] // num_heads // 2, *x.shape[1:])
    return pairs.swapaxes(1, 2).reshape(x.shape)


def write(file, arch, tensors, quantised=False, without=(), **changes):
    """Write a GGUF file from tensors with Hugging Face's names."""
    config = CONFIGS[arch]
    tokens, types = tokens_and_types()
    fields = {
        f"{arch}.context_length": config.max_positions,
        f"{arch}.embedding_length": config.width,
        f"{arch}.block_count": config.num_layers,
        f"{arch}.feed_forward_length": config.mlp_width,
        f"{arch}.attention.head_count": config.num_heads,
        f"{arch}.attention.head_count_kv": config.num_kv_heads,
        f"{arch}.attention.key_length": config.head_size,
        f"{arch}.attention.layer_norm_rms_epsilon": config.norm_eps,
        f"{arch}.rope.freq_base": config.rope_theta,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": {"llama": "smollm"}.get(arch, "qwen2"),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.chat_template": TEMPLATE,
    } | {name.replace("__", "."): value for name, value in changes.items()}
    made = writer.GGUFWriter(file, fields.pop("named", arch))
    for name, value in fields.items():
        if value is None:
            continue
        if isinstance(value, list):
            made.add_array(name, value)
        else:
            kind = {int: "uint32", float: "float32", str: "string"}[type(value)]
            getattr(made, f"add_{kind}")(name, value)
    for name, x in tensors.items():
        part, theirs = name.split(".")[-2], gguf._name(name)
        x = np.asarray(x, np.float32)
        if arch == "llama" and part in ("q_proj", "k_proj"):
            heads = config.num_heads if part == "q_proj" else config.num_kv_heads
            x = permuted(x, heads)
        if theirs in without:
            continue
        kind = writer.GGMLQuantizationType.Q8_0
        if quantised and x.ndim == 2:
            x = writer.quantize(x, kind)
            made.add_tensor(theirs, x, raw_dtype=kind)
        else:
            made.add_tensor(theirs, x)
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


@pytest.fixture(scope="module")
def tensors(tmp_path_factory):
    """For each architecture, an exported folder and its tensors by name."""

    @lambda make: {arch: make(arch) for arch in CONFIGS}
    def made(arch):
        folder = tmp_path_factory.mktemp(arch)
        hf.save(folder, CONFIGS[arch], random_params(CONFIGS[arch]))
        return folder, hf.safetensors.numpy.load_file(folder / hf.WEIGHTS_FILE)

    return made


@pytest.mark.parametrize("arch", CONFIGS)
def test_plain_file_equals_folder(tensors, tmp_path, arch):
    folder, by_name = tensors[arch]
    write(tmp_path / "a.gguf", arch, by_name)
    made = gguf.folder(tmp_path / "a.gguf", tmp_path / "cache")
    (config, got), (_, expected) = hf.load(made), hf.load(folder)
    assert config == CONFIGS[arch]
    jax.tree.map(np.testing.assert_array_equal, got, expected)


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_quantised_file(tensors, tmp_path, arch):
    """The result equals the numbers quantised row by row and dequantised."""
    _, by_name = tensors[arch]
    write(tmp_path / "a.gguf", arch, by_name, quantised=True)
    got = hf.load(gguf.folder(tmp_path / "a.gguf", tmp_path / "cache"))[1]

    def coarse(x):  # Q8_0: blocks of 32 in a row, a float16 scale and 8 bits each
        if x.ndim < 2:
            return x
        blocks = x.reshape(-1, 32)
        scale = np.abs(blocks).max(1, keepdims=True) / 127
        steps = np.round(blocks / scale)
        return (steps * scale.astype(np.float16).astype(np.float32)).reshape(x.shape)

    hf.save_tensors(tmp_path, dict.fromkeys(by_name, 1), lambda x: coarse(by_name[x]))
    hf.save_config(tmp_path, CONFIGS[arch])
    expected = hf.load(tmp_path)[1]
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6),
        got,
        expected,
    )
    rough = np.abs(got["embed"] - by_name["model.embed_tokens.weight"]).max()
    assert 1e-4 < rough < 1e-2


def test_frequencies_of_llama_3(tensors, tmp_path):
    """The file has factors in place of the settings."""
    scaling = rope.Scaling("llama3", 32.0, 8192, 1.0, 4.0)
    plain, slow = (rope.frequencies(16, 5000.0, x)[0] for x in (None, scaling))
    factors = np.asarray(plain / slow)
    assert len(set(factors.tolist())) > 2
    _, by_name = tensors["llama"]

    def scaled(file, factors):
        made = dict(by_name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(gguf.TENSORS, "model.rope", gguf.ROPE_FACTORS)
            patch.setattr(gguf, "_name", partial(renamed, gguf._name))
            write(file, "llama", made | {"x.model.rope": factors})
        return gguf.folder(file, tmp_path / "cache")

    def renamed(name_of, name):
        return gguf.ROPE_FACTORS if name == "x.model.rope" else name_of(name)

    made = scaled(tmp_path / "a.gguf", factors)
    assert hf.load_config(made).rope_scaling == scaling
    with pytest.raises(ValueError, match='tensor "rope_freqs.weight" differs from'):
        scaled(tmp_path / "b.gguf", factors * np.arange(1, 9, dtype=np.float32))


def test_tokenizer(tensors, tmp_path):
    write(tmp_path / "a.gguf", "llama", tensors["llama"][1])
    made = gguf.folder(tmp_path / "a.gguf", tmp_path / "cache")
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    text = "<|im_start|>hello hello 12<tool_call>é<|im_end|>"
    pieces = tokenizer.encode(text).tokens
    assert pieces == [
        *[
            "<|im_start|>",
            "hello",
            "Ġhello",
            "Ġ",
            "1",
            "2",
            TOOL,
            "Ã",
            "©",
            "<|im_end|>",
        ]
    ]
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert tokenizer.decode(ids) == "hello hello 12<tool_call>é"
    assert tokenizer.token_to_id(PAD) is None
    settings = json.loads((made / "tokenizer_config.json").read_text())
    assert settings["chat_template"] == TEMPLATE
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(made)
    assert theirs(text)["input_ids"] == ids
    messages = [{"role": "user", "content": "hello"}]
    assert theirs.apply_chat_template(messages, tokenize=False).endswith("<|im_end|>")
    assert (theirs.bos_token, theirs.eos_token) == SPECIAL[1:]


@pytest.mark.parametrize(
    ("split", "text", "pieces"),
    [
        ("gpt-2", "a1234 b's\n\n x", ["a", "1234", "Ġb", "'s", "ĊĊ", "Ġx"]),
        ("smollm", "a12 b", ["a", "1", "2", "Ġb"]),
        ("qwen2", "a12 b'S\n\n x", ["a", "1", "2", "Ġb", "'S", "ĊĊ", "Ġx"]),
        ("llama-bpe", "a1234 (b)\n", ["a", "123", "4", "Ġ(", "b", ")Ċ"]),
    ],
)
def test_splits(split, text, pieces):
    """Texts are split before merges apply as the tokenizers' documentation says."""
    tokens, types = tokens_and_types()
    made = gguf._tokenizer(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": split,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": types,
            "tokenizer.ggml.merges": MERGES,
            "tokenizer.ggml.bos_token_id": 1,
        }
    )
    cut = [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str(text)]
    assert cut == pieces
    starts = made.encode("x").tokens[0] == "<|im_start|>"
    assert starts == (split == "llama-bpe")


def test_cache(tensors, tmp_path, monkeypatch):
    """A file is converted once, and again if it changes; no partial folder is left."""
    file, cache = tmp_path / "a.gguf", tmp_path / "cache"
    write(file, "llama", tensors["llama"][1])
    first = gguf.folder(file, cache)
    with monkeypatch.context() as patch:
        patch.setattr(gguf, "_convert", None)
        assert gguf.folder(file, cache) == first
    times = file.stat()
    write(file, "llama", tensors["llama"][1] | {"model.norm.weight": np.ones(64)})
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = gguf.folder(file, cache)
    assert second != first
    assert (hf.load(second)[1]["norm"] == 1).all()

    # If another process was faster, its folder is kept and used.
    convert = gguf._convert

    def overtaken(file, making):
        convert(file, making)
        os.rename(first, kept)
        monkeypatch.setattr(gguf, "_convert", convert)
        theirs.append((gguf.folder(file, cache) / hf.CONFIG_FILE).stat().st_ino)

    kept, theirs = tmp_path / "kept", []
    write(file, "llama", tensors["llama"][1])
    monkeypatch.setattr(gguf, "_convert", overtaken)
    third = gguf.folder(file, cache)
    assert theirs == [(third / hf.CONFIG_FILE).stat().st_ino]
    assert sorted(cache.iterdir()) == sorted([second, third])

    def killed(file, making):
        convert(file, making)
        raise KeyboardInterrupt

    monkeypatch.setattr(gguf, "_convert", killed)
    file.touch()
    with pytest.raises(KeyboardInterrupt):
        gguf.folder(file, cache)
    assert sorted(cache.iterdir()) == sorted([second, third])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"named": "gemma3"}, 'general.architecture="gemma3" is not supported, only'),
        ({"llama__block_count": None}, "field llama.block_count is missing"),
        ({"llama__block_count": 3}, 'tensor "blk.2.attn_norm.weight" is missing'),
        ({"llama__block_count": 1}, 'tensor "blk.1.attn_k.weight" is unknown'),
        ({"llama__feed_forward_length": 95}, 'tensor "blk.0.ffn_gate.*" has shape'),
        ({"llama__expert_count": 8}, "llama.expert_count: mixtures of experts"),
        ({"llama__rope__dimension_count": 8}, "rope.dimension_count=8 is not the head"),
        ({"llama__rope__scaling__type": "longrope"}, 'scaling.type="longrope" is not'),
        (
            {"llama__rope__scaling__type": "linear"},
            "rope.scaling: factor or .* missing",
        ),
        ({"tokenizer__ggml__pre": "tekken"}, 'tokenizer.ggml.pre="tekken" is not'),
        ({"tokenizer__ggml__model": "llama"}, 'tokenizer.ggml.model="llama" is not'),
        ({"tokenizer__ggml__merges": None}, "field tokenizer.ggml.merges is missing"),
        ({"tokenizer__ggml__merges": ["no such"]}, "tokenizer.ggml.merges: .*no"),
        ({"tokenizer__ggml__eos_token_id": 999}, "eos_token_id=999 is not a token"),
        ({"without": ["output_norm.weight"]}, 'tensor "output_norm.weight" is missing'),
    ],
)
def test_bad_files(tensors, tmp_path, change, message):
    write(tmp_path / "bad.gguf", "llama", tensors["llama"][1], **change)
    with pytest.raises(ValueError, match=f"bad.gguf: .*{message}") as error:
        gguf.folder(tmp_path / "bad.gguf", tmp_path / "cache")
    assert "\n" not in str(error.value)
    assert not list((tmp_path / "cache").iterdir())


def test_cut_off_files(tensors, tmp_path):
    file = tmp_path / "cut.gguf"
    write(file, "llama", tensors["llama"][1])
    data = file.read_bytes()
    for part in (
        data[:-1000],
        data[: len(data) // 2],
        data[:999],
        data[:3],
        b"",
        b"x" * 99,
    ):
        file.write_bytes(part)
        with pytest.raises(
            ValueError, match="cut.gguf: damaged, or not a GGUF"
        ) as error:
            gguf.folder(file, tmp_path / "cache")
        assert "\n" not in str(error.value)
    file.unlink()
    with pytest.raises(ValueError, match="cut.gguf: no such file"):
        gguf.folder(file, tmp_path / "cache")
