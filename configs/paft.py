"""PAFT: the same as SFT, with a share of perturbed tasks (arXiv 2607.01084).

python -m launch.train --config=configs/paft.py
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "paft")
    c.paft.alpha = 0.3
    return c
