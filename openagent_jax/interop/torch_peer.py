"""Decode with `transformers` and torch, as the baseline of speed measurements."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int


class Generator:
    """Decodes greedily with a model in float32.

    Args:
      folder: the folder of the model, in Hugging Face's layout.

    Raises:
      ImportError: torch or transformers is not installed.
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
        """Return the tokens that follow each prompt.

        Args:
          prompts: token ids, all of the same length S.
          num_tokens: T, how many tokens to decode.
        """
        tokens = self._torch.tensor(prompts)
        with self._torch.no_grad():
            sequences = self._model.generate(
                tokens,
                attention_mask=self._torch.ones_like(tokens),
                do_sample=False,
                min_new_tokens=num_tokens,
                max_new_tokens=num_tokens,
            )
        return sequences[:, prompts.shape[1] :].numpy()
