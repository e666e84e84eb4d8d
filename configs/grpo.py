"""GRPO: reinforcement learning from the rewards of whole episodes (arXiv 2402.03300).

python -m launch.train --config=configs/grpo.py --config.init_from=runs/sft
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
