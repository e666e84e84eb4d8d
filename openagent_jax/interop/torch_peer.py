"""Decode and train with `transformers` and torch, to compare speed and results."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from openagent_jax.models import hf
from openagent_jax.models.lora import Lora
from openagent_jax.types import Params


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


class Trainer:
    """Fine-tunes a model in float32, with AdamW as in `optim`.

    The model is that of transformers, with its default attention, and runs eagerly. It
    gets no attention mask, since padding is on the right, where no real token sees it:
    with a mask, attention would be slower. AdamW is torch's fused one.

    Args:
      folder: the folder of the model, in Hugging Face's layout.
      rate: the learning rate of each step, counted from 0.
      betas: the decays of the moments.
      weight_decay: decoupled weight decay of matrices.
      clip_norm: largest global norm of the gradient; 0 turns clipping off.
      train_embedding: False freezes the embedding.
      num_micro_batches: number of parts over which the gradient is accumulated.
      lora: settings of `adapters`.
      adapters: the branch `lora.LORA` of our parameters. If given, only copies of these
        are trained.

    Raises:
      ImportError: torch or transformers is not installed.
    """

    def __init__(
        self,
        folder: Path,
        rate: Callable[[int], float],
        *,
        betas: tuple[float, float],
        weight_decay: float,
        clip_norm: float,
        train_embedding: bool,
        num_micro_batches: int = 1,
        lora: Lora | None = None,
        adapters: Params | None = None,
    ):
        import torch  # pyright: ignore[reportMissingImports]  # an extra, large
        import transformers

        load: Any = transformers.AutoModelForCausalLM.from_pretrained
        self._torch, self._rate = torch, rate
        self._model = load(folder, dtype=torch.float32)
        self._model.train()
        self._clip_norm, self._num_parts = clip_norm, num_micro_batches
        self._num_steps = 0
        if lora and adapters:
            self._model.requires_grad_(False)
            self._trained = self._adapt(lora, adapters)
        else:
            embed = self._model.get_input_embeddings()
            embed.weight.requires_grad_(train_embedding)
            self._trained = [x for x in self._model.parameters() if x.requires_grad]
        matrices = [x for x in self._trained if x.ndim == 2]
        vectors = [x for x in self._trained if x.ndim != 2]
        groups = [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], betas=betas, fused=True
        )

    def __call__(
        self, tokens: Int[np.ndarray, "B S"], loss_mask: Bool[np.ndarray, "B S"]
    ) -> float:
        """Update the model on a batch.

        Args:
          tokens: token ids, padded on the right; each row holds one text.
          loss_mask: the tokens that the model is trained to produce.

        Returns:
          The mean loss over these tokens, before the update.
        """
        torch = self._torch
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate(self._num_steps)
        labels = np.where(loss_mask, tokens, -100).astype(np.int64)
        pairs = zip(
            torch.tensor(tokens.astype(np.int64)).chunk(self._num_parts),
            torch.tensor(labels).chunk(self._num_parts),
            strict=True,
        )
        divisor, loss = max(int(loss_mask.sum()), 1), 0.0
        for rows, targets in pairs:
            part = self._model(
                rows, labels=targets, use_cache=False, num_items_in_batch=divisor
            ).loss
            part.backward()
            loss += float(part.detach())
        if self._clip_norm:
            torch.nn.utils.clip_grad_norm_(self._trained, self._clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._num_steps += 1
        return loss

    def _adapt(self, lora: Lora, adapters: Params) -> list[Any]:
        """Add adapters to the linear maps, and return their parameters."""
        parameters = []

        def add(linear, a, b):
            def hook(module, inputs, output):
                return output + lora.scale * (inputs[0] @ a @ b)

            linear.register_forward_hook(hook)

        for name, adapter in adapters["layers"].items():
            path = hf.LAYER_TENSORS[name].removesuffix(".weight")
            for i, layer in enumerate(self._model.model.layers):
                both = [
                    self._torch.nn.Parameter(self._torch.tensor(np.array(x[i])))
                    for x in (adapter["a"], adapter["b"])
                ]
                add(layer.get_submodule(path), *both)
                parameters += both
        return parameters


def product(size: int) -> Callable[[], Any]:
    """Return a function that multiplies two square matrices in float32."""
    import torch  # pyright: ignore[reportMissingImports]  # an extra, large

    a, b = torch.rand(size, size), torch.rand(size, size)
    return lambda: torch.matmul(a, b)
