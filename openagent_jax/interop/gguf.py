"""Convert GGUF files to folders in Hugging Face's layout, which are cached.

Weights are dequantised to float32, which any reader of safetensors can load.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

from openagent_jax.models import hf, hf_folder, rope
from openagent_jax.models.transformer import ModelConfig

CACHE = "~/.cache/openagent_jax/gguf"
VERSION = 1  # of the conversion; folders of other versions are not reused
ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Hugging Face's names of tensors -> the names in GGUF files.
LAYER_TENSORS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TENSORS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
TOKENS = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
ROPE_FACTORS = "rope_freqs.weight"  # the divisors of Llama 3.1's frequencies
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # token types
# Patterns that split a text before BPE merges, by `tokenizer.ggml.pre`.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "llama-bpe": _WORDS + r"\p{N}{1,3}" + _REST,
    "qwen2": _WORDS + r"\p{N}" + _REST,
}
PLAIN = ("gpt-2", "default")


def folder(file: str | Path, cache: str | Path | None = None) -> Path:
    """Return the folder of the converted model, converting it on the first call.

    Args:
      file: the GGUF file.
      cache: the parent of the folders; None means `CACHE`. A folder's name depends on
        the path, size and times of the file.

    Raises:
      ValueError: the file cannot be read, or has a field that is not supported; the
        message names the file and the field.
    """
    file = Path(file).resolve()
    try:
        status = file.stat()
    except OSError:
        raise ValueError(f"{file}: no such file") from None
    times = status.st_mtime_ns, status.st_ctime_ns
    identity = VERSION, str(file), status.st_size, *times
    digest = hashlib.sha256(repr(identity).encode()).hexdigest()[:16]
    made = Path(cache or CACHE).expanduser() / f"{file.stem}-{digest}"
    if not (made / hf.CONFIG_FILE).is_file():
        with hf_folder.atomic_folder(made, replace=False) as making:
            _convert(file, making)
    return made


def _convert(file: Path, out: Path) -> None:
    """Write the model, the tokenizer and their settings to a folder."""
    try:
        import gguf
    except ImportError:
        raise ValueError(
            f'{file}: reading it needs the package gguf: pip install "gguf>=0.17"'
        ) from None
    try:
        reader = gguf.GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # a truncated file can raise anything
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{file}: damaged, or not a GGUF file: {reason}") from None
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    try:
        config = _config(fields, tensors)
        wanted = {x.name: (_name(x.name), x.shape) for x in hf.tensors(config)}
        _check(tensors, wanted)
        tokenizer = _tokenizer(fields)
        tokenizer.save(str(out / "tokenizer.json"))
        _write_settings(out, fields)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    heads = {
        "self_attn.q_proj": config.num_heads,
        "self_attn.k_proj": config.num_kv_heads,
    }

    def read(name: str) -> np.ndarray:
        tensor = tensors[wanted[name][0]]
        x = gguf.dequantize(tensor.data, tensor.tensor_type)
        part = ".".join(name.split(".")[3:5])
        if fields["general.architecture"] == "llama" and part in heads:
            x = _unpermuted(x, heads[part])
        return np.ascontiguousarray(x, np.float32)

    hf.save_config(out, config)
    sizes = {name: 4 * int(np.prod(shape)) for name, (_, shape) in wanted.items()}
    hf.save_tensors(out, sizes, read)


def _config(fields: dict[str, Any], tensors: dict[str, Any]) -> ModelConfig:
    """Return the model config that the fields of the file describe."""
    kind = fields.get("general.architecture")
    if kind not in ARCHITECTURES:
        raise ValueError(
            f'general.architecture="{kind}" is not supported, only '
            + ", ".join(ARCHITECTURES)
        )

    def get(key: str, default: Any = None) -> Any:
        value = fields.get(f"{kind}.{key}", default)
        if value is None:
            raise ValueError(f"field {kind}.{key} is missing")
        return value

    if fields.get(f"{kind}.expert_count"):
        raise ValueError(f"{kind}.expert_count: mixtures of experts are not supported")
    if TENSORS["model.embed_tokens.weight"] not in tensors:
        raise ValueError('tensor "token_embd.weight" is missing')
    width, heads = int(get("embedding_length")), int(get("attention.head_count"))
    size = int(get("attention.key_length", width // heads))
    if (rotated := get("rope.dimension_count", size)) != size:
        raise ValueError(
            f"{kind}.rope.dimension_count={rotated} is not the head size, {size}"
        )
    theta = _shortest(get("rope.freq_base", 10_000.0))
    return ModelConfig(
        vocab_size=int(tensors["token_embd.weight"].shape[1]),
        width=width,
        num_layers=int(get("block_count")),
        num_heads=heads,
        num_kv_heads=int(get("attention.head_count_kv", heads)),
        head_size=size,
        mlp_width=int(get("feed_forward_length")),
        rope_theta=theta,
        rope_scaling=_scaling(fields, kind, size, theta, tensors),
        norm_eps=_shortest(get("attention.layer_norm_rms_epsilon")),
        tied=TENSORS["lm_head.weight"] not in tensors,
        max_positions=int(get("context_length")),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        qk_norm=kind == "qwen3",
    )


def _scaling(fields, kind, size, theta, tensors) -> rope.Scaling | None:
    name = fields.get(f"{kind}.rope.scaling.type", "none")
    if ROPE_FACTORS in tensors:
        # The file has only the factors; the other settings are those of Llama 3.
        factors = np.asarray(tensors[ROPE_FACTORS].data, np.float32)
        scaling = rope.Scaling("llama3", float(factors.max()), 8192, 1.0, 4.0)
        plain, slow = (
            np.asarray(rope.frequencies(size, theta, x)[0]) for x in (None, scaling)
        )
        if factors.shape != plain.shape or not np.allclose(plain / slow, factors, 1e-3):
            raise ValueError(
                f'tensor "{ROPE_FACTORS}" differs from that of Llama 3; no other RoPE '
                "factors are supported"
            )
        return scaling
    if name == "none":
        return None
    if name not in ("linear", "yarn"):
        raise ValueError(f'{kind}.rope.scaling.type="{name}" is not supported')
    factor = fields.get(f"{kind}.rope.scaling.factor")
    context = fields.get(f"{kind}.rope.scaling.original_context_length", 0)
    if not factor or (name == "yarn" and not context):
        raise ValueError(
            f"{kind}.rope.scaling: factor or original_context_length is missing"
        )
    return rope.Scaling(name, _shortest(factor), context if name == "yarn" else 0)


def _check(tensors: dict[str, Any], wanted: dict[str, tuple]) -> None:
    """Check that the file has exactly the tensors that the model needs.

    Raises:
      ValueError: a tensor is missing or unknown, or its shape is wrong.
    """
    for name, shape in wanted.values():
        if name not in tensors:
            raise ValueError(f'tensor "{name}" is missing')
        shape_in_file = [int(n) for n in reversed(tensors[name].shape)]
        if shape_in_file != list(shape):
            raise ValueError(
                f'tensor "{name}" has shape {shape_in_file}, but the fields require '
                f"{list(shape)}"
            )
    known = {name for name, _ in wanted.values()} | {ROPE_FACTORS}
    if unknown := tensors.keys() - known:
        raise ValueError(f'tensor "{min(unknown)}" is unknown to this model')


def _name(name: str) -> str:
    """Convert the name of a tensor in Hugging Face's layout to that in GGUF files.

    >>> _name("model.layers.3.self_attn.q_proj.weight")
    'blk.3.attn_q.weight'
    """
    if name in TENSORS:
        return TENSORS[name]
    _, _, layer, part = name.split(".", 3)
    part, kind = part.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_TENSORS[part]}.{kind}"


def _unpermuted(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorder the rows of each head for RoPE.

    llama.cpp rotates neighbouring channels, and we rotate channels (i, i + K/2).
    """
    size = x.shape[0] // num_heads
    pairs = x.reshape(num_heads, size // 2, 2, *x.shape[1:])
    return pairs.swapaxes(1, 2).reshape(x.shape)


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
    """Return the tokenizer that the fields of the file describe."""
    kind = fields.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise ValueError(f'tokenizer.ggml.model="{kind}" is not supported, only "gpt2"')
    split = fields.get("tokenizer.ggml.pre", "default")
    if split not in (known := [*PLAIN, "smollm", *SPLITS]):
        raise ValueError(
            f'tokenizer.ggml.pre="{split}" is not supported, only {", ".join(known)}'
        )
    for name in ("tokens", "token_type", "merges"):
        if f"tokenizer.ggml.{name}" not in fields:
            raise ValueError(f"field tokenizer.ggml.{name} is missing")
    tokens, types = (fields[f"tokenizer.ggml.{x}"] for x in ("tokens", "token_type"))
    while types and types[-1] == UNUSED:  # rows of the embedding without tokens
        tokens, types = tokens[:-1], types[:-1]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(x.split(" ", 1)) for x in fields["tokenizer.ggml.merges"]]
    try:
        model = models.BPE(vocab, merges, ignore_merges=split == "llama-bpe")
    except Exception as error:  # `tokenizers` raises no subclass
        raise ValueError(f"tokenizer.ggml.merges: {error}") from None
    tokenizer = Tokenizer(model)
    if split == "qwen2":
        tokenizer.normalizer = norm.NFC()
    if split == "smollm":
        first = [pre.Digits(individual_digits=True)]
    else:
        first = [pre.Split(Regex(SPLITS[x]), "isolated") for x in SPLITS if x == split]
    last = pre.ByteLevel(add_prefix_space=False, use_regex=split not in SPLITS)
    tokenizer.pre_tokenizer = pre.Sequence([*first, last])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind in (CONTROL, USER_DEFINED)
        ]
    )
    if fields.get("tokenizer.ggml.add_bos_token", split == "llama-bpe"):
        begin = _token(fields, "bos")
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, vocab[begin])]
        )
    return tokenizer


def _write_settings(out: Path, fields: dict[str, Any]) -> None:
    """Write the settings files of `transformers`: special tokens, chat template."""
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    ids = {}
    for ours, theirs in TOKENS.items():
        if (index := fields.get(f"tokenizer.ggml.{theirs}_token_id")) is not None:
            settings[f"{ours}_token"] = _token(fields, theirs)
            ids[f"{ours}_token_id"] = int(index)
    if template := fields.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    ids.pop("unk_token_id", None)
    for name, values in (
        ("tokenizer_config.json", settings),
        ("generation_config.json", ids),
    ):
        text = json.dumps(values, indent=2, ensure_ascii=False)
        (out / name).write_text(text + "\n", "utf-8")


def _token(fields: dict[str, Any], name: str) -> str:
    key, tokens = f"tokenizer.ggml.{name}_token_id", fields["tokenizer.ggml.tokens"]
    index = fields.get(key)
    if index is None or not 0 <= index < len(tokens):
        raise ValueError(f"{key}={index} is not a token")
    return tokens[index]


def _shortest(x: float) -> float:
    """Return the shortest float that rounds to a float32: 1e-05, not 9.99999975e-06."""
    return float(str(np.float32(x)))
