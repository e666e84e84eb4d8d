"""GRPO: reinforcement learning from the rewards of whole episodes (arXiv 2402.03300).

    python -m launch.train --config=configs/grpo.py --config.init_from=runs/sft

Differs from `base.py` in the algorithm, a lower and constant learning rate, and fewer
but longer steps. Start from a run that already earns some reward and can still improve.
Time: about 15 seconds per step on one of two shared CPU cores.
Result: with the present backbone and half the tokens of `configs/sft.py`, it gains
little on average, after SFT (one seed) or after half of PAFT (three); after PAFT, 8 to
22 points where the first call of a tool fails, and the refusals that PAFT has taught
are lost. With the backbone before it, 100 steps after 120 steps of SFT raised success
on clean tasks of `poi` from 49 to 62 % (docs/reinforcement_learning.md).
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "grpo")
    c.algorithm.name = "grpo"
    c.optim.learning_rate = 3e-5
    c.optim.schedule = "constant"
    c.train.num_steps = 3 if arg == "smoke" else 100
    c.train.log_every = 1
    c.grpo.size = 4 if arg == "smoke" else 8
    c.checkpoint.every = 2 if arg == "smoke" else 20
    return c
