"""Folders in Hugging Face's layout: `config.json`, weights, files of a tokenizer.

Torch is not needed. There each linear weight is `[out, in]` and each layer has its
own tensors; here they are `[in, out]` and stacked.
"""

import contextlib
import json
import math
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors
import safetensors.numpy

from openagent_jax.models import hf_config, placing, transformer
from openagent_jax.types import Params

CONFIG_FILE = hf_config.FILE
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
COMPANIONS = (  # what goes with weights, and is copied as it is
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
MAX_SHARD = 5 * 10**9  # bytes of a file of weights
DTYPES = ("F32", "F16", "BF16")
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
    """One of a file, and its place in the parameters."""

    name: str
    path: tuple[str, ...]
    layer: int | None  # None: it is no part of a stack
    shape: tuple[int, ...]  # in the file

    @property
    def is_linear(self) -> bool:
        return self.path[-1] in ("q", "k", "v", "o", "gate", "up", "down", "head")


def load(
    folder: str | Path, shardings: Any = None, **changes: Any
) -> tuple[transformer.ModelConfig, Params]:
    """Read what `save`, or `transformers`, has written.

    Args:
      shardings: a `NamedSharding` for each parameter; None is the default device.
      changes: fields of the `ModelConfig` that the folder does not know, as `dtype`.
    """
    config = load_config(folder, **changes)
    files, shapes = check(folder, config), _shapes(config)
    params: Params = {"layers": {}}
    for file, found in files.items():
        with _opened(file) as opened:
            for tensor in found:
                *branch, leaf = tensor.path
                sharding = _at(shardings, tensor.path) if shardings else None
                if leaf not in _at(params, branch):
                    like = _at(shapes, tensor.path)
                    _at(params, branch)[leaf] = placing.empty(like, sharding)
                _at(params, branch)[leaf] = placing.write(
                    _at(params, tensor.path),
                    opened.get_slice(tensor.name),
                    sharding,
                    tensor.layer,
                    tensor.is_linear,
                )
    return config, params


def load_config(folder: str | Path, **changes: Any) -> transformer.ModelConfig:
    """Read `config.json` alone."""
    return hf_config.read(Path(folder) / CONFIG_FILE, **changes)


def check(
    folder: str | Path, config: transformer.ModelConfig
) -> dict[Path, list[Tensor]]:
    """Which file has which tensors; nothing but their headers is read.

    Raises:
      ValueError: names the file and what is wrong with it.
    """
    expected = {tensor.name: tensor for tensor in tensors(config)}
    files: dict[Path, list[Tensor]] = {}
    for file, promised in _weight_files(Path(folder)).items():
        with _opened(file) as opened:
            names = set(opened.keys())
            if missing := promised - names:
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
                    continue  # some files repeat a tied embedding
                tensor, found = expected.pop(name), opened.get_slice(name)
                if found.get_dtype() not in DTYPES:
                    raise ValueError(
                        f'{file}: tensor "{name}" has dtype {found.get_dtype()}; only '
                        f"{', '.join(DTYPES)} can be read"
                    )
                if found.get_shape() != list(tensor.shape):
                    raise ValueError(
                        f'{file}: tensor "{name}" has shape {found.get_shape()}, '
                        f"{CONFIG_FILE} asks for {list(tensor.shape)}"
                    )
                files.setdefault(file, []).append(tensor)
    if expected:
        (one,) = [file] if len(files) == 1 else [Path(folder) / INDEX_FILE]
        raise ValueError(f'{one}: tensor "{next(iter(expected))}" is missing')
    return files


def save(
    folder: str | Path,
    config: transformer.ModelConfig,
    params: Params,
    companions: Path | None = None,
) -> None:
    """Write a folder that `transformers` loads, whole or not at all.

    Args:
      companions: the folder from which the tokenizer and its like are copied.
    """
    by_name = {tensor.name: tensor for tensor in tensors(config)}
    dtype = np.dtype(config.param_dtype)

    def read(name: str) -> np.ndarray:
        tensor = by_name[name]
        x = _at(params, tensor.path)
        x = np.asarray(x if tensor.layer is None else x[tensor.layer]).astype(dtype)
        return np.ascontiguousarray(x.T if tensor.is_linear else x)

    with whole(folder) as made:
        save_config(made, config)
        if companions is not None:
            copy_companions(companions, made)
        sizes = {x.name: math.prod(x.shape) * dtype.itemsize for x in by_name.values()}
        save_tensors(made, sizes, read)


def save_config(folder: Path, config: transformer.ModelConfig) -> None:
    """Write `config.json` alone."""
    hf_config.write(folder / CONFIG_FILE, config)


def tensors(config: transformer.ModelConfig) -> list[Tensor]:
    """All that a folder of this model has, in the order of a file."""
    return list(_tensors(config, _shapes(config)))


def save_tensors(
    folder: Path, sizes: Mapping[str, int], read: Callable[[str], np.ndarray]
) -> None:
    """Write tensors, by the size in bytes of each, to files of at most `MAX_SHARD`."""
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
        of = {name: file for file, names in pairs for name in names}
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": of}
        (folder / INDEX_FILE).write_text(json.dumps(index, indent=2) + "\n", "utf-8")
    for name, names in zip(files, shards, strict=True):
        file = folder / name
        file.touch()
        mode = file.stat().st_mode  # what is usual here; safetensors hides its files
        arrays = {name: read(name) for name in names}
        safetensors.numpy.save_file(arrays, file, {"format": "pt"})
        file.chmod(mode)


def copy_companions(source: Path, folder: Path) -> None:
    """What goes with weights, from one folder to another: files of the tokenizer, and
    the special tokens that `config.json` names."""
    for name in COMPANIONS:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (source / CONFIG_FILE).is_file():
        old, new = (json.loads((x / CONFIG_FILE).read_text()) for x in (source, folder))
        new |= {key: value for key, value in old.items() if key.endswith("_token_id")}
        (folder / CONFIG_FILE).write_text(json.dumps(new, indent=2) + "\n", "utf-8")


@contextlib.contextmanager
def whole(folder: str | Path, replace: bool = True) -> Iterator[Path]:
    """A folder to fill, which becomes `folder` at the end or not at all.

    In a folder that is there, files of the same names and old weights give way; for
    that moment it has no `config.json`. With `replace=False` it stays as it is.
    """
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    made.mkdir()
    try:
        yield made
        try:
            os.replace(made, folder)
        except OSError:
            if not folder.is_dir():
                raise
            if replace:
                _move(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _move(made: Path, folder: Path) -> None:
    (folder / CONFIG_FILE).unlink(missing_ok=True)
    for pattern in ("model*.safetensors", INDEX_FILE):
        for file in folder.glob(pattern):
            file.unlink()
    for file in sorted(made.iterdir(), key=lambda file: file.name == CONFIG_FILE):
        os.replace(file, folder / file.name)


def _weight_files(folder: Path) -> dict[Path, set[str]]:
    """The files of weights, with the tensors that the index promises of each."""
    if (folder / WEIGHTS_FILE).is_file():
        return {folder / WEIGHTS_FILE: set()}
    index = folder / INDEX_FILE
    if not index.is_file():
        raise ValueError(f"{folder / WEIGHTS_FILE}: no such file, nor {INDEX_FILE}")
    try:
        pairs = json.loads(index.read_text("utf-8"))["weight_map"].items()
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValueError(f'{index}: not a JSON object with a "weight_map"') from None
    files: dict[Path, set[str]] = {}
    for name, file in pairs:
        if not isinstance(file, str) or Path(file).name != file:
            raise ValueError(f'{index}: "{name}" is in {file!r}, no name of a file')
        files.setdefault(folder / file, set()).add(name)
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file}: no such file, but {INDEX_FILE} names it")
    return files


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(file, "np") as opened:
            yield opened
    except safetensors.SafetensorError as error:
        raise ValueError(f"{file}: {error}") from error


def _tensors(config: transformer.ModelConfig, shapes: Params) -> Iterator[Tensor]:
    def tensor(name, *path, layer=None):
        shape = _at(shapes, path).shape[0 if layer is None else 1 :]
        found = Tensor(name, path, layer, shape)
        return found._replace(shape=shape[::-1]) if found.is_linear else found

    yield tensor("model.embed_tokens.weight", "embed")
    for layer in range(config.num_layers):
        for ours, theirs in LAYER_TENSORS.items():
            if ours in shapes["layers"]:
                name = f"model.layers.{layer}.{theirs}"
                yield tensor(name, "layers", ours, layer=layer)
    yield tensor("model.norm.weight", "norm")
    if not config.tied:
        yield tensor("lm_head.weight", "head")


def _shapes(config: transformer.ModelConfig) -> Params:
    return jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))


def _at(tree, path):
    for key in path:
        tree = tree[key]
    return tree
