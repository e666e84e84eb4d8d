"""SmolLM2-135M-Instruct with the chat template of Hermes: as it is, or trained.

    python -m launch.evaluate --config=configs/smollm2.py
    python -m launch.train --config=configs/smollm2.py:smoke
    python -m launch.train --config=configs/smollm2.py

The second command trains three steps, to see that it runs on a CPU. Take a GPU for the
third, with activations in bfloat16 and larger batches. The last line trains adapters:

    python -m launch.train --config=configs/smollm2.py \
        --config.model.dtype=bfloat16 --config.train.batch_size=32 \
        --config.train.num_micro_batches=4 \
        --config.model.lora.rank=16 --config.optim.learning_rate=1e-3

Differs from `base.py` by the backbone, its template, more room for its longer texts, a
lower learning rate, and a shorter evaluation.
Time: the evaluation takes 14 minutes on 2 CPU cores; training was not measured.
Result: as it is, it talks instead of calling tools, and solves no task (README.md).

Memory of a step in bfloat16 with remat, by XLA's `memory_analysis()` of the step
compiled for a CPU (arguments and temporary arrays; not measured on a GPU):

    rows of 1,024 tokens             8        32
    the whole model             3.7 GB    8.4 GB
    adapters of rank 16         2.2 GB    7.0 GB

The whole model needs 0.54 GB for parameters, 0.54 GB for gradients and 1.08 GB for
moments. Adapters (4.9 M parameters) need 0.08 GB for all three, beside the model's 0.54
GB. The rest is activations, which `train.num_micro_batches` divides.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "smollm2")
    c.init_from = "smollm2"
    c.model.chat_template = "hermes"  # its own has no place for tools
    c.sandbox.prompt_tokens = 896  # perturbed documents are longer than clean ones
    c.sandbox.action_tokens = 64
    c.sandbox.result_tokens = 64
    c.sandbox.context_tokens = 1536
    c.algorithm.num_tokens = 1152
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
