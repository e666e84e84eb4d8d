"""Weights in Hugging Face's Llama layout: `config.json` and `model.safetensors`.

Torch is not needed. There each linear weight is `[out, in]` and each layer has its
own tensors; here they are `[in, out]` and stacked.
"""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from openagent_jax.models import transformer
from openagent_jax.types import Params

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"

LAYER_TENSORS = {
    "attention_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "mlp_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
# What a Llama may have and this decoder has not, with the value that means "none".
UNSUPPORTED = {
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "rope_scaling": None,
}


def save(folder: str | Path, config: transformer.ModelConfig, params: Params) -> None:
    """Write a folder that `transformers.LlamaForCausalLM.from_pretrained` reads."""
    save_config(folder, config)
    tensors = {}
    for name, path, layer in _tensors(config):
        x = _at(params, path)
        x = np.asarray(x if layer is None else x[layer], np.float32)
        tensors[name] = np.ascontiguousarray(x.T if _is_linear(path) else x)
    file = Path(folder) / WEIGHTS_FILE
    safetensors.numpy.save_file(tensors, file, {"format": "pt"})


def save_config(folder: str | Path, config: transformer.ModelConfig) -> None:
    """Write `config.json` alone."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    fields = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
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
        "torch_dtype": "float32",  # of the file
        **UNSUPPORTED,
    }
    (folder / CONFIG_FILE).write_text(json.dumps(fields, indent=2) + "\n")


def load(folder: str | Path, **changes: Any) -> tuple[transformer.ModelConfig, Params]:
    """Read what `save`, or `transformers`, has written.

    Args:
      changes: fields of the `ModelConfig` that the folder does not know, as `dtype`.
    """
    folder = Path(folder)
    config = load_config(folder, **changes)
    shapes = jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))
    file = folder / WEIGHTS_FILE
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        tensors = safetensors.numpy.load_file(file)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file}: {error}") from error

    stacks: dict[tuple[str, ...], list] = {}
    for name, path, layer in _tensors(config):
        if name not in tensors:
            raise ValueError(f'{file}: tensor "{name}" is missing')
        x = tensors.pop(name)
        shape = _at(shapes, path).shape[0 if layer is None else 1 :]
        expected = shape[::-1] if _is_linear(path) else shape
        if x.shape != expected:
            raise ValueError(
                f'{file}: tensor "{name}" has shape {list(x.shape)}, '
                f"config.json asks for {list(expected)}"
            )
        x = x.astype(np.float32)
        stacks.setdefault(path, []).append(x.T if _is_linear(path) else x)
    tensors.pop("lm_head.weight", None)  # some files repeat a tied embedding
    if unknown := [name for name in tensors if not name.endswith("inv_freq")]:
        raise ValueError(f'{file}: tensor "{min(unknown)}" is not of a plain Llama')

    params: Params = {"layers": {}}
    for path, arrays in stacks.items():
        stacked = path[0] == "layers"
        _at(params, path[:-1])[path[-1]] = jnp.asarray(
            np.stack(arrays) if stacked else arrays[0]
        )
    return config, params


def load_config(folder: str | Path, **changes: Any) -> transformer.ModelConfig:
    """Read `config.json` alone."""
    file = Path(folder) / CONFIG_FILE
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    try:
        fields = json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file}: not JSON: {error}") from error
    if fields.get("model_type") != "llama":
        raise ValueError(
            f'{file}: model_type "{fields.get("model_type")}" is not supported, '
            'only "llama"'
        )
    # transformers 5 writes the rotation as a group of its own.
    rope = fields.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise ValueError(f"{file}: rope_type={rope['rope_type']!r} is not supported")
    for key, value in UNSUPPORTED.items():
        if fields.get(key, value) != value:
            raise ValueError(f"{file}: {key}={fields[key]!r} is not supported")
    try:
        heads = fields["num_attention_heads"]
        settings = dict(
            vocab_size=fields["vocab_size"],
            width=fields["hidden_size"],
            num_layers=fields["num_hidden_layers"],
            num_heads=heads,
            num_kv_heads=fields.get("num_key_value_heads") or heads,
            head_size=fields.get("head_dim") or fields["hidden_size"] // heads,
            mlp_width=fields["intermediate_size"],
            rope_theta=rope.get("rope_theta", fields.get("rope_theta", 10_000.0)),
            norm_eps=fields.get("rms_norm_eps", 1e-6),
            tied=fields.get("tie_word_embeddings", False),
            max_positions=fields.get("max_position_embeddings", 2048),
        )
    except KeyError as error:
        raise ValueError(f"{file}: key {error} is missing") from error
    return transformer.ModelConfig(**settings | changes)


def _tensors(config):
    """(name in the file, path in the parameters, layer or None) of every tensor."""
    yield "model.embed_tokens.weight", ("embed",), None
    for layer in range(config.num_layers):
        for ours, theirs in LAYER_TENSORS.items():
            yield f"model.layers.{layer}.{theirs}.weight", ("layers", ours), layer
    yield "model.norm.weight", ("norm",), None
    if not config.tied:
        yield "lm_head.weight", ("head",), None


def _is_linear(path) -> bool:
    return path[-1] in ("q", "k", "v", "o", "gate", "up", "down", "head")


def _at(tree, path):
    for key in path:
        tree = tree[key]
    return tree
