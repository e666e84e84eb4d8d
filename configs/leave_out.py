"""PAFT without one kind, tier or shift of perturbations: does robustness transfer?

    python -m launch.train --config=configs/leave_out.py:logic_inversion
    python -m launch.train --config=configs/leave_out.py:reasoning
    python -m launch.train --config=configs/leave_out.py:query

Differs from `paft.py` in `paft.leave_out`, by default logic_inversion. What is left out
is evaluated too. Its rows claim `unseen_kind`, or `unseen_forms` if the backbone has
met the kind before, as `nano` has in random worlds. Unsolvable tasks are left out with
their counterparts only, and the share of those that stay is the same.
Time: like `paft.py`.
Result: without a tier, success on its kinds is 4 points above SFT's on average (up to
30 above and 15 below), where training on them gains 24 (one seed, exploratory;
docs/sft_and_paft.md).
"""

from configs import paft
from openagent_jax.curriculum import draw
from openagent_jax.environments import registry


def get_config(arg: str = ""):
    c = paft.get_config(arg if arg == "smoke" else "")
    c.name = c.name.replace("paft", "leave_out")
    what = arg if arg not in ("", "smoke") else "logic_inversion"
    specs = registry.spec("poi"), *registry.SPECS.values()
    known = {entry.name for spec in specs for entry in spec.perturbations}
    if what not in known and what not in draw.PARTS:
        raise ValueError(
            f'config argument ":{arg}" is not a perturbation, tier or shift'
        )
    c.paft.leave_out = (what,)
    if arg not in ("", "smoke"):
        c.name += f"_{arg}"
        c.eval.scenarios = ("default", arg)
    return c
