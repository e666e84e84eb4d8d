"""Models are saved and loaded as by `transformers`, and errors name the bad file."""

import dataclasses
import json
import os
import stat
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import tokenizers

from openagent_jax.models import hf, hf_config, rope, transformer

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
# What distinguishes the architectures.
ARCHITECTURES = {
    "smollm2": {"head_size": 4},
    "llama": {"tied": False},
    "llama3": {
        "rope_scaling": rope.Scaling(
            "llama3",
            factor=8.0,
            original_max_positions=32,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
        ),
        "tied": False,
        "rope_theta": 100.0,  # some frequencies stay, some are lowered
    },
    "linear": {"rope_scaling": rope.Scaling("linear", factor=4.0)},
    "yarn": {
        "rope_scaling": rope.Scaling("yarn", factor=4.0, original_max_positions=1024),
        "rope_theta": 100.0,
        "head_size": 16,
    },
    "all_biases": {"qkv_bias": True, "o_bias": True},
    "qwen2": {"qkv_bias": True, "head_size": 4},
    "qwen3": {"qk_norm": True, "tied": False},
    "qwen3_biases": {"qk_norm": True, "qkv_bias": True, "o_bias": True},
}


@pytest.fixture(params=ARCHITECTURES)
def saved(request, tmp_path):
    """A folder, and the config and parameters that were saved in it."""
    config = dataclasses.replace(CONFIG, **ARCHITECTURES[request.param])
    params = random_params(config)
    hf.save(tmp_path / "model", config, params)
    return tmp_path / "model", config, params


def random_params(config, seed=0):
    init = transformer.make_policy(config).init
    shapes = jax.eval_shape(init, jax.random.key(0))
    numbers = np.random.default_rng(seed)
    return jax.tree.map(
        lambda x: jnp.asarray(numbers.normal(x.ndim < 2, 0.3, x.shape), x.dtype),
        shapes,
    )


def assert_same(a, b):
    """Check that two trees are equal bit for bit."""
    assert jax.tree.map(lambda x: x.dtype, a) == jax.tree.map(lambda x: x.dtype, b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@partial(jax.jit, static_argnums=0)
def full_logits(config, params, tokens):
    policy = transformer.make_policy(config)
    positions = jnp.tile(jnp.arange(tokens.shape[1])[None], (tokens.shape[0], 1))
    hidden = policy.hidden(params, tokens, positions, positions >= 0)
    return policy.head(params, hidden)


def cached_logits(config, params, tokens, num_prefilled):
    """Prefill some tokens at once, and process the others one by one."""
    policy = transformer.make_policy(config)
    (rows, size), extend = tokens.shape, jax.jit(policy.extend)
    cache, parts = policy.init_cache(rows, [num_prefilled, size - num_prefilled]), []
    for chunk in np.split(tokens, range(num_prefilled, size), axis=1):
        num_new = jnp.full(rows, chunk.shape[1])
        hidden, cache = extend(params, cache, jnp.asarray(chunk), num_new)
        parts.append(policy.head(params, hidden))
    return jnp.concatenate(parts, axis=1)


def test_load_returns_what_was_saved(saved):
    folder, config, params = saved
    loaded_config, loaded = hf.load(folder)
    assert loaded_config == config
    assert_same(loaded, params)
    assert hf.load(folder, dtype="bfloat16")[0].dtype == "bfloat16"


@pytest.mark.parametrize("saved", ["smollm2", "llama"], indirect=True)
def test_layout(saved):
    """Tensors have the names and axes of `transformers`; a tied head is absent."""
    folder, config, params = saved
    tensors = safetensors.numpy.load_file(folder / hf.WEIGHTS_FILE)
    up = tensors["model.layers.1.mlp.up_proj.weight"]
    np.testing.assert_array_equal(up, params["layers"]["up"][1].T)
    assert tensors["model.embed_tokens.weight"].shape == (40, 16)
    assert ("lm_head.weight" in tensors) == (not config.tied)
    assert len(tensors) == 9 * 2 + 2 + (not config.tied)


@pytest.mark.slow
def test_transformers_computes_the_same(saved):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder, config, params = saved
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager"
    )
    assert type(model).__name__ in hf_config.ARCHITECTURES.values()
    tokens = np.random.default_rng(1).integers(0, config.vocab_size, (2, 70))
    with torch.no_grad():
        expected = model(torch.tensor(tokens)).logits.numpy()
    got = full_logits(config, params, tokens)
    np.testing.assert_allclose(got, expected, atol=1e-4)
    got = cached_logits(config, params, tokens, num_prefilled=65)
    np.testing.assert_allclose(got, expected, atol=1e-4)

    # In the other direction: we load what transformers saves.
    model.save_pretrained(folder / "again")
    loaded_config, loaded = hf.load(folder / "again")
    assert loaded_config == config
    assert_same(loaded, params)


