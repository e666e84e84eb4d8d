"""Read the tokenizer and the chat template in a model's folder."""

from pathlib import Path

from tokenizers import Tokenizer

from launch.common import errors
from launch.common.errors import UsageError
from openagent_jax.interop import chat_template

TEMPLATES = sorted(file.stem for file in chat_template.BUILTIN.glob("*.jinja"))
SLOW_TOKENIZERS = ("tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")


def tokenizer(folder: Path) -> Tokenizer:
    """Load `tokenizer.json`.

    Raises:
      UsageError: there is none, or it cannot be read.
    """
    file = folder / "tokenizer.json"
    slow = [name for name in SLOW_TOKENIZERS if (folder / name).is_file()]
    if not file.is_file() and slow:
        raise UsageError(
            f"{file}: no such file, only that of a slow tokenizer, {slow[0]}; save the "
            "fast one there: transformers.AutoTokenizer.from_pretrained(folder)"
            ".save_pretrained(folder)"
        )
    if not file.is_file():
        raise UsageError(f"{file}: no such file; a backbone needs its tokenizer")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # tokenizers raises nothing more specific
        raise UsageError(f"{file}: {error}") from None


def template(folder: Path, name: str = "") -> str:
    """Return the chat template of a model, in Jinja; "" for our compact style.

    Args:
      folder: the folder of the model, or the `model` folder of a run.
      name: the value of `model.chat_template`: "" for the model's own, "compact", a
        builtin template, or a file. A run keeps the template that it was trained with.

    Raises:
      UsageError: there is no such template, or it cannot be read.
    """
    with errors.blame("model.chat_template"):
        own = chat_template.from_folder(folder)
    if not name or (own and (folder.parent / "checkpoints").is_dir()):
        return own
    if name == "compact":
        return ""
    builtin = chat_template.BUILTIN / f"{name}.jinja"
    file = builtin if builtin.is_file() else Path(name).expanduser()
    if not file.is_file():
        raise UsageError(
            f'model.chat_template="{name}" is neither a file nor one of compact, '
            + ", ".join(TEMPLATES)
        )
    with errors.blame("model.chat_template"):
        return chat_template.read_text(file)
