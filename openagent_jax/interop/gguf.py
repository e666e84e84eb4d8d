"""GGUF files as folders in Hugging Face's layout, made once and kept.

The weights become float32: every quantisation is exact there, and any reader of
safetensors can load them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, processors
from tokenizers import normalizers as norm
from tokenizers import pre_tokenizers as pre

from openagent_jax.models import hf, rope
from openagent_jax.models.transformer import ModelConfig

CACHE = "~/.cache/openagent_jax/gguf"
VERSION = 1  # of what is made of a file: another one makes it anew
ARCHITECTURES = ("llama", "qwen2", "qwen3")
# Parts of names, there and in Hugging Face's layout.
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
ROPE_FACTORS = "rope_freqs.weight"  # what Llama 3.1 divides its frequencies by
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # types of tokens
# How a text is split before merges apply, by `tokenizer.ggml.pre`.
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {
    "llama-bpe": _WORDS + r"\p{N}{1,3}" + _REST,
    "qwen2": _WORDS + r"\p{N}" + _REST,
}
PLAIN = ("gpt-2", "default")


def folder(file: str | Path, cache: str | Path | None = None) -> Path:
    """The folder that a GGUF file stands for; it is made if it is not there yet.

    Raises:
      ValueError: names the file and the field that cannot be used.
    """
    file = Path(file).resolve()
    try:
        status = file.stat()
    except OSError:
        raise ValueError(f"{file}: no such file") from None
    seen = VERSION, str(file), status.st_size, status.st_mtime_ns, status.st_ctime_ns
    digest = hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
    made = Path(cache or CACHE).expanduser() / f"{file.stem}-{digest}"
    if not (made / hf.CONFIG_FILE).is_file():
        with hf.whole(made, replace=False) as making:
            _convert(file, making)
    return made


def _convert(file: Path, making: Path) -> None:
    try:
        import gguf
    except ImportError:
        raise ValueError(
            f'{file}: reading it needs the package gguf; pip install "gguf>=0.17"'
        ) from None
    try:
        reader = gguf.GGUFReader(file)
        fields = {name: field.contents() for name, field in reader.fields.items()}
    except Exception as error:  # it raises all sorts where a file is cut off
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"{file}: damaged, or no GGUF file: {reason}") from None
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    try:
        config = _config(fields, tensors)
        wanted = {x.name: (_name(x.name), x.shape) for x in hf.tensors(config)}
        _check(tensors, wanted)
        tokenizer = _tokenizer(fields)
        tokenizer.save(str(making / "tokenizer.json"))
        _write_settings(making, fields)
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

    hf.save_config(making, config)
    sizes = {name: 4 * int(np.prod(shape)) for name, (_, shape) in wanted.items()}
    hf.save_tensors(making, sizes, read)


def _config(fields: dict[str, Any], tensors: dict[str, Any]) -> ModelConfig:
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
    if (turned := get("rope.dimension_count", size)) != size:
        raise ValueError(
            f"{kind}.rope.dimension_count={turned} is not the head's {size}"
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
        # The file has the quotients alone; these are the settings of all Llama 3.
        factors = np.asarray(tensors[ROPE_FACTORS].data, np.float32)
        made = rope.Scaling("llama3", float(factors.max()), 8192, 1.0, 4.0)
        plain, slow = (
            np.asarray(rope.frequencies(size, theta, x)[0]) for x in (None, made)
        )
        if factors.shape != plain.shape or not np.allclose(plain / slow, factors, 1e-3):
            raise ValueError(f'tensor "{ROPE_FACTORS}" is not that of a Llama 3')
        return made
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
    for name, shape in wanted.values():
        if name not in tensors:
            raise ValueError(f'tensor "{name}" is missing')
        found = [int(n) for n in reversed(tensors[name].shape)]
        if found != list(shape):
            raise ValueError(
                f'tensor "{name}" has shape {found}, the fields ask for {list(shape)}'
            )
    known = {name for name, _ in wanted.values()} | {ROPE_FACTORS}
    if unknown := tensors.keys() - known:
        raise ValueError(f'tensor "{min(unknown)}" is unknown to this model')


def _name(name: str) -> str:
    """Of a tensor in the GGUF file, by its name in Hugging Face's layout."""
    if name in TENSORS:
        return TENSORS[name]
    _, _, layer, part = name.split(".", 3)
    part, kind = part.rsplit(".", 1)
    return f"blk.{layer}.{LAYER_TENSORS[part]}.{kind}"


def _unpermuted(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows of a head as halves; llama.cpp rotates pairs of neighbours."""
    size = x.shape[0] // num_heads
    pairs = x.reshape(num_heads, size // 2, 2, *x.shape[1:])
    return pairs.swapaxes(1, 2).reshape(x.shape)


def _tokenizer(fields: dict[str, Any]) -> Tokenizer:
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
    while types and types[-1] == UNUSED:  # rows of the embedding without a text
        tokens, types = tokens[:-1], types[:-1]
    vocab = {token: i for i, token in enumerate(tokens)}
    merges = [tuple(x.split(" ", 1)) for x in fields["tokenizer.ggml.merges"]]
    try:
        model = models.BPE(vocab, merges, ignore_merges=split == "llama-bpe")
    except Exception as error:  # it raises nothing more special
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


def _write_settings(making: Path, fields: dict[str, Any]) -> None:
    """What `transformers` wants to know besides: names, template, where a text ends."""
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
        (making / name).write_text(text + "\n", "utf-8")


def _token(fields: dict[str, Any], name: str) -> str:
    key, tokens = f"tokenizer.ggml.{name}_token_id", fields["tokenizer.ggml.tokens"]
    index = fields.get(key)
    if index is None or not 0 <= index < len(tokens):
        raise ValueError(f"{key}={index} is no token")
    return tokens[index]


def _shortest(x: float) -> float:
    """The float64 that prints as a float32 does: 1e-05, not 9.999999747e-06."""
    return float(str(np.float32(x)))
