"""Gemma 2: a window in every other layer, soft caps on scores and logits, norms around attention
and MLP with weights stored less one, scaled embeddings, a gate of gelu.

Source: Gemma Team 2024 (Gemma 2) §2; transformers' Gemma2Config.
"""

from collections.abc import Mapping
from typing import Any

from forebay_budget.family import Family, NormNames, windowed_where
from forebay_budget.settings import Settings

GEMMA_NORMS = NormNames(
    after_attention="post_attention_layernorm",
    before_mlp="pre_feedforward_layernorm",
    after_mlp="post_feedforward_layernorm",
)
_LAYERS_OF_27B = 46


def scale_by_head_but_in(settings: Settings, num_layers_of_largest: int) -> Mapping[str, Any]:
    """What scores are divided by the root of: a head's size, in the largest model h / H.

    GGUF does not say it; llama.cpp tells the largest model by its layers, as here.
    """
    if settings.number("num_hidden_layers") == num_layers_of_largest:
        scalar = settings.number("hidden_size") // settings.number("num_attention_heads")
    else:
        scalar = settings.number("head_dim")
    return {"query_pre_attn_scalar": scalar}


def _untold(settings: Settings) -> Mapping[str, Any]:
    return scale_by_head_but_in(settings, _LAYERS_OF_27B)


def _windows(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    return windowed_where(settings, num_layers, lambda number: number % 2 == 0)


GEMMA2 = Family(
    "Gemma2ForCausalLM",
    gguf_kinds=("gemma2",),
    defaults={
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 8_192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "sliding_window": 4_096,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    untold_by_gguf=_untold,
    windows=_windows,
    norms=GEMMA_NORMS,
    activation="gelu_pytorch_tanh",
    activation_key="hidden_activation",
    has_softcaps=True,
    norm_offset=1,
    scales_embedding=True,
)
