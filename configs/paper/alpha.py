"""PAFT with different shares of perturbed tasks.

    python -m launch.ablate --study=configs/paper/alpha.py

The paper (arXiv 2607.01084) mixes a share alpha of perturbed trajectories into SFT. It
is reported by readers of its full text that alpha = 0.3 lifts the refusals of
unsolvable tasks to 97.8 to 99.6 %, and that 0.4 is no better, or worse. False refusals
are not reported. Here there are more kinds of perturbations, and no kind is learned
from a few demonstrations, so larger shares are compared too.

The base is alpha = 0, which is SFT. All runs have the same number of steps and tasks.
Time: not measured; 25 runs, each as long as one of `configs/paft.py`.
Result: not measured yet.
"""

from configs.paper import study

ALPHAS = (0.0, 0.3, 0.5, 0.7, 0.9)


def get_study(arg: str = "") -> study.Study:
    paft = study.Setting("", study.config("paft", arg), study.evaluation(arg))
    return study.Study(study.vary([paft], "paft.alpha", ALPHAS))
