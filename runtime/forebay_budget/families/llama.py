"""Llama 2 and 3, and what is built like it (SmolLM2, Yi, Vicuna): the decoder as it is.

Source: Touvron et al. 2023; Grattafiori et al. 2024 (Llama 3).
"""

from forebay_budget.family import Family

LLAMA = Family(
    "LlamaForCausalLM",
    gguf_kinds=("llama",),
    defaults={
        "max_position_embeddings": 2_048,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
    },
    is_interleaved_in_gguf=True,
)
