"""GRPO on a mix of clean and perturbed tasks, with a reward for due refusals.

python -m launch.train --config=configs/paft_grpo.py --config.init_from=runs/paft
"""

from configs import grpo


def get_config(arg: str = ""):
    c = grpo.get_config(arg)
    c.name = c.name.replace("grpo", "paft_grpo")
    c.paft.alpha = 0.3
    c.reward.refusal = 1.0
    c.reward.abstain = 0.2  # better than a wrong answer, worse than the right one
    return c
