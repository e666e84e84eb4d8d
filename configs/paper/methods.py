"""Training methods of equal cost.

    python -m launch.ablate --study=configs/paper/methods.py
    python -m launch.diagnose          the same runs, beside the claims of the paper

The paper (arXiv 2607.01084) compares SFT, GRPO and PAFT. It reports that SFT and GRPO
are near-perfect where test is like training, that both fall under inverted logic and
refuse about 0 % of the unsolvable tasks, that PAFT refuses nearly all of them, and that
it does not cure GRPO, whose blindness comes from the reward. Its methods have unequal
budgets; here each samples and trains on as many tokens as `configs/paft.py` trains on.

A method that starts from half of another one has half of the tokens of each. The base
is SFT; the backbone is evaluated as it is.
Time: about half an hour for each run of SFT or PAFT on 2 shared CPU cores.
Result: docs/results.md (SFT and PAFT), docs/reinforcement_learning.md (GRPO after half
of SFT, one seed, and after half of PAFT, three), docs/first_edition.md (all methods, by
an earlier version).
"""

from configs.paper import study
from configs.paper.study import Setting

TOKENS = 1_103_000  # sampled and trained on by each method, as by configs/paft.py
# Steps of as many tokens: perturbed tasks have longer demonstrations.
STEPS = {"sft": 636, "paft": 600}
# Name, config, share of the tokens, the method that it starts from, and title.
METHODS = (
    ("sft", "sft", 1.0, "", "SFT"),
    ("sft_half", "sft", 0.5, "", "half of SFT"),
    ("grpo", "grpo", 1.0, "", "GRPO"),
    ("sft_grpo", "grpo", 0.5, "sft_half", "SFT+GRPO"),
    ("paft", "paft", 1.0, "", "PAFT"),
    ("paft_half", "paft", 0.5, "", "half of PAFT"),
    ("paft_grpo", "grpo", 0.5, "paft_half", "PAFT+GRPO"),
    ("paft_perturbed_grpo", "paft_grpo", 0.5, "paft_half", "PAFT+perturbed GRPO"),
)
BACKBONE = "base"


def get_study(arg: str = "") -> study.Study:
    settings = [
        Setting(BACKBONE, study.config("base", arg), title="Backbone", is_trained=False)
    ]
    for name, config, share, after, title in METHODS:
        changes = _budget(config, share, arg)
        settings.append(Setting(name, study.config(config, arg), changes, after, title))
    same = study.evaluation(arg)
    return study.Study(tuple(x.changed("", same) for x in settings), base="sft")


def _budget(config: str, share: float, arg: str) -> dict[str, int]:
    """Return the changes with which a method uses a share of the tokens."""
    if arg == study.SMOKE:
        return {"train.num_steps": round(4 * share)}
    if config in STEPS:
        return {"train.num_steps": round(STEPS[config] * share)}
    return {"train.num_steps": 1_000, "train.max_tokens": round(TOKENS * share)}
