"""Decoding by `transformers` and torch: what ours is measured against."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int


class Generator:
    """Greedy tokens of the model in a folder, in float32.

    Raises:
      ImportError: torch or transformers is not there.
    """

    def __init__(self, folder: Path):
        import torch  # pyright: ignore[reportMissingImports]  # an extra, large
        import transformers

        self._torch = torch
        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        self._model = load(folder, dtype=torch.float32)

    def __call__(
        self, prompts: Int[np.ndarray, "B S"], num_tokens: int
    ) -> Int[np.ndarray, "B T"]:
        tokens = self._torch.tensor(prompts)
        with self._torch.no_grad():
            said = self._model.generate(
                tokens,
                attention_mask=self._torch.ones_like(tokens),
                do_sample=False,
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
            )
        return said[:, prompts.shape[1] :].numpy()
