"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 30 % of the tasks are perturbed, in every way
that can be trained on. Half of these are unsolvable tasks and their counterparts.
Time: not measured on a quiet machine since every kind is trained on; with seven kinds,
6 to 10 minutes on 2 CPU cores. 1,100 steps, 1.8 M tokens.
Result: not measured since every kind is trained on. With seven kinds, 97 % success on
clean tasks of `poi`, 44 % on average over the 15 perturbations of the suite, and 16 %
of the unsolvable tasks refused (one seed, exploratory; docs/sft_and_paft.md). Earlier
versions, in which counting documents gave unsolvable tasks away, refused 97, 62 and
94 %.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.3
    return c
