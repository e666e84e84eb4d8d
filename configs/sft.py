"""Static fine-tuning on the oracle's demonstrations of clean tasks.

python -m launch.train --config=configs/sft.py
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "sft")
    return c
