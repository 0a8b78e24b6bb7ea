"""Reads quantised checkpoints back into plain ones, by the formats' published rules, in numpy.

It shares nothing with the runtime, neither its writing nor its reading. Rules are those of
AutoAWQ's gemm layout and of AutoGPTQ's first format, as their loaders have them: a stored zero
point of GPTQ lacks one, and is not taken modulo the number of codes.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

Array = Any
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs lies at each place of a word, from the lowest bits up."""


def save_unpacked(packed: Path, folder: Path) -> Path:
    """Write what a quantised folder stands for as a plain one, in float32."""
    document = json.loads((packed / "config.json").read_text())
    stated = document.pop("quantization_config")
    stored = read_folder(packed)
    plain = {}
    for name, tensor in stored.items():
        module, _, ending = name.rpartition(".")
        if ending == "qweight":
            plain[f"{module}.weight"] = torch.from_numpy(unpack(stored, module, stated))
        elif ending not in ("qzeros", "scales", "g_idx"):
            plain[name] = tensor.float()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(document))
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def read_folder(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of a folder, of the index's shards where it has one."""
    index = folder / "model.safetensors.index.json"
    names = ["model.safetensors"]
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    tensors: dict[str, torch.Tensor] = {}
    for name in names:
        tensors |= load_file(folder / name)
    return tensors


def unpack(stored: dict[str, torch.Tensor], module: str, stated: dict[str, Any]) -> Array:
    """One matrix: [N, K] float32."""
    of_module = {
        name: stored[f"{module}.{name}"].numpy() for name in ("qweight", "qzeros", "scales")
    }
    scales = of_module["scales"].astype(np.float32)
    bits = stated["bits"]
    if stated["quant_method"] == "awq":
        codes, zeros = (_across(of_module[name], 4) for name in ("qweight", "qzeros"))
        codes, zeros = (
            each.reshape(len(each), -1, 8)[..., np.argsort(_AWQ_ORDER)].reshape(len(each), -1)
            for each in (codes, zeros)
        )
        num_inputs = len(codes)
        groups = np.arange(num_inputs) // (num_inputs // len(scales))
    else:
        codes = _across(of_module["qweight"].T, bits).T
        zeros = _across(of_module["qzeros"], bits) + 1
        groups = stored[f"{module}.g_idx"].numpy()
    weight = (codes.astype(np.float32) - zeros[groups]) * scales[groups]
    return np.ascontiguousarray(weight.T.astype(np.float32))


def _across(words: Array, bits: int) -> Array:
    """Words [R, C] as numbers [R, C * 32 / bits], the lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    numbers = np.ascontiguousarray(words).view(np.uint32)[..., None] >> shifts
    return (numbers & np.uint32(2**bits - 1)).astype(np.int64).reshape(len(words), -1)
