"""A tiny random model with all that `forebay serve` needs, and the command that serves it."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from fake_engine import TEMPLATE, VOCAB_SIZE, build_byte_backend

SERVE = [sys.executable, "-m", "forebay_runtime.cli", "serve"]
FLAGS = ["--host", "127.0.0.1", "--port", "0", "--device", "cpu", "--dtype", "float32"]
FLAGS += ["--served-model-name", "m", "--lame-duck-seconds", "0"]


def save_served_model(folder: Path, **sizes: Any) -> LlamaForCausalLM:
    """Write a folder as Hugging Face has it, with a tokenizer of bytes."""
    torch.manual_seed(0)
    known = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    model = LlamaForCausalLM(LlamaConfig(**(known | sizes))).eval()
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(build_byte_backend().to_str())
    described = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return model
