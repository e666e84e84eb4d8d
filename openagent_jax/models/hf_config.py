"""Convert between `ModelConfig` and the `config.json` of Hugging Face models.

Llama, Mistral, Qwen2 and Qwen3 are supported.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from openagent_jax.models import rope
from openagent_jax.models.transformer import ModelConfig

FILE = "config.json"
# Features that this decoder does not support, with the value that turns each of them
# off: first those of all model types, then those of each.
_UNSUPPORTED = {"hidden_act": "silu", "mlp_bias": False, "partial_rotary_factor": 1.0}
MODEL_TYPES = {
    "llama": {},
    "mistral": {"sliding_window": None},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"use_sliding_window": False},
}
ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
# The key in the file for each field of `rope.Scaling`.
_SCALING_KEYS = {
    "factor": "factor",
    "original_max_positions": "original_max_position_embeddings",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "beta_fast": "beta_fast",
    "beta_slow": "beta_slow",
    "attention_factor": "attention_factor",
}
# The fields that each kind of scaling has besides `factor`.
_FIELDS_BY_KIND = {
    "linear": ["factor"],
    "llama3": ["original_max_positions", "low_freq_factor", "high_freq_factor"],
    "yarn": ["original_max_positions", "beta_fast", "beta_slow", "attention_factor"],
}


def read(file: Path, **changes: Any) -> ModelConfig:
    """Read a `config.json`.

    Args:
      file: the path of the file.
      changes: fields of the `ModelConfig` to replace, such as `dtype`, which the file
        does not store.

    Raises:
      ValueError: the file is missing or not valid, or describes a model that is not
        supported; the message names the file and the key.
    """
    if not file.is_file():
        raise ValueError(
            f"{file}: no such file; the folder of a model has this file and "
            "model.safetensors"
        )
    try:
        fields = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not JSON: {error}") from error
    try:
        return dataclasses.replace(_parse(fields), **changes)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _parse(fields: Any) -> ModelConfig:
    """Convert the JSON object of the file."""
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    model_type = fields.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ValueError(
            f'model_type "{model_type}" is not supported, only '
            + ", ".join(f'"{name}"' for name in MODEL_TYPES)
        )
    for key, value in (_UNSUPPORTED | MODEL_TYPES[model_type]).items():
        if fields.get(key, value) != value:
            raise ValueError(f"{key}={fields[key]!r} is not supported")
    for kind in fields.get("layer_types") or ():
        if kind != "full_attention":
            raise ValueError(f'layer_types has "{kind}", which is not supported')

    def size(key: str, default: int | None = None) -> int:
        value = fields.get(key)
        value = default if value is None else value
        if value is None:
            raise ValueError(f"key '{key}' is missing")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{key}={value!r} is not a positive integer")
        return value

    # transformers 5 writes the settings of RoPE as a separate object.
    rope_parameters = fields.get("rope_parameters") or {}
    theta = rope_parameters.get("rope_theta", fields.get("rope_theta", 10_000.0))
    scaling = fields.get("rope_scaling") or rope_parameters
    heads = size("num_attention_heads")
    max_positions = size("max_position_embeddings", 2048)
    bias = bool(fields.get("attention_bias", False))
    return ModelConfig(
        vocab_size=size("vocab_size"),
        width=size("hidden_size"),
        num_layers=size("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=size("num_key_value_heads", heads),
        head_size=size("head_dim", size("hidden_size") // heads),
        mlp_width=size("intermediate_size"),
        rope_theta=_number("rope_theta", theta),
        rope_scaling=_read_scaling(scaling, max_positions),
        norm_eps=_number("rms_norm_eps", fields.get("rms_norm_eps", 1e-6)),
        tied=bool(fields.get("tie_word_embeddings", False)),
        max_positions=max_positions,
        qkv_bias=model_type == "qwen2" or bias,
        o_bias=model_type != "qwen2" and bias,
        qk_norm=model_type == "qwen3",
    )


def write(file: Path, config: ModelConfig) -> None:
    """Write the `config.json` of a model whose files have weights in `param_dtype`.

    Raises:
      ValueError: no architecture of Hugging Face computes the same function.
    """
    model_type = _model_type(config)
    scaling = config.rope_scaling
    fields = {
        "architectures": [ARCHITECTURES[model_type]],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "intermediate_size": config.mlp_width,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
        "torch_dtype": config.param_dtype,  # of the weights in the files
        "attention_bias": config.qkv_bias,
        "mlp_bias": False,
        "hidden_act": "silu",
        "rope_scaling": _scaling_fields(scaling) if scaling else None,
    }
    if model_type == "qwen2":  # it always has biases
        del fields["attention_bias"]
    if model_type != "llama":
        del fields["mlp_bias"]
    file.write_text(json.dumps(fields, indent=2) + "\n", "utf-8")


def _model_type(config: ModelConfig) -> str:
    """Return a `model_type` that computes the same function."""
    qkv, o, qk_norm = config.qkv_bias, config.o_bias, config.qk_norm
    if qkv and not o and not qk_norm:
        return "qwen2"
    if qkv != o:
        raise ValueError(
            f"no architecture of Hugging Face has qkv_bias={qkv}, o_bias={o} and "
            f"qk_norm={qk_norm}"
        )
    return "qwen3" if qk_norm else "llama"


def _read_scaling(fields: Any, max_positions: int) -> rope.Scaling | None:
    """Convert the JSON object of the scaling; None if it scales nothing."""
    if not isinstance(fields, dict):
        raise ValueError(f"rope_scaling={fields!r} is not an object")
    kind = fields.get("rope_type", fields.get("type", "default"))
    ignored = {"rope_type", "type", "rope_theta"}
    if kind == "default" and not fields.keys() - ignored:
        return None
    if kind not in rope.KINDS:
        raise ValueError(f"rope_scaling: rope_type={kind!r} is not supported")
    names = {_SCALING_KEYS[name]: name for name in ["factor", *_FIELDS_BY_KIND[kind]]}
    if unknown := fields.keys() - names.keys() - ignored:
        raise ValueError(f'rope_scaling: "{min(unknown)}" is not supported')
    needed = names.keys() if kind == "llama3" else {"factor"}
    if missing := needed - fields.keys():
        raise ValueError(f"rope_scaling: key '{min(missing)}' is missing")
    values = {
        name: _number(f"rope_scaling: {key}", fields[key])
        for key, name in names.items()
        if fields.get(key) is not None
    }
    context = max_positions if kind == "yarn" else 0
    context = int(values.pop("original_max_positions", context))
    return rope.Scaling(kind, original_max_positions=context, **values)


def _scaling_fields(scaling: rope.Scaling) -> dict[str, Any]:
    """Return the JSON object of a scaling."""
    names = dict.fromkeys(["factor", *_FIELDS_BY_KIND[scaling.kind]])
    fields = {_SCALING_KEYS[name]: getattr(scaling, name) for name in names}
    if not scaling.attention_factor:
        fields.pop("attention_factor", None)
    return {"rope_type": scaling.kind, **fields}


def _number(key: str, value: Any) -> float:
    """Return a positive number, or raise a `ValueError` that names its key."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ValueError(f"{key}={value!r} is not a positive number")
    return float(value)
