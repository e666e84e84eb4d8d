"""PAFT with different shares of perturbed tasks.

    python -m launch.ablate --study=configs/paper/alpha.py

The paper (arXiv 2607.01084) mixes a share alpha of perturbed trajectories into SFT. It
is reported by readers of its full text that alpha = 0.3 lifts the refusals of
unsolvable tasks to 97.8 to 99.6 %, and that 0.4 is no better, or worse. False refusals
are not reported.

The base is alpha = 0, which is SFT. All runs have the same number of steps and tasks.
Time: not measured; 25 runs, each as long as one of `configs/paft.py`.
Result: not measured yet.
"""

from configs.paper import study

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4)


def get_study(arg: str = "") -> study.Study:
    paft = study.Setting("", study.config("paft", arg), study.evaluation(arg))
    return study.Study(study.vary([paft], "paft.alpha", ALPHAS))
