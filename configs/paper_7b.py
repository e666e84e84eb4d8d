"""The setting of the paper: all parameters of Qwen2.5-7B-Instruct (arXiv 2607.01084).

    python -m launch.train --config=configs/paper_7b.py --config.paft.alpha=0.3
    python -m launch.train --config=configs/paper_7b.py:grpo --config.init_from=WORKDIR

Both need the model's folder, `Qwen2.5-7B-Instruct`, and several large accelerators; on
a TPU pod, start them with `launch/cluster/tpu_pod.sh`. The first command is PAFT, and
SFT without its last flag; the second one is GRPO after it. To see what a step needs,
compile it for chips that are not here, without the model's weights:

    python -m launch.compile --config=configs/paper_7b.py --topology=v5p:2x2x1 \
        --config.init_from=smollm2 --config.model.chat_template=hermes --shape=qwen_7b

Differs from `base.py` in the model, AdamW at 3e-5 for 800 steps of 2 tasks (GRPO: 1e-6,
280 steps; the paper's group size is not known to us), longer texts, parameters in
bfloat16 with a copy in float32, and a mesh that splits each layer over four chips, one
for each of its key-value heads. The tasks are ours, not those of the paper.
Time: not measured.
Result: not measured.
"""

from configs import base

GRPO = "grpo"


def get_config(arg: str = ""):
    c = base.get_config("" if arg == GRPO else arg)
    c.name = c.name.replace("base", "paper_7b") + ("_grpo" if arg == GRPO else "")
    c.init_from = "Qwen2.5-7B-Instruct"
    c.model.param_dtype = "bfloat16"
    c.model.dtype = "bfloat16"
    c.model.remat = "full"
    c.sandbox.prompt_tokens = 1536
    c.sandbox.action_tokens = 64
    c.sandbox.result_tokens = 96
    c.sandbox.context_tokens = 2560
    c.algorithm.num_tokens = 2048
    c.optim.learning_rate = 3e-5
    c.optim.train_embedding = True
    c.optim.master_copy = True
    c.train.num_steps = 800
    c.train.batch_size = 2
    c.mesh.tensor = 4
    if arg == GRPO:
        c.algorithm.name = "grpo"
        c.optim.learning_rate = 1e-6
        c.optim.schedule = "constant"
        c.train.num_steps = 280
        c.grpo.size = 8
    if arg == "smoke":
        c.train.num_steps = 3
        c.mesh.tensor = 1
    return c
