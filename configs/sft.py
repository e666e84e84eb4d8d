"""Supervised fine-tuning on the oracle's demonstrations of clean tasks.

    python -m launch.train --config=configs/sft.py

Differs from `base.py` in its name only.
Time: about ten minutes on 2 CPU cores; 600 steps, 1.0 M tokens.
Result: with 636 steps, 96 % success on clean tasks of `poi`, 34 % on average over the
perturbed ones that can be solved, and no refusals (five seeds; docs/sft_and_paft.md).
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "sft")
    return c
