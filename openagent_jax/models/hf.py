"""Load and save models in Hugging Face's folder layout, without torch.

A folder has `config.json`, weights in one or more safetensors files, and the files of a
tokenizer. In the files, linear weights are `[out, in]` and each layer has its own
tensors; here, weights are `[in, out]` and the layers are stacked.
"""

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from openagent_jax.models import hf_config, hf_folder, transformer, weight_loading
from openagent_jax.models.hf_folder import CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE
from openagent_jax.types import Params

MAX_SHARD = 5 * 10**9  # the largest size of a weight file, in bytes
DTYPES = ("F32", "F16", "BF16")
TOKENIZER = "tokenizer"  # key in the metadata of a file that `save` wrote
# Our name for each weight of a layer, and its name in the files.
LAYER_TENSORS = {
    "attention_norm": "input_layernorm.weight",
    "q": "self_attn.q_proj.weight",
    "k": "self_attn.k_proj.weight",
    "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight",
    "q_bias": "self_attn.q_proj.bias",
    "k_bias": "self_attn.k_proj.bias",
    "v_bias": "self_attn.v_proj.bias",
    "o_bias": "self_attn.o_proj.bias",
    "q_norm": "self_attn.q_norm.weight",
    "k_norm": "self_attn.k_norm.weight",
    "mlp_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight",
    "up": "mlp.up_proj.weight",
    "down": "mlp.down_proj.weight",
}


class Tensor(NamedTuple):
    """A tensor of a file, and its place in the parameters.

    Attributes:
      name: its name in the file.
      path: the keys of the array in the nested dict of parameters.
      layer: its index on the leading axis of that array; None if the array has no axis
        of layers.
      shape: its shape in the file.
    """

    name: str
    path: tuple[str, ...]
    layer: int | None
    shape: tuple[int, ...]

    @property
    def is_linear(self) -> bool:
        """Whether it is the weight of a linear map, which is transposed in the file."""
        return self.path[-1] in ("q", "k", "v", "o", "gate", "up", "down", "head")


def load(
    folder: str | Path, shardings: Any = None, **changes: Any
) -> tuple[transformer.ModelConfig, Params]:
    """Load a model that was written by `save` or by the library `transformers`.

    The weights are read chunk by chunk onto the devices that hold them.

    Args:
      folder: the folder of the model.
      shardings: the tree of the parameters with a `NamedSharding` for each array; None
        means the default device.
      changes: fields of the `ModelConfig` to replace, such as `dtype`, which the folder
        does not store.

    Returns:
      The config and the parameters.

    Raises:
      ValueError: a file is missing, damaged or not supported; the message names it.
    """
    config = load_config(folder, **changes)
    files, shapes = check(folder, config), transformer.shapes(config)
    params: Params = {"layers": {}}
    for file, file_tensors in files.items():
        with _open_weights(file) as opened:
            for tensor in file_tensors:
                *parent_path, leaf = tensor.path
                parent = _get(params, parent_path)
                sharding = _get(shardings, tensor.path) if shardings else None
                if leaf not in parent:
                    like = _get(shapes, tensor.path)
                    parent[leaf] = weight_loading.allocate(like, sharding)
                parent[leaf] = weight_loading.write_tensor(
                    parent[leaf],
                    opened.get_slice(tensor.name),
                    sharding,
                    tensor.layer,
                    tensor.is_linear,
                )
    return config, params


def load_config(folder: str | Path, **changes: Any) -> transformer.ModelConfig:
    """Load `config.json` alone; see `load`."""
    return hf_config.read(Path(folder) / CONFIG_FILE, **changes)


def check(
    folder: str | Path, config: transformer.ModelConfig
) -> dict[Path, list[Tensor]]:
    """Check the weights of a folder against a config, without reading their values.

    Args:
      folder: the folder of the model.
      config: the config that the weights must match.

    Returns:
      The tensors in each file.

    Raises:
      ValueError: a tensor is missing or unknown, or its shape or dtype is wrong; the
        message names the file and the tensor. Or the tokenizer is not the one that
        `save` wrote beside the weights.
    """
    expected = {tensor.name: tensor for tensor in tensors(config)}
    files: dict[Path, list[Tensor]] = {}
    stored_in = hf_folder.weight_files(Path(folder))
    for file, indexed in stored_in.items():
        with _open_weights(file) as opened:
            if saved_with := (opened.metadata() or {}).get(TOKENIZER):
                hf_folder.check_tokenizer(Path(folder), saved_with)
            names = set(opened.keys())
            if missing := indexed - names:
                raise ValueError(
                    f'{file}: tensor "{min(missing)}" is missing; {INDEX_FILE} says '
                    "that it is here"
                )
            for name in sorted(names):
                if name not in expected:
                    if not name.endswith("inv_freq") and name != "lm_head.weight":
                        raise ValueError(
                            f'{file}: tensor "{name}" is unknown to the model that '
                            f"{CONFIG_FILE} describes"
                        )
                    continue  # a RoPE buffer, or a copy of a tied embedding
                tensor, stored = expected.pop(name), opened.get_slice(name)
                if stored.get_dtype() not in DTYPES:
                    raise ValueError(
                        f'{file}: tensor "{name}" has dtype {stored.get_dtype()}; only '
                        f"{', '.join(DTYPES)} can be read"
                    )
                if stored.get_shape() != list(tensor.shape):
                    raise ValueError(
                        f'{file}: tensor "{name}" has shape {stored.get_shape()}, but '
                        f"{CONFIG_FILE} requires {list(tensor.shape)}"
                    )
                files.setdefault(file, []).append(tensor)
    if expected:
        single = len(stored_in) == 1
        where = next(iter(stored_in)) if single else Path(folder) / INDEX_FILE
        raise ValueError(f'{where}: tensor "{next(iter(expected))}" is missing')
    return files


