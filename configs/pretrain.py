"""The backbone `nano`: reading, calling, copying and answering in random worlds.

    python -m launch.train --config=configs/pretrain.py:short
    python -m launch.train --config=configs/pretrain.py

The first run learns to copy, on tasks of one or two tools; small batches matter there,
for it is the number of updates that brings the turn. The second goes on from it with
longer lists of tools. Words swap vectors in each step (`models/shuffle.py`). Neither
sees a fault, a refusal, a redirection, an inversion or a domain of ours.
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