@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("saved", ["qwen2"], indirect=True)
def test_files_in_bfloat16(saved, tmp_path, param_dtype):
    """Weights that are loaded in either dtype are the same when saved again."""
    _, config, params = saved
    half = dataclasses.replace(config, param_dtype="bfloat16")
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    hf.save(tmp_path / "half", half, params)
    again_config, again = hf.load(tmp_path / "half", param_dtype=param_dtype)
    assert again["embed"].dtype == param_dtype
    assert_same(jax.tree.map(lambda x: x.astype(jnp.bfloat16), again), params)
    hf.save(tmp_path / "again", again_config, again)
    _, last = hf.load(tmp_path / "again", param_dtype=param_dtype)
    assert_same(last, again)
    first, second = (
        (tmp_path / name / hf.WEIGHTS_FILE).read_bytes() for name in ("half", "again")
    )
    assert (first == second) == (param_dtype == "bfloat16")


@pytest.mark.parametrize("saved", ["smollm2"], indirect=True)
def test_bfloat16_parameters_compute(saved):
    """The logits are close to float32's; initialisation is that of float32, rounded."""
    _, config, params = saved
    half = dataclasses.replace(config, param_dtype="bfloat16")
    tokens = np.arange(12)[None]
    rounded = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    got = full_logits(half, rounded, tokens)
    np.testing.assert_allclose(got, full_logits(config, params, tokens), atol=0.2)
    initial, unrounded = (
        transformer.make_policy(c).init(jax.random.key(0)) for c in (half, config)
    )
    assert_same(initial, jax.tree.map(lambda x: x.astype(jnp.bfloat16), unrounded))


@pytest.mark.parametrize("saved", ["qwen3"], indirect=True)
def test_shards(saved, tmp_path, monkeypatch):
    """Weights are split into files of a bounded size, as transformers does."""
    folder, config, params = saved
    size = (folder / hf.WEIGHTS_FILE).stat().st_size
    monkeypatch.setattr(hf, "MAX_SHARD", size // 3)
    hf.save(tmp_path / "split", config, params)
    files = sorted(file.name for file in (tmp_path / "split").iterdir())
    num = len(files) - 2
    assert num >= 3 and not (tmp_path / "split" / hf.WEIGHTS_FILE).exists()
    assert f"model-00001-of-{num:05}.safetensors" in files
    assert_same(hf.load(tmp_path / "split")[1], params)
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "split")
    with torch.no_grad():
        expected = model(torch.arange(12)[None]).logits.numpy()
    got = full_logits(config, params, np.arange(12)[None])
    np.testing.assert_allclose(got, expected, atol=1e-4)


@pytest.mark.parametrize("saved", ["llama"], indirect=True)
def test_save_is_atomic(saved, tmp_path, monkeypatch):
    folder, config, params = saved
    umask = os.umask(0o022)
    try:
        hf.save(tmp_path / "usual", config, params)
    finally:
        os.umask(umask)
    for file in (tmp_path / "usual").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o644

    def full(*_):
        raise OSError("no space left")

    before = {file: file.read_bytes() for file in folder.iterdir()}
    with monkeypatch.context() as patch:
        patch.setattr(safetensors.numpy, "save_file", full)
        for name in ("new", folder.name):
            with pytest.raises(OSError, match="no space left"):
                hf.save(tmp_path / name, config, params)
    assert sorted(x.name for x in tmp_path.iterdir()) == [folder.name, "usual"]
    assert {file: file.read_bytes() for file in folder.iterdir()} == before

    # A smaller model replaces one with shards: none of the shards is left.
    monkeypatch.setattr(hf, "MAX_SHARD", 1000)
    (folder / "README.md").write_text("mine")
    hf.save(folder, config, params)
    assert len(list(folder.glob("model-*.safetensors"))) > 3
    monkeypatch.undo()
    other = random_params(config, seed=1)
    hf.save(folder, config, other)
    names = sorted(x.name for x in folder.iterdir())
    assert names == ["README.md", hf.CONFIG_FILE, hf.WEIGHTS_FILE]
    assert_same(hf.load(folder)[1], other)


def test_another_tokenizer_beside_the_weights_is_refused(tmp_path):
    params, source = random_params(CONFIG), tmp_path / "source"
    words = ["oak", "elm", "ash"]

    def write(folder, words):
        folder.mkdir(exist_ok=True)
        vocab = {word: i for i, word in enumerate(words)}
        model = tokenizers.models.WordLevel(vocab, unk_token=words[0])
        tokenizers.Tokenizer(model).save(str(folder / "tokenizer.json"))

    write(source, words)
    hf.save(tmp_path / "model", CONFIG, params, source)
    assert_same(hf.load(tmp_path / "model")[1], params)
    write(tmp_path / "model", [*words, "yew"])  # a token was added
    hf.check(tmp_path / "model", CONFIG)
    for other in (words[::-1], words[:2]):
        write(tmp_path / "model", other)
        with pytest.raises(ValueError, match="model/tokenizer.json has other tokens"):
            hf.check(tmp_path / "model", CONFIG)
    # Weights that were saved by others, or without a tokenizer, may have any.
    hf.save(tmp_path / "plain", CONFIG, params)
    write(tmp_path / "plain", words)
    hf.check(tmp_path / "plain", CONFIG)


