"""Load chat templates, rendered by `transformers` (the extra `hf`)."""

import json
from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.text import chat

BUILTIN = Path(chat.__file__).with_name("templates")
FILE, SETTINGS_FILE = "chat_template.jinja", "tokenizer_config.json"
# A fixed date, because templates that write the current date would change every day.
DATE = "26 Jul 2024"


def from_folder(folder: Path) -> str:
    """Return the chat template of a folder that `transformers` has written.

    Args:
      folder: the folder, with `tokenizer_config.json` or `chat_template.jinja`.

    Returns:
      The source of the template; "" if there is none. Of several templates, the one for
      tools is preferred to the default.

    Raises:
      ValueError: a file is damaged.
    """
    if (folder / FILE).is_file():
        return read_text(folder / FILE)
    file = folder / SETTINGS_FILE
    if not file.is_file():
        return ""
    try:
        source = json.loads(read_text(file)).get("chat_template") or ""
        if isinstance(source, list):
            by_name = {entry["name"]: entry["template"] for entry in source}
            source = by_name.get("tool_use") or by_name.get("default") or ""
    except (ValueError, KeyError, TypeError, AttributeError):
        problem = "it is not valid JSON with a readable chat_template"
        raise ValueError(f"{file}: {problem}") from None
    return source


def read_text(file: Path) -> str:
    """Return the text of a file.

    Raises:
      ValueError: the file is not UTF-8.
    """
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: {error}") from None


def load(
    tokenizer: Tokenizer, source: str, folder: Path | None = None
) -> chat.Template:
    """Return a chat template for a tokenizer.

    Its function `render` raises a ValueError if the template fails.

    Args:
      tokenizer: the tokenizer, whose special tokens the template can use.
      source: the text of the template.
      folder: the folder of the tokenizer, if it has one; its settings name the start
        and end tokens.

    Raises:
      ValueError: `transformers` is not installed.
    """
    try:
        import jinja2
        import transformers
    except ImportError:
        raise ValueError(
            'a chat template needs the package transformers: pip install -e ".[hf]"'
        ) from None
    fast_class = transformers.PreTrainedTokenizerFast
    if folder and (folder / SETTINGS_FILE).is_file():
        fast = fast_class.from_pretrained(folder)
    else:
        fast = fast_class(tokenizer_object=tokenizer)
    added = tokenizer.get_added_tokens_decoder().values()
    special = {token.content for token in added if token.special}

    def render(messages: chat.Messages, tools: list[dict], add_prompt: bool) -> str:
        try:
            text = fast.apply_chat_template(
                messages,
                tools=[*tools],
                chat_template=source,
                add_generation_prompt=add_prompt,
                tokenize=False,
                date_string=DATE,
            )
            return str(text)
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise ValueError(f"chat template: {error}") from error

    return chat.Template(render, special.__contains__)
