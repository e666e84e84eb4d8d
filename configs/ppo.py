"""PPO: reinforcement learning with a learned value function (arXiv 1707.06347).

    python -m launch.train --config=configs/ppo.py --config.init_from=runs/sft

Differs from `grpo.py` in the algorithm, and in its batches: 64 tasks with one episode
each, used for two epochs of two updates. This is as many episodes as in `grpo.py`.
Time and result: not measured yet.
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
