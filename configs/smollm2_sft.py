"""x

python -m launch.train --config=configs/smollm2_sft.py
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "smollm2_sft")
    return c
