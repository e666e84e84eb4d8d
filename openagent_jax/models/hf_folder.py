"""Files of a model in Hugging Face's folder layout: names, index, atomic writing."""

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.models import hf_config

CONFIG_FILE = hf_config.FILE
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer.json"
AUXILIARY_FILES = (  # files that accompany the weights; they are copied unchanged
    TOKENIZER_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)


def weight_files(folder: Path) -> dict[Path, set[str]]:
    """Return the weight files of a model.

    Returns:
      The path of each file, with the names of the tensors that the index lists for it.
      A model with a single file needs no index, and its set is empty.

    Raises:
      ValueError: there are none, or the index is not valid.
    """
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
            raise ValueError(
                f'{index}: "{name}" is in {file!r}, which is not the name of a file'
            )
        files.setdefault(folder / file, set()).add(name)
    for file in files:
        if not file.is_file():
            raise ValueError(f"{file}: no such file, but {INDEX_FILE} names it")
    return files


def copy_auxiliary_files(source: Path, folder: Path) -> None:
    """Copy the files that accompany the weights from one model's folder to another's.

    These are the `AUXILIARY_FILES` that exist. The ids of special tokens in
    `config.json` are copied too, so the target must already have that file.

    Args:
      source: the folder to copy from.
      folder: the folder to copy to.
    """
    for name in AUXILIARY_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    if (source / CONFIG_FILE).is_file():
        old, new = (json.loads((x / CONFIG_FILE).read_text()) for x in (source, folder))
        new |= {key: value for key, value in old.items() if key.endswith("_token_id")}
        (folder / CONFIG_FILE).write_text(json.dumps(new, indent=2) + "\n", "utf-8")


def tokenizer_digest(folder: Path, num_tokens: int | None = None) -> str:
    """Return what identifies the tokens of a folder's tokenizer.

    Args:
      folder: the folder of a model.
      num_tokens: how many tokens to look at; None means all.

    Returns:
      The number of tokens and the SHA-256 of their texts, in the order of their ids, as
      in "600:9f86...". "" if the folder has no tokenizer.
    """
    file = folder / TOKENIZER_FILE
    if not file.is_file():
        return ""
    ids = Tokenizer.from_file(str(file)).get_vocab()
    tokens = sorted(ids, key=lambda token: ids[token])[:num_tokens]
    return f"{len(tokens)}:{hashlib.sha256(json.dumps(tokens).encode()).hexdigest()}"


def check_tokenizer(folder: Path, digest: str) -> None:
    """Check that a folder has the tokenizer that its weights were saved with.

    More tokens than it had may have been added since.

    Args:
      folder: the folder of a model.
      digest: what `tokenizer_digest` returned then.

    Raises:
      ValueError: it has another one.
    """
    now = tokenizer_digest(folder, int(digest.partition(":")[0]))
    if now not in ("", digest):
        raise ValueError(
            f"{folder / TOKENIZER_FILE} has other tokens than the tokenizer that the "
            "weights beside it were saved with; copy the folder again as a whole"
        )


@contextlib.contextmanager
def atomic_folder(folder: str | Path, replace: bool = True) -> Iterator[Path]:
    """Write a folder of a model atomically (a context manager).

    It yields an empty temporary folder. If the block succeeds, that becomes `folder`;
    if it raises, the temporary folder is removed and `folder` stays as it was.

    Args:
      folder: the final path. If the folder already exists, old weights and files with
        the same names are replaced, and other files stay. While files are being
        replaced, the folder has no `config.json`.
      replace: whether to replace files in a folder that already has some; if False,
        such a folder stays as it is.

    >>> import tempfile
    >>> parent = tempfile.TemporaryDirectory()
    >>> with atomic_folder(Path(parent.name, "model")) as folder:
    ...     _ = Path(folder, "config.json").write_text("{}")
    >>> [str(x.relative_to(parent.name)) for x in Path(parent.name).rglob("*.*")]
    ['model/config.json']
    >>> parent.cleanup()
    """
    folder = Path(folder).resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    temporary.mkdir()
    try:
        yield temporary
        try:
            os.replace(temporary, folder)
        except OSError:
            if not folder.is_dir():
                raise
            if replace:
                _replace_files(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _replace_files(new: Path, folder: Path) -> None:
    """Move the files of a new model into a folder that has an old one.

    `config.json` is removed first and added last: a folder without it is not a model.
    """
    (folder / CONFIG_FILE).unlink(missing_ok=True)
    for pattern in ("model*.safetensors", INDEX_FILE):
        for file in folder.glob(pattern):
            file.unlink()
    for file in sorted(new.iterdir(), key=lambda file: file.name == CONFIG_FILE):
        os.replace(file, folder / file.name)
