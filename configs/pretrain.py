"""The backbone `nano`: reading, calling, copying and answering in random worlds.

    python -m launch.train --config=configs/pretrain.py

It sees no fault, no refusal, no redirection, no inversion and no domain of ours.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "pretrain")
    c.init_from = "random"
    c.sandbox.domain = "random"
    c.sandbox.num_visible = 6
    c.algorithm.num_tokens = 384
    c.optim.name = "muon"
    c.optim.learning_rate = 2e-3
    c.optim.schedule = "wsd"
    c.eval.domain = "poi"
    if arg != "smoke":
        c.optim.warmup_steps = 20
        c.train.num_steps = 2000
        c.checkpoint.every = 200
    return c
