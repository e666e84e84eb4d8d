"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 30 % of the tasks are perturbed, in every way
that can be trained on. A third of these are unsolvable tasks and their counterparts,
and a third need a question to the user.
Time: six minutes on 2 CPU cores, with the evaluation; 1,100 steps, 1.9 M tokens.
Result: 99 % success on clean tasks of `poi`, 46 % on average over the perturbed ones
that can be solved, and 14 % of the unsolvable tasks refused (one seed, exploratory; the
report is in docs/results/every_kind_0). Rare kinds are learned late: redirections and
unusual forms of results are not learned in this time.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.3
    return c
