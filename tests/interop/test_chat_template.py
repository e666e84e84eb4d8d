"""Finding the chat template of a folder, and rendering it."""

import json

import pytest

from openagent_jax.interop import chat_template
from openagent_jax.text import messages
from tests import helpers

MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("settings", "file", "source"),
    [
        (None, None, ""),
        ({}, None, ""),
        ({"chat_template": "a"}, None, "a"),
        ({"chat_template": "a"}, "b", "b"),
        ({"chat_template": [{"name": "default", "template": "a"}]}, None, "a"),
        (
            {
                "chat_template": [
                    {"name": "default", "template": "a"},
                    {"name": "tool_use", "template": "b"},
                ]
            },
            None,
            "b",
        ),
    ],
)
def test_template_of_a_folder(tmp_path, settings, file, source):
    if settings is not None:
        (tmp_path / chat_template.SETTINGS_FILE).write_text(json.dumps(settings))
    if file is not None:
        (tmp_path / chat_template.FILE).write_text(file)
    assert chat_template.from_folder(tmp_path) == source


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (chat_template.FILE, b"\xff"),
        (chat_template.SETTINGS_FILE, b"{"),
        (chat_template.SETTINGS_FILE, b"[]"),
        (chat_template.SETTINGS_FILE, b'{"chat_template": [{"name": "default"}]}'),
    ],
)
def test_damaged_files_are_named(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"^{tmp_path / name}: "):
        chat_template.from_folder(tmp_path)


def test_special_tokens_and_a_fixed_date(tmp_path):
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    helpers.chat_tokenizer().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / chat_template.SETTINGS_FILE).write_text(json.dumps(settings))
    source = "{{ bos_token }}{{ date_string }} {{ messages[0].content }}{{ eos_token }}"
    template = chat_template.load(helpers.chat_tokenizer(), source, tmp_path)
    text = f"<|begin_of_text|>{chat_template.DATE} Hi<|eot_id|>"
    assert template.render(MESSAGES, [], True) == text
    assert template.is_special("<|eot_id|>")
    assert not template.is_special('{"')  # a token, but not a special one


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install -e \"\.\[hf\]\""):
        chat_template.load(helpers.chat_tokenizer(), "")


@pytest.mark.parametrize("form", ["hermes", "llama3"])
def test_builtin_templates_render_calls_with_text(form):
    """Other tools may render more with these templates than our agents write."""
    message = messages.call("look", {"place": "Oak Bay"})
    message["content"] = "Let me see."
    text = helpers.template(form).render([*MESSAGES, message], [], False)
    assert '"Oak Bay"' in text
    assert ("Let me see." in text) == (form == "hermes")
