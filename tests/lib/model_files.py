"""Checkpoints for tests: right headers, and data that is a hole in a sparse file."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TINY_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
"""64·64·2 + 2·32·64 + 3·96·64 = 30,720 elements a layer, head_dim 16."""

DTYPE_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I8": 1, "F8_E4M3": 1}

Dtypes = str | Mapping[str, str]
"""Of all tensors, or of each by its name."""

GGUF_TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "Q4_1": (3, 32, 20),
    "Q6_K": (14, 256, 210),
    "Q8_1": (9, 32, 40),
}
"""Number in the file, elements of a block, bytes of a block."""


def llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The tensors of a Llama-shaped model, by Hugging Face's names."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    queries = config["num_attention_heads"] * head_dim
    keys = config["num_key_value_heads"] * head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}."
        shapes |= {
            f"{layer}input_layernorm.weight": (hidden,),
            f"{layer}post_attention_layernorm.weight": (hidden,),
            f"{layer}self_attn.q_proj.weight": (queries, hidden),
            f"{layer}self_attn.k_proj.weight": (keys, hidden),
            f"{layer}self_attn.v_proj.weight": (keys, hidden),
            f"{layer}self_attn.o_proj.weight": (hidden, queries),
            f"{layer}mlp.gate_proj.weight": (inner, hidden),
            f"{layer}mlp.up_proj.weight": (inner, hidden),
            f"{layer}mlp.down_proj.weight": (hidden, inner),
        }
        if config["architectures"] == ["Qwen2ForCausalLM"]:
            shapes |= {
                f"{layer}self_attn.{part}_proj.bias": (queries if part == "q" else keys,)
                for part in "qkv"
            }
    return shapes


def safetensors_header(shapes: Mapping[str, tuple[int, ...]], dtype: Dtypes) -> tuple[bytes, int]:
    """A shard's header, length included, and the size of the data that follows."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        own = dtype if isinstance(dtype, str) else dtype[name]
        begin, end = end, end + math.prod(shape) * DTYPE_BYTES[own]
        entries[name] = {"dtype": own, "shape": list(shape), "data_offsets": [begin, end]}
    header = json.dumps(entries).encode()
    return struct.pack("<Q", len(header)) + header, end


def safetensors_bytes(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> bytes:
    """A whole shard of zeros."""
    header, data_bytes = safetensors_header(shapes, dtype)
    return header + bytes(data_bytes)


def write_safetensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: Dtypes = "BF16"
) -> None:
    """Write a header and a hole of the data's size."""
    header, data_bytes = safetensors_header(shapes, dtype)
    with path.open("wb") as stream:
        stream.write(header)
        stream.truncate(len(header) + data_bytes)


def write_hf_model(
    folder: Path,
    config: Mapping[str, Any] = TINY_LLAMA,
    *,
    dtype: str = "BF16",
    num_shards: int = 1,
) -> Path:
    """Write config.json and safetensors, with an index where there are several shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = llama_shapes(config)
    if num_shards == 1:
        write_safetensors(folder / "model.safetensors", shapes, dtype)
        return folder
    names = list(shapes)
    weight_map = {}
    for number in range(num_shards):
        file_name = f"model-{number + 1:05}-of-{num_shards:05}.safetensors"
        part = names[number::num_shards]
        write_safetensors(folder / file_name, {name: shapes[name] for name in part}, dtype)
        weight_map |= dict.fromkeys(part, file_name)
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def gguf_string(text: str) -> bytes:
    """A string as GGUF stores it."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value: Any) -> bytes:
    """A type number and a value: str, bool, int (uint32), float (float32) or a list of these."""
    if isinstance(value, list):
        items = [gguf_value(item) for item in value]
        kind = items[0][:4] if items else struct.pack("<I", 4)
        return (
            struct.pack("<I", 9)
            + kind
            + struct.pack("<Q", len(items))
            + b"".join(item[4:] for item in items)
        )
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_string(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    return struct.pack("<If", 6, value)


def gguf_bytes(
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[tuple[int, ...], str]],
    *,
    version: int = 3,
    has_data: bool = True,
) -> bytes:
    """A whole GGUF file; tensors are name → (row-major shape, type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += gguf_string(key) + gguf_value(value)
    offset = 0
    for name, (shape, kind) in tensors.items():
        number, elements, size = GGUF_TYPES[kind]
        head += gguf_string(name) + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", number, offset)
        offset += math.prod(shape) // elements * size
        offset += -offset % 32
    return head + bytes(-len(head) % 32) + (bytes(offset) if has_data else b"")


def tiny_gguf(
    kind: str = "llama", dtype: str = "Q4_1", **changes: Any
) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], str]]]:
    """Metadata and tensors of TINY_LLAMA as a GGUF without a head; changes replace metadata."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "model.layers": "blk",
    }
    metadata = {
        "general.architecture": kind,
        f"{kind}.block_count": 2,
        f"{kind}.context_length": 512,
        f"{kind}.embedding_length": 64,
        f"{kind}.feed_forward_length": 96,
        f"{kind}.attention.head_count": 4,
        f"{kind}.attention.head_count_kv": 2,
        f"{kind}.rope.dimension_count": 16,
        "tokenizer.ggml.tokens": [f"t{number}" for number in range(100)],
    }
    tensors = {}
    for name, shape in llama_shapes(TINY_LLAMA | {"tie_word_embeddings": True}).items():
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        tensors[name] = (shape, "F32" if len(shape) == 1 else dtype)
    return metadata | changes, tensors
