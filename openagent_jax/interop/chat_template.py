"""Chat templates as `transformers` renders them (the extra `hf`)."""

from pathlib import Path

from tokenizers import Tokenizer

from openagent_jax.sandbox import chat

BUILTIN = Path(chat.__file__).with_name("templates")
# Templates that write the date would make each day a task of its own.
DATE = "26 Jul 2024"


def own(folder: Path) -> str | None:
    """The chat template of a folder that `transformers` has written, if it has one."""
    return _tokenizer(folder).chat_template


def load(
    tokenizer: Tokenizer, source: str, folder: Path | None = None
) -> chat.Template:
    """A template that renders under a tokenizer.

    Args:
      tokenizer: whose special tokens it uses.
      source: the text of the template.
      folder: with the names of special tokens, in `tokenizer_config.json`.
    """
    import jinja2
    import transformers

    if folder and (folder / "tokenizer_config.json").is_file():
        fast = _tokenizer(folder)
    else:
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
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


def _tokenizer(folder: Path):
    import transformers

    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)
