"""PPO: reinforcement learning with a learned value (arXiv 1707.06347).

python -m launch.train --config=configs/ppo.py --config.init_from=runs/sft
"""

from configs import grpo


def get_config(arg: str = ""):
    c = grpo.get_config(arg)
    c.name = c.name.replace("grpo", "ppo")
    c.algorithm.name = "ppo"
    c.train.batch_size = 16 if arg == "smoke" else 64
    c.train.num_epochs = 2
    c.train.num_minibatches = 2
    return c
