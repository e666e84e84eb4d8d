"""SmolLM2-135M-Instruct as shipped, after SFT, after PAFT, and after GRPO on each.

    python -m launch.ablate --study=configs/paper/smollm2.py
    python -m launch.ablate --study=configs/paper/smollm2.py:cpu

The models of the paper (arXiv 2607.01084) could call tools before it trained them. It
finds that static training on clean tasks takes away what they could do in a changed
world. So the base is the model as shipped. SFT, PAFT and GRPO have about as many tokens
each, and GRPO after SFT or PAFT has as many again. Documents are short
(`hermes_compact`).

The first command is for a GPU (`launch/study_gpu.sh`): three seeds, adapters and the
whole model, GRPO, and the whole catalogue. The second one is an exploratory table for
two CPU cores: one seed, adapters, and twelve rows of 64 tasks.
Time of the second: 80 minutes of training and 140 of evaluation for SFT, on one core.
Result: SFT solves 72 % of the clean tasks and 18 % of the perturbed ones, and refuses
nothing (docs/pretrained.md); the other runs have not been made yet.
"""

from typing import Any

from configs.paper import study
from configs.paper.study import SMOKE, Setting

CPU = "cpu"  # argument of the study
# Perturbations of each tier, and refusals; with clean tasks, these are twelve rows.
CPU_ROWS = (
    "identity_erasure",
    "query_rewrite",
    "query_underspecified",
    "runtime_error",
    "tool_redirection",
    "nonstandard_feedback",
    "dependency_extension",
    "logic_inversion",
    "domain_transfer",
    "unsolvable",
    "still_solvable",
)
MODEL = {
    "model.chat_template": "hermes_compact",
    "model.remat": "full",
    "sandbox.prompt_tokens": 896,
    "sandbox.context_tokens": 1536,
    "algorithm.num_tokens": 1024,
}
ADAPTERS = {"model.lora.rank": 16, "optim.learning_rate": 1e-3}
GRPO = {
    "algorithm.name": "grpo",
    "grpo.size": 8,
    "optim.schedule": "constant",
    "optim.learning_rate": 1e-4,
    "train.log_every": 1,
}
ALPHA = {"paft.alpha": 0.7}  # as in configs/paft.py
# Of SFT: steps, and demonstrations in each; about 560 tokens in each of these.
GPU_STEPS, GPU_BATCH = 250, 32
CPU_STEPS, CPU_BATCH = 80, 8
TOKENS = GPU_STEPS * GPU_BATCH * 560


def get_study(arg: str = "") -> study.Study:
    if arg not in ("", CPU, SMOKE):
        raise ValueError(f'":{arg}" is not ":{CPU}" or ":{SMOKE}"')
    on_cpu = arg == CPU
    config = study.config("smollm2", arg if arg == SMOKE else "")
    same: dict[str, Any] = dict(MODEL)
    steps: dict[str, Any] = {}
    if on_cpu:
        same |= {"train.batch_size": CPU_BATCH}
        same |= {"eval.num_tasks": 64, "eval.scenarios": CPU_ROWS}
        steps = {"train.num_steps": CPU_STEPS}
    elif arg != SMOKE:
        same |= {"model.dtype": "bfloat16", "train.batch_size": GPU_BATCH}
        same |= {"train.num_micro_batches": 4, **study.evaluation("")}
        same |= {"eval.scenarios": ("all",)}
        steps = {"train.num_steps": GPU_STEPS}
    sampled = {"train.num_steps": 1_000, "train.max_tokens": TOKENS} if steps else {}

    def setting(name, title, *changes, after=""):
        joined = {key: value for x in (same, *changes) for key, value in x.items()}
        return Setting(name, config, joined, after, title, bool(changes))

    settings = [
        setting("shipped", "As shipped"),
        setting("sft", "SFT, adapters", steps, ADAPTERS),
        setting("paft", "PAFT, adapters", steps, ADAPTERS, ALPHA),
    ]
    if on_cpu:
        return study.Study(tuple(settings), seeds=(0,), base="shipped")
    settings += [
        setting("sft_whole", "SFT, whole model", steps),
        setting("paft_whole", "PAFT, whole model", steps, ALPHA),
        setting("grpo", "GRPO, adapters", sampled, ADAPTERS, GRPO),
        setting("sft_grpo", "SFT, then GRPO", sampled, ADAPTERS, GRPO, after="sft"),
        setting("paft_grpo", "PAFT, then GRPO", sampled, ADAPTERS, GRPO, after="paft"),
    ]
    return study.Study(tuple(settings), seeds=(0, 1, 2), base="shipped")
