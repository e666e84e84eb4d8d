"""GRPO: reinforcement learning from the rewards of whole episodes (arXiv 2402.03300).

    python -m launch.train --config=configs/grpo.py --config.init_from=runs/sft

Differs from `base.py` in the algorithm, a lower and constant learning rate, and fewer
but longer steps. Start from a run that already earns some reward and can still improve.
Time: not measured with the present backbone. With the one before it, 254 seconds on 2
CPU cores; 100 steps, 1.9 M tokens, starting from 120 steps of SFT.
Result: with the one before it, success on clean tasks of `poi` rose from 49 to 62 %
(docs/reinforcement_learning.md).
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "grpo")
    c.algorithm.name = "grpo"
    c.optim.learning_rate = 3e-4
    c.optim.schedule = "constant"
    c.train.num_steps = 3 if arg == "smoke" else 100
    c.train.log_every = 1
    c.grpo.size = 4 if arg == "smoke" else 8
    c.checkpoint.every = 2 if arg == "smoke" else 20
    return c
