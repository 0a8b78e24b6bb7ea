"""Writes a checkpoint that is all headers: `python3 - FOLDER` makes 13 billion parameters of zeros.

Runs inside a pod, by standard input, so it imports the standard library alone. The file is sparse:
21.1 GiB to whoever asks its size, a few kilobytes on the disk.
"""

import json
import struct
import sys
from pathlib import Path

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def list_shapes() -> dict[str, list[int]]:
    """Return every tensor's shape by its name."""
    hidden, inner, vocabulary = 5120, 13824, 32000
    queries, keys = 40 * 128, 8 * 128
    layer = {
        "input_layernorm": [hidden],
        "self_attn.q_proj": [queries, hidden],
        "self_attn.k_proj": [keys, hidden],
        "self_attn.v_proj": [keys, hidden],
        "self_attn.o_proj": [hidden, queries],
        "post_attention_layernorm": [hidden],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
    }
    shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    shapes["lm_head.weight"] = [vocabulary, hidden]
    for index in range(40):
        shapes |= {f"model.layers.{index}.{part}.weight": shape for part, shape in layer.items()}
    return shapes


def count_bytes() -> int:
    """Return the bytes of all tensors, two to a parameter."""
    return sum(2 * count_elements(shape) for shape in list_shapes().values())


def count_elements(shape: list[int]) -> int:
    """Return the elements of a vector or a matrix."""
    return shape[0] * (shape[1] if len(shape) == 2 else 1)


def write_checkpoint(folder: Path) -> None:
    """Write config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    header, end = {}, 0
    for name, shape in list_shapes().items():
        start, end = end, end + 2 * count_elements(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]))
