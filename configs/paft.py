"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 70 % of the tasks are perturbed, in every way
that can be trained on. A quarter of these are unsolvable tasks and their counterparts,
and an eighth need a question to the user. (The paper perturbs 30 %, in fewer ways. Here
many ways were then too rare to be learned.)
Time: 585 seconds on 2 CPU cores, with compilation and evaluation, and 3.4 GB of memory;
600 steps, 1.1 M tokens.
Result: 97 % success on clean tasks of `poi`, 56 % on average over the perturbed ones
that can be solved, of which 4 % are refused, and 48 % of the unsolvable tasks refused,
and 38 % of their solvable counterparts (five seeds, grading version 10; with words that
training has not shown, 51, 4, 34 and 27 %, three seeds; docs/sft_and_paft.md).
Redirections and unusual forms of results are not learned in this time.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.7
    return c