ROPE = {"rope_type": "llama3", "factor": 8.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gemma"}, 'config.json: model_type "gemma" is not supported'),
        ({"mlp_bias": True}, "config.json: mlp_bias=True is not supported"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu' is not supported"),
        ({"model_type": "mistral", "sliding_window": 9}, "sliding_window=9 is not"),
        ({"layer_types": ["sliding_attention"]}, 'layer_types has "sliding_attention"'),
        ({"attention_bias": True}, "layers.0.self_attn.q_proj.bias.* is missing"),
        ({"rope_scaling": {"factor": 8}}, "rope_scaling: rope_type='default' is not"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope' is not"),
        ({"rope_scaling": ROPE}, "rope_scaling: key 'high_freq_factor' is missing"),
        ({"rope_scaling": {"type": "linear"}}, "rope_scaling: key 'factor' is missing"),
        (
            {"rope_scaling": {"type": "linear", "factor": 0}},
            "config.json: rope_scaling: factor=0 is not a positive number",
        ),
        (
            {"rope_scaling": {"type": "yarn", "factor": 2.0, "mscale": 1.0}},
            'rope_scaling: "mscale" is not supported',
        ),
        ({"vocab_size": None}, "config.json: key 'vocab_size' is missing"),
        (
            {"num_hidden_layers": None},
            "config.json: key 'num_hidden_layers' is missing",
        ),
        ({"hidden_size": "16"}, "config.json: hidden_size='16' is not a positive int"),
        ({"num_key_value_heads": 3}, "config.json: num_heads=4 is not a multiple"),
        (
            {"intermediate_size": 21},
            r'model.safetensors: tensor "model.layers.0.mlp.down_proj.weight" has '
            r"shape \[16, 20\], but config.json requires \[16, 21\]",
        ),
        ({"num_hidden_layers": 3}, 'tensor "model.layers.2.input_.*" is missing'),
        ({"num_hidden_layers": 1}, 'tensor "model.layers.1.input_.*" is unknown to'),
        ({"tie_word_embeddings": False}, 'tensor "lm_head.weight" is missing'),
    ],
)
@pytest.mark.parametrize("saved", ["smollm2"], indirect=True)
def test_bad_config(saved, change, message):
    file = saved[0] / hf.CONFIG_FILE
    fields = json.loads(file.read_text()) | change
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}))
    with pytest.raises(ValueError, match=message) as found:
        hf.load(saved[0])
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("saved", ["llama"], indirect=True)
def test_bad_files(saved):
    folder = saved[0]
    weights = folder / hf.WEIGHTS_FILE
    data, tensors = weights.read_bytes(), safetensors.numpy.load_file(weights)
    for part in (data[: len(data) // 2], data[:-1], data[:5], b""):
        weights.write_bytes(part)
        with pytest.raises(ValueError, match=r"model.safetensors: .*") as found:
            hf.load(folder)
        assert "\n" not in str(found.value)
    name = "model.layers.0.mlp.up_proj.weight"
    wrong = tensors | {name: tensors[name].astype(np.float64)}
    safetensors.numpy.save_file(wrong, weights)
    with pytest.raises(ValueError, match=f'model.safetensors: tensor "{name}".* F64'):
        hf.load(folder)
    weights.unlink()
    with pytest.raises(ValueError, match="model.safetensors: no such file"):
        hf.load(folder)
    (folder / hf.CONFIG_FILE).write_text("{")
    with pytest.raises(ValueError, match="config.json: not JSON"):
        hf.load(folder)
    (folder / hf.CONFIG_FILE).write_text("[]")
    with pytest.raises(ValueError, match="config.json: not a JSON object"):
        hf.load(folder)
    with pytest.raises(ValueError, match="config.json: no such file"):
        hf.load(folder / "nowhere")


@pytest.mark.parametrize("saved", ["llama"], indirect=True)
def test_bad_index(saved, monkeypatch):
    folder, config, params = saved
    monkeypatch.setattr(hf, "MAX_SHARD", 5000)
    hf.save(folder, config, params)
    index, name = folder / hf.INDEX_FILE, "model.norm.weight"
    fields = json.loads(index.read_text())

    def check(message, weight_map):
        index.write_text(json.dumps({"weight_map": weight_map}))
        with pytest.raises(ValueError, match=message):
            hf.load(folder)

    pairs = fields["weight_map"]
    shard = pairs[name]
    moved = "model-00001-of-.* tensor .*norm.* is missing; .*index.json says"
    check(moved, pairs | {name: pairs["model.embed_tokens.weight"]})
    check(
        "nowhere.safetensors: no such file, but .*json names",
        pairs | {name: "nowhere.safetensors"},
    )
    check(
        "index.json: .* is in '../up', which is not the name of a file",
        pairs | {name: "../up"},
    )
    check('index.json: not a JSON object with a "weight_map"', [])
    rest = {name: file for name, file in pairs.items() if file != shard}
    check('index.json: tensor ".*" is missing', rest)
    index.write_text(json.dumps(fields))
    (folder / shard).unlink()
    with pytest.raises(
        ValueError, match=f"{shard}: no such file, but model.safe.*json"
    ):
        hf.load(folder)
