"""Pretrain a backbone like `nano`, in random worlds.

    python -m launch.train --config=configs/pretrain.py:short
    python -m launch.train --config=configs/pretrain.py

The first run learns to copy, on tasks with one or two tools. Its batches are small,
because learning to copy takes many updates rather than many tokens. The second run
starts from the first and has longer lists of tools. Each step permutes the embeddings
of words (`models/embedding_shuffle.py`). Neither run contains faults, refusals,
redirections, inversions or any of the domains that are used for evaluation.

Differs from `base.py` in random weights and worlds, Muon, and the two stages above.
Time: not measured for these two runs (1.5 M and 20 M tokens). `nano` was made by eight
such runs with 103 M tokens in all, which took 302 minutes on 2 CPU cores.
Result: a backbone that calls tools but solves few tasks: `nano` solves 2 % of the clean
tasks of `poi` (docs/results.md).
"""

from configs import base


def get_config(arg: str = ""):
    smoke = arg == "smoke"
    c = base.get_config("" if arg == "short" else arg)
    c.name = "pretrain" + (f"_{arg}" if arg else "")
    c.init_from = "random"
    c.sandbox.domain = "random"
    c.train.shuffle_vectors = True
    c.optim.name = "muon"
    c.optim.learning_rate = 2e-3
    c.optim.muon_learning_rate = 4.5e-3
    c.eval.domain = "poi"
    c.checkpoint.every = 500
    if arg == "short":
        c.sandbox.min_visible = 1
        c.sandbox.num_visible = 2
        c.algorithm.num_tokens = 224
        c.optim.schedule = "constant"
        c.optim.warmup_steps = 20
        c.train.batch_size = 16
        c.train.num_steps = 700
        c.eval.scenarios = ()
    elif not smoke:
        c.init_from = "runs/pretrain_short"
        c.sandbox.min_visible = 2
        c.sandbox.num_visible = 6
        c.algorithm.num_tokens = 480
        c.optim.schedule = "wsd"
        c.optim.warmup_steps = 20
        c.train.batch_size = 16
        c.train.num_steps = 5000
        c.eval.scenarios = ("identity_erasure", "domain_transfer")
    return c
