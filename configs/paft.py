"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 30 % of the tasks are perturbed, in every way
that can be trained on. A third of these are unsolvable tasks and their counterparts,
and a third need a question to the user.
Time: ten minutes on 2 CPU cores, with the evaluation; 600 steps, 1.1 M tokens.
Result: 98 % success on clean tasks of `poi`, 37 % on average over the perturbed ones
that can be solved, and 65 % of the unsolvable tasks refused (one seed, exploratory; the
report is not stored). Rare kinds are learned late: redirections and unusual forms of
results are not learned in this time.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.3
    return c
