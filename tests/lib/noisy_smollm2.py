"""SmolLM2 off the grid that its file lies on: what quantisation is measured against.

The only real weights at hand are rounded to four bits already, where rounding again costs next to
nothing. So each matrix of a layer gets Gaussian noise of half a step of its own blocks, in float32.
Reading is the gguf package's and transformers', apart from the runtime.
"""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from transformers import AutoTokenizer

from smollm2 import smollm2_path
from transformers_oracle import load_llama

_BLOCK_ELEMENTS, _BLOCK_BYTES = 32, 20
"""Of Q4_1, which begins with the step as float16."""


def save_noisy_smollm2(folder: Path, num_layers: int | None = None, seed: int = 7) -> Path:
    """Write it as a Hugging Face folder, whole or its first layers."""
    reader = gguf.GGUFReader(smollm2_path())
    model = load_llama(reader)
    steps = _steps(reader)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for index, layer in enumerate(model.model.layers):
            for part, step in steps[index].items():
                weight = getattr(layer, part[0])
                weight = getattr(weight, part[1]).weight
                noise = torch.randn(weight.shape, generator=generator)
                weight += noise * step.repeat_interleave(_BLOCK_ELEMENTS, 1) / 2
    if num_layers is not None:
        model.model.layers = model.model.layers[:num_layers]
        model.config.num_hidden_layers = num_layers
    model.save_pretrained(folder)
    path = smollm2_path()
    AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name).save_pretrained(folder)
    return folder


_PARTS = {
    "attn_q": ("self_attn", "q_proj"),
    "attn_k": ("self_attn", "k_proj"),
    "attn_v": ("self_attn", "v_proj"),
    "attn_output": ("self_attn", "o_proj"),
    "ffn_gate": ("mlp", "gate_proj"),
    "ffn_up": ("mlp", "up_proj"),
    "ffn_down": ("mlp", "down_proj"),
}


def _steps(reader: Any) -> dict[int, dict[tuple[str, str], torch.Tensor]]:
    """Each block's step, by layer and part: [rows, blocks of a row].

    Rows of q and k lie in another order than in the model, which noise does not mind.
    """
    steps: dict[int, dict[tuple[str, str], torch.Tensor]] = {}
    for tensor in reader.tensors:
        kind, *rest = tensor.name.split(".")
        if kind != "blk" or rest[1] not in _PARTS:
            continue
        rows = np.asarray(tensor.data).reshape(-1, _BLOCK_BYTES)[:, :2].copy().view(np.float16)
        step = torch.from_numpy(rows.astype(np.float32)).view(tensor.data.shape[0], -1)
        steps.setdefault(int(rest[0]), {})[_PARTS[rest[1]]] = step
    return steps
