"""PPO: reinforcement learning with a learned value (arXiv 1707.06347).

    python -m launch.train --config=configs/ppo.py --config.init_from=runs/sft

Differs from `grpo.py` by the algorithm, and by batches of 64 tasks with one episode
each that are used for two epochs of two updates.
Time and result: not measured yet. A batch has as many episodes as that of `grpo.py`.
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
