"""Rewards for refusing a task that can be solved, in GRPO after PAFT.

    python -m launch.ablate --study=configs/paper/abstain.py

The paper (arXiv 2607.01084) finds that PAFT does not cure reinforcement learning, whose
blindness comes from its reward.

A refusal of a task that can be solved earns 0.2 with the reward of
`configs/paft_grpo.py`, where most attempts at a perturbed task earn nothing, and GRPO
compares the episodes of a task with one another. So each value of `reward.abstain` is
tried, from that one down to a loss as large as the gain of a correct refusal. All start
from half of PAFT with the same seed, which is the base.
Time: not measured; 25 runs, each as long as half of one of `configs/paft.py`.
Result: not measured yet, but for 0.2 with three seeds, with which false refusals of
`still_solvable` become fewer, as correct ones do (docs/reinforcement_learning.md).
"""

from configs.paper import methods, study

REWARDS = (0.2, 0.0, -0.5, -1.0)


def get_study(arg: str = "") -> study.Study:
    half, perturbed = "paft_half", "paft_perturbed_grpo"
    known = {setting.name: setting for setting in methods.get_study(arg).settings}
    values = study.vary([known[perturbed]], "reward.abstain", REWARDS)
    return study.Study((known[half], *values), base=half)
