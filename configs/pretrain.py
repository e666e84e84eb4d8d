"""Pretrain a backbone like `nano`, in three runs.

    python -m launch.tokenizer --out=TOKENIZER --num_merges=3000
    python -m launch.train --config=configs/pretrain.py:start \
        --config.model.tokenizer=TOKENIZER
    python -m launch.train --config=configs/pretrain.py:short
    python -m launch.train --config=configs/pretrain.py

The first two have tasks of at most two calls: random worlds, domains of random words
(`all_invented`), and domains of the library (`all_pretrain`). Some of their steps are
exercises that get harder (`data/lookups.py`), which teach to copy and to compare
requests with documents. The first run is short, and its learning rate is high, so that
copying begins soon. The third one has tasks of up to five calls, some of which are
perturbed, with the surface forms for training. Each step permutes the embeddings of
words (`models/embedding_shuffle.py`). No run contains `poi`, `calendar`, `museum`,
`weather`, or a held-out domain of the library.

Differs from `base.py` in random weights, with heads that mark words of the request in
documents and a copy head (`models/initial_heads.py`), worlds and domains, Muon, and
these stages. Time: on 2 CPU cores, a step of `:start` or `:short` takes 1.3 seconds,
after 5 minutes in which the domains are made; the runs of `nano` took 133 minutes.
Result: after `:start` and 1,000 steps of `:short`, the policy has the right first tool
in 79 % of random worlds and 53 % of `all_dev` (one seed; docs/backbone.md has more).
The shipped `nano` was made by these runs with fewer steps, at commit 4e0a971
(openagent_jax/backbones/nano/README.md).
"""

from configs import base
from openagent_jax.domains import library

STAGES = ("start", "short", "")


def get_config(arg: str = ""):
    smoke = arg == "smoke"
    c = base.get_config(arg if smoke else "")
    if arg not in (*STAGES, "smoke"):
        raise ValueError(
            f'config argument ":{arg}" is not ":start", ":short" or ":smoke"'
        )
    c.name = "pretrain" + (f"_{arg}" if arg else "")
    c.init_from = "random"
    c.model.width = 192
    c.model.num_layers = 8
    c.model.num_heads = c.model.num_kv_heads = 3
    c.model.rope_theta = 1e6  # slow enough to compare distant tokens
    c.model.match_heads = 1
    c.model.copy_heads = 1
    c.sandbox.domain = "random"
    c.train.shuffle_vectors = True
    c.train.batch_size = 16
    c.optim.name = "muon"
    c.optim.learning_rate = 2e-3
    c.optim.muon_learning_rate = 4e-3
    c.optim.warmup_steps = 20
    c.optim.schedule = "cosine"
    c.checkpoint.every = 500
    if smoke:
        c.optim.warmup_steps = 1
        c.train.batch_size = 8
        c.checkpoint.every = 2
        c.eval.domain = "poi"
        return c
    c.sandbox.transfer = "museum"
    c.sandbox.prompt_tokens = 640
    c.sandbox.action_tokens = 96
    c.sandbox.result_tokens = 96
    c.sandbox.context_tokens = 1152
    c.eval.domain = "all_dev"
    c.eval.scenarios = ()
    # Random worlds cannot be memorised. The invented domains are drawn from about twice
    # as often as the library.
    weights = ["2"] * len(library.PRETRAIN) + ["1"] * len(library.INVENTED)
    c.sandbox.domain = "all_pretrain,all_invented"
    c.sandbox.domain_weights = ",".join(weights)
    c.algorithm.num_rows = 8  # filled with demonstrations
    c.train.batch_size = 24
    c.train.other_domains = ("random",)
    c.train.other_share = 0.4
    c.train.lookup_share = 0.3
    if arg in ("start", "short"):
        c.sandbox.num_steps = 2
        # Attention takes half of the time of a step, so short rows are faster. The few
        # tasks that are longer are left out.
        c.sandbox.prompt_tokens = 416
        c.algorithm.num_tokens = 512
    if arg == "start":
        c.optim.schedule = "constant"
        c.train.lookup_share = 0.4
        c.train.lookup_steps = 500
        c.train.num_steps = 500
        return c
    # At the rates above, the loss soon stops falling.
    c.optim.learning_rate = 7e-4
    c.optim.muon_learning_rate = 1.4e-3
    if arg == "short":
        c.init_from = "runs/pretrain_start"
        c.train.num_steps = 8_000
    else:
        c.init_from = "runs/pretrain_short"
        c.sandbox.num_visible = 6
        c.algorithm.num_tokens = 896
        c.paft.alpha = 0.3
        c.optim.schedule = "wsd"
        c.train.num_steps = 20_000
        c.eval.scenarios = ("default",)
    return c
