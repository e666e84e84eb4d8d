"""SmolLM2-135M-Instruct, as it is or to be trained, with calls as Hermes writes them.

python -m launch.evaluate --config=configs/smollm2.py
python -m launch.train --config=configs/smollm2.py
"""

from ml_collections import ConfigDict

from configs import base


def get_config(arg: str = "") -> ConfigDict:
    c = base.get_config(arg)
    c.name = "smollm2_smoke" if arg else "smollm2"
    c.init_from = "smollm2"
    c.model.chat_template = "hermes"  # its own does no tools
    c.sandbox.prompt_tokens = 896  # perturbed documents are longer than clean ones
    c.sandbox.action_tokens = 64
    c.sandbox.result_tokens = 64
    c.sandbox.context_tokens = 1536
    c.algorithm.num_tokens = 1152
    c.optim.learning_rate = 1e-4
    c.eval.num_tasks = 16  # an episode takes seconds on a CPU
    c.eval.batch_size = 16
    return c
