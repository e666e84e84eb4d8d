"""SmolLM2-135M-Instruct, with calls as Hermes writes them: as it is, or trained.

    python -m launch.evaluate --config=configs/smollm2.py
    python -m launch.train --config=configs/smollm2.py:smoke
    python -m launch.train --config=configs/smollm2.py

The second takes three steps, to see that it runs on a CPU. For the third take a GPU,
activations in half the width and larger batches; what comes last trains adapters alone:

    python -m launch.train --config=configs/smollm2.py \
        --config.model.dtype=bfloat16 --config.train.batch_size=32 \
        --config.train.num_micro_batches=4 \
        --config.model.lora.rank=16 --config.optim.learning_rate=1e-3

Memory of a step in bfloat16 with remat, as XLA's `memory_analysis()` has it of the step
compiled for a CPU (arguments and temporary arrays; not seen on a GPU):

    rows of 1,024 tokens             8        32
    the whole model             3.7 GB    8.4 GB
    adapters of rank 16         2.2 GB    7.0 GB

Of the whole model's, parameters are 0.54 GB, gradients 0.54 GB, moments 1.08 GB; the
adapters, 4.9 M parameters, need 0.08 GB for all three beside the model's 0.54 GB. The
rest is activations: `train.num_micro_batches` divides them.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "smollm2")
    c.init_from = "smollm2"
    c.model.chat_template = "hermes"  # its own does no tools
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
