"""GRPO on clean and perturbed tasks, with a reward for refusing unsolvable ones.

    python -m launch.train --config=configs/paft_grpo.py --config.init_from=runs/paft

Differs from `grpo.py` in `paft.alpha` and the rewards for refusals.
Time: like `grpo.py`; 100 steps.
Result: after half of PAFT (33, 15 and 30 % correct refusals, by seed), 26 steps keep
18, 13 and 21 %; they gain little but success with failing tools
(docs/reinforcement_learning.md). With the backbone before it and a learning rate of
3e-4, after 50 steps, 89 % of the unsolvable tasks were refused, but also 57 % of the
solvable perturbed ones (means of three seeds; exploratory, docs/first_edition.md).
"""

from configs import grpo


def get_config(arg: str = ""):
    c = grpo.get_config(arg)
    c.name = c.name.replace("grpo", "paft_grpo")
    c.paft.alpha = 0.7
    c.reward.refusal = 1.0
    c.reward.abstain = 0.2  # better than a wrong answer, worse than the right one
    return c
