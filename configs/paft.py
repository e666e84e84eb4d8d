"""PAFT: SFT with a share of perturbed tasks (Lv et al., arXiv 2607.01084).

    python -m launch.train --config=configs/paft.py

Differs from `sft.py` in `paft.alpha`: 70 % of the tasks are perturbed, in every way
that can be trained on. A quarter of these are unsolvable tasks and their counterparts,
and an eighth need a question to the user. (The paper perturbs 30 %, in fewer ways. Here
many ways were then too rare to be learned.)
Time: 585 seconds on 2 CPU cores, with compilation and evaluation, and 3.4 GB of memory;
600 steps, 1.1 M tokens.
Result: 97 % success on clean tasks of `poi`, 52 % on average over the perturbed ones
that can be solved, of which 3 % are refused, and 33 % of the unsolvable tasks refused,
and 25 % of their solvable counterparts (five seeds; docs/sft_and_paft.md). What is not
learned in this time: to follow redirections, to read unusual forms of results, and to
ask for a value that is left out in words that training does not have.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.7
    return c
