"""Chat templates as `transformers` renders them (the extra `hf`)."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.sandbox import chat

BUILTIN = Path(chat.__file__).with_name("templates")
FILE, SETTINGS_FILE = "chat_template.jinja", "tokenizer_config.json"
# Templates that write the date would make each day a task of its own.
DATE = "26 Jul 2024"


def own(folder: Path) -> str:
    """The chat template of a folder that `transformers` has written; "" if none.

    Of several it is that for tools.

    Raises:
      ValueError: a file is damaged.
    """
    if (folder / FILE).is_file():
        return text(folder / FILE)
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return ""
    try:
        found = json.loads(text(file)).get("chat_template") or ""
        if isinstance(found, list):
            by_name = {entry["name"]: entry["template"] for entry in found}
            found = by_name.get("tool_use") or by_name.get("default") or ""
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{file}: no JSON with a chat_template to be read") from None
    return found


def text(file: Path) -> str:
    """
    Raises:
      ValueError: it is no UTF-8.
    """
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error}") from None


def load(
    tokenizer: Tokenizer, source: str, folder: Path | None = None
) -> chat.Template:
    """A template that renders under a tokenizer.

    Args:
      tokenizer: whose special tokens it uses.
      source: the text of the template.
      folder: of the tokenizer; its settings name the marks of start and end.

    Raises:
      ValueError: `transformers` is not installed.
    """
    try:
        import jinja2
        import transformers
    except ImportError:
        raise ValueError(
            'chat template: it needs the package transformers; pip install -e ".[hf]"'
        ) from None
    kind = transformers.PreTrainedTokenizerFast
    if folder and (folder / SETTINGS_FILE).is_file():
        fast = kind.from_pretrained(folder)
    else:
        fast = kind(tokenizer_object=tokenizer)
    added = tokenizer.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}

    def render(messages: chat.Messages, tools: list[dict], speaks: bool) -> str:
        try:
            text = fast.apply_chat_template(
                messages,
                tools=[*tools],
                chat_template=source,
                add_generation_prompt=speaks,
                tokenize=False,
                date_string=DATE,
            )
            return str(text)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise ValueError(f"chat template: {error}") from error

    return chat.Template(render, special.__contains__)
