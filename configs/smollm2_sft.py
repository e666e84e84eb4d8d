"""SmolLM2-135M-Instruct learns from the oracle's demonstrations: whole, or by adapters.

    python -m launch.train --config=configs/smollm2_sft.py:smoke
    python -m launch.train --config=configs/smollm2_sft.py

The first takes three steps, to see that it runs on a CPU. For the second take a GPU,
activations in half the width and larger batches; what comes last trains adapters alone:

    python -m launch.train --config=configs/smollm2_sft.py \
        --config.model.dtype=bfloat16 --config.train.batch_size=32 \
        --config.train.num_micro_batches=4 \
        --config.model.lora.rank=16 --config.optim.learning_rate=1e-3

Memory of a step on 8 rows of 1,024 tokens, one micro-batch, in bfloat16 with remat:
about 3.7 GB, with adapters of rank 16 about 2.2 GB. Estimated: arguments and temporary
arrays by XLA's `memory_analysis()` of the step compiled for a CPU, not seen on a GPU.
Of these are parameters 0.54 GB (4 bytes), gradients 0.54 GB and two moments 1.08 GB;
with adapters of 4.9 M parameters, 0.54 GB and 0.08 GB. Each 8 rows more add 1.6 GB;
micro-batches add none.
"""

from configs import base


def get_config(arg: str = ""):
    c = base.get_config(arg)
    c.name = c.name.replace("base", "smollm2_sft")
    c.init_from = "smollm2"
    c.sandbox.prompt_tokens = 1024  # its template writes each tool as JSON
    c.sandbox.action_tokens = 96
    c.sandbox.result_tokens = 64
    c.sandbox.context_tokens = 2048
    c.algorithm.num_tokens = 1536
    c.optim.learning_rate = 1e-4
    c.eval.batch_size = 8 if arg == "smoke" else 16  # a cache of 94 MB each, in float32
    return c
