"""Pretrain a backbone like `nano`: read, call, copy and answer in random worlds.

    python -m launch.train --config=configs/pretrain.py:short
    python -m launch.train --config=configs/pretrain.py

The first run learns to copy, on tasks with one or two tools. It takes small batches,
because what brings this ability about is the number of updates. The second run starts
from the first and has longer lists of tools. Words swap vectors in each step
(`models/embedding_shuffle.py`). Neither run sees a fault, a refusal, a redirection, an
inversion or one of the domains that evaluations use.

Differs from `base.py` by random weights and worlds, Muon, and the two stages above.
Time: not measured for these two (1.5 M and 20 M tokens); the eight such runs of `nano`,
103 M tokens, took 302 minutes on 2 CPU cores.
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
        c.algorithm.num_tokens = 176
        c.optim.schedule = "constant"
        c.optim.warmup_steps = 20
        c.train.batch_size = 16
        c.train.num_steps = 700
        c.eval.scenarios = ()
    elif not smoke:
        c.init_from = "runs/pretrain_short"
        c.sandbox.min_visible = 2
        c.sandbox.num_visible = 6
        c.algorithm.num_tokens = 320
        c.optim.schedule = "wsd"
        c.optim.warmup_steps = 20
        c.train.batch_size = 16
        c.train.num_steps = 5000
        c.eval.scenarios = ("identity_erasure", "domain_transfer")
    return c
