"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 30 % of the tasks are perturbed.
Time: 6 to 10 minutes on 2 CPU cores; 1,100 steps, 1.8 M tokens.
Result: 94 % success on clean tasks of `poi`, 45 % on average over 14 perturbations, and
97, 62 and 94 % of the unsolvable tasks refused, which could be learned by counting
documents (means of three seeds and each of them; exploratory, docs/results.md).
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.3
    return c
