import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from openagent_jax.models import hf, transformer

CONFIG = transformer.ModelConfig(
    vocab_size=40,
    width=16,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_size=6,
    mlp_width=20,
    rope_theta=5000.0,
    norm_eps=1e-3,
    max_positions=99,
)


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def saved(request, tmp_path, getkey):
    """A folder, and what was written to it."""
    config = dataclasses.replace(CONFIG, tied=request.param)
    shapes = jax.eval_shape(transformer.make_policy(config).init, getkey())
    numbers = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(0.0, 0.3, x.shape), jnp.float32), shapes
    )
    hf.save(tmp_path, config, params)
    return tmp_path, config, params


def test_load_gives_back_what_was_saved(saved):
    folder, config, params = saved
    loaded_config, loaded = hf.load(folder)
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)
    assert hf.load(folder, dtype="bfloat16")[0].dtype == "bfloat16"


def test_layout(saved):
    """Names, orientation and absence of a tied head, as `transformers` has them."""
    folder, config, params = saved
    tensors = safetensors.numpy.load_file(folder / hf.WEIGHTS_FILE)
    up = tensors["model.layers.1.mlp.up_proj.weight"]
    np.testing.assert_array_equal(up, params["layers"]["up"][1].T)
    assert tensors["model.embed_tokens.weight"].shape == (40, 16)
    assert ("lm_head.weight" in tensors) == (not config.tied)
    assert len(tensors) == 9 * 2 + 2 + (not config.tied)


def test_transformers_computes_the_same(saved):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, config, params = saved
    model = transformers.LlamaForCausalLM.from_pretrained(
        folder, attn_implementation="eager"
    )
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, (2, 12))
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits.numpy()

    policy = transformer.make_policy(config)
    positions = jnp.tile(jnp.arange(12)[None], (2, 1))
    hidden = policy.hidden(params, jnp.asarray(tokens), positions, positions >= 0)
    np.testing.assert_allclose(policy.head(params, hidden), expected, atol=1e-4)

    # And the way back: what transformers writes, we read.
    model.save_pretrained(folder / "again")
    loaded_config, loaded = hf.load(folder / "again")
    assert loaded_config == config
    jax.tree.map(np.testing.assert_array_equal, loaded, params)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma"}, 'config.json: model_type "gemma" is not supported'),
        ({"attention_bias": True}, "attention_bias=True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"rope_scaling": {"factor": 8}}, "rope_scaling=.* is not supported"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type='llama3'"),
        ({"vocab_size": None}, "key 'vocab_size' is missing"),
        (
            {"intermediate_size": 21},
            r'model.safetensors: tensor "model.layers.0.mlp.gate_proj.weight" has '
            r"shape \[20, 16\], config.json asks for \[21, 16\]",
        ),
        ({"num_hidden_layers": 3}, 'tensor "model.layers.2.input_.*" is missing'),
        ({"num_hidden_layers": 1}, 'tensor "model.layers.1.input_.*" is not of a'),
    ],
)
@pytest.mark.parametrize("saved", [True], indirect=True)
def test_bad_config(saved, change, message):
    file = saved[0] / hf.CONFIG_FILE
    fields = json.loads(file.read_text()) | change
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
    with pytest.raises(ValueError, match=message):
        hf.load(saved[0])


@pytest.mark.parametrize("saved", [False], indirect=True)
def test_bad_files(saved, tmp_path):
    folder = saved[0]
    weights = folder / hf.WEIGHTS_FILE
    data = weights.read_bytes()
    weights.write_bytes(data[: len(data) // 2])
    with pytest.raises(ValueError, match=r"model.safetensors: .*"):
        hf.load(folder)
    weights.unlink()
    with pytest.raises(ValueError, match="model.safetensors: no such file"):
        hf.load(folder)
    (folder / hf.CONFIG_FILE).write_text("{")
    with pytest.raises(ValueError, match="config.json: not JSON"):
        hf.load(folder)
    with pytest.raises(ValueError, match="config.json: no such file"):
        hf.load(folder / "nowhere")
