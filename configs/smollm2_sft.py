"""SmolLM2-135M-Instruct learns from the oracle's demonstrations: whole, or by adapters.

    python -m launch.train --config=configs/smollm2_sft.py:smoke
    python -m launch.train --config=configs/smollm2_sft.py

The first takes three steps, to see on a CPU that it runs. For the second take a GPU,
and activations of half the width. This one trains adapters alone, at a higher rate:

    python -m launch.train --config=configs/smollm2_sft.py \
        --config.model.dtype=bfloat16 --config.train.batch_size=32 \
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
    c.name = c.name.replace("base", "smollm2_sft")
    c.init_from = "smollm2"
    # Tools are written as JSON: of 256 clean tasks the longest prompt took 588 tokens,
    # the longest demonstration 909. Perturbed ones may be longer.
    c.sandbox.prompt_tokens = 1024
    c.sandbox.action_tokens = 96
    c.sandbox.result_tokens = 64
    c.sandbox.context_tokens = 1536
    c.algorithm.num_tokens = 1024
    c.optim.learning_rate = 1e-4
    c.eval.batch_size = 8 if arg == "smoke" else 32  # each row caches 71 MB, in float32
    if arg == "smoke":
        c.eval.scenarios = ()
    return c