def save(
    folder: str | Path,
    config: transformer.ModelConfig,
    params: Params,
    auxiliary_from: Path | None = None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Save a model in a folder that the library `transformers` can load.

    The folder is written atomically; see `hf_folder.atomic_folder`.

    Args:
      folder: the folder to write.
      config: the model. Weights are written in its `param_dtype`.
      params: its parameters, without adapters.
      auxiliary_from: a folder from which the tokenizer and the other `AUXILIARY_FILES`
        are copied.
      more: the texts of further files, by name.

    Raises:
      ValueError: no architecture of Hugging Face computes the same function.
    """
    by_name = {tensor.name: tensor for tensor in tensors(config)}
    dtype = np.dtype(config.param_dtype)

    def read(name: str) -> np.ndarray:
        tensor = by_name[name]
        x = _get(params, tensor.path)
        x = np.asarray(x if tensor.layer is None else x[tensor.layer]).astype(dtype)
        return np.ascontiguousarray(x.T if tensor.is_linear else x)

    with hf_folder.atomic_folder(folder) as new:
        save_config(new, config)
        if auxiliary_from is not None:
            hf_folder.copy_auxiliary_files(auxiliary_from, new)
        for name, text in more.items():
            (new / name).write_text(text, "utf-8")
        sizes = {x.name: math.prod(x.shape) * dtype.itemsize for x in by_name.values()}
        digest = hf_folder.tokenizer_digest(new)
        save_tensors(new, sizes, read, {TOKENIZER: digest} if digest else {})


def save_config(folder: Path, config: transformer.ModelConfig) -> None:
    """Write `config.json` alone; see `save`."""
    hf_config.write(folder / CONFIG_FILE, config)


def tensors(config: transformer.ModelConfig) -> list[Tensor]:
    """Return the tensors that the files of a model must have, in order."""
    return list(_tensors(config, transformer.shapes(config)))


def save_tensors(
    folder: Path,
    sizes: Mapping[str, int],
    read: Callable[[str], np.ndarray],
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write tensors to files of at most `MAX_SHARD` bytes, with an index if several.

    A larger tensor has a file of its own.

    Args:
      folder: the folder of the files.
      sizes: the size of each tensor in bytes, by name.
      read: returns the tensor of a name; called once for each, file by file.
      metadata: strings to write at the beginning of each file.
    """
    shards: list[list[str]] = [[]]
    for name, size in sizes.items():
        if shards[-1] and sum(sizes[x] for x in shards[-1]) + size > MAX_SHARD:
            shards.append([])
        shards[-1].append(name)
    files = [WEIGHTS_FILE]
    if len(shards) > 1:
        num = len(shards)
        files = [f"model-{i + 1:05}-of-{num:05}.safetensors" for i in range(num)]
        pairs = zip(files, shards, strict=True)
        weight_map = {name: file for file, names in pairs for name in names}
        total = {"total_size": sum(sizes.values())}
        index = {"metadata": total, "weight_map": weight_map}
        (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", "utf-8")
    for name, names in zip(files, shards, strict=True):
        file = folder / name
        # safetensors makes files that only their owner can read; keep the usual mode.
        file.touch()
        mode = file.stat().st_mode
        arrays = {name: read(name) for name in names}
        safetensors.numpy.save_file(arrays, file, {"format": "pt", **metadata})
        file.chmod(mode)


@contextlib.contextmanager
def _open_weights(file: Path) -> Iterator[Any]:
    """Open a safetensors file; errors name the file."""
    try:
        with safetensors.safe_open(file, "np") as opened:
            yield opened
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file}: {error}") from error


def _tensors(config: transformer.ModelConfig, shapes: Params) -> Iterator[Tensor]:
    """Yield the tensors of a model with parameters of these shapes."""

    def tensor(name, *path, layer=None):
        shape = _get(shapes, path).shape[0 if layer is None else 1 :]
        made = Tensor(name, path, layer, shape)
        return made._replace(shape=shape[::-1]) if made.is_linear else made

    yield tensor("model.embed_tokens.weight", "embed")
    for layer in range(config.num_layers):
        for ours, theirs in LAYER_TENSORS.items():
            if ours in shapes["layers"]:
                name = f"model.layers.{layer}.{theirs}"
                yield tensor(name, "layers", ours, layer=layer)
    yield tensor("model.norm.weight", "norm")
    if not config.tied:
        yield tensor("lm_head.weight", "head")


def _get(tree, path):
    """Return the value at a path of keys in nested dicts."""
    for key in path:
        tree = tree[key]
    return tree
