"""SmolLM2-135M-Instruct with the chat template of Hermes, as shipped or trained.

    python -m launch.evaluate --config=configs/smollm2.py
    python -m launch.train --config=configs/smollm2.py:smoke
    python -m launch.train --config=configs/smollm2.py

The second command trains for three steps, to check that training works on a CPU. Run
the third on a GPU, with activations in bfloat16 and larger batches. The last line below
trains adapters instead of the whole model:

    python -m launch.train --config=configs/smollm2.py \
        --config.model.dtype=bfloat16 --config.train.batch_size=32 \
        --config.train.num_micro_batches=4 \
        --config.model.lora.rank=16 --config.optim.learning_rate=1e-3

Differs from `base.py` in the model, its chat template, higher limits on tokens (its
texts are longer), a lower learning rate, and a shorter evaluation.
Time: the evaluation takes 14 minutes on 2 CPU cores; training with this
config was not measured (for adapters see docs/pretrained.md).
Result: as shipped, it writes text instead of calling tools, and solves no task
(docs/pretrained.md).

Memory of a step in bfloat16 with model.remat="full", according to XLA's
`memory_analysis()` of the step compiled for a CPU (arguments and temporary arrays; not
measured on a GPU):

    rows of 1,024 tokens             8        32
    the whole model             3.7 GB    8.4 GB
    adapters of rank 16         2.2 GB    7.0 GB

The whole model needs 0.54 GB for parameters, 0.54 GB for gradients and 1.08 GB for the
moments of AdamW. Adapters (4.9 M parameters) need 0.08 GB for all three, in addition to
the 0.54 GB of the model. The rest is activations; `train.num_micro_batches=N` divides
this part by N.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "smollm2")
    c.init_from = "smollm2"
    c.model.chat_template = "hermes"  # its own template does not support tools
    c.sandbox.prompt_tokens = 1152  # perturbed documents are longer than clean ones
    c.sandbox.action_tokens = 64
    c.sandbox.result_tokens = 96
    c.sandbox.context_tokens = 1792
    c.algorithm.num_tokens = 1408
    c.optim.learning_rate = 1e-4
    c.eval.num_tasks = 2 if arg else 16  # an episode takes seconds on a CPU
    c.eval.batch_size = c.eval.num_tasks
    c.eval.scenarios = (
        "identity_erasure",
        "query_underspecified",
        "runtime_error",
        "unsolvable",
    )
    if arg:
        c.train.batch_size = 1
        c.eval.scenarios = ("identity_erasure",)
    return c
