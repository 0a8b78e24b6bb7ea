"""Gemma 3 (text): five layers with a window to each that sees all, with a rotary embedding of their
own; q and k normed by head instead of Gemma 2's soft caps.

Source: Gemma Team 2025 (Gemma 3) §2; transformers' Gemma3TextConfig.
"""

from collections.abc import Mapping
from typing import Any

from forebay_budget.families.gemma2 import GEMMA_NORMS, scale_by_head_but_in
from forebay_budget.family import Family, windowed_where
from forebay_budget.rope import Rope, read_scaling, rope_block, rope_theta
from forebay_budget.settings import Settings

_LAYERS_OF_27B = 62
_LOCAL, _GLOBAL = "sliding_attention", "full_attention"


def _windows(settings: Settings, num_layers: int) -> tuple[int | None, ...]:
    pattern = settings.number("sliding_window_pattern")
    return windowed_where(settings, num_layers, lambda number: (number + 1) % pattern != 0)


def _ropes(family: Family, settings: Settings, head_dim: int) -> tuple[Rope, Rope]:
    """Layers that see all may be scaled; those with a window have a base of their own."""
    stated = rope_block(settings)
    kinds = {kind: stated[kind] for kind in (_GLOBAL, _LOCAL) if isinstance(stated.get(kind), dict)}
    of_all = kinds.get(_GLOBAL, {} if kinds else stated)
    of_window = kinds.get(_LOCAL, {})
    return (
        Rope(rope_theta(settings, of_all), head_dim, read_scaling(settings, of_all)),
        Rope(
            rope_theta(settings, of_window, "rope_local_base_freq"),
            head_dim,
            read_scaling(settings, of_window),
        ),
    )


def _untold(settings: Settings) -> Mapping[str, Any]:
    return scale_by_head_but_in(settings, _LAYERS_OF_27B)


GEMMA3 = Family(
    "Gemma3ForCausalLM",
    gguf_kinds=("gemma3",),
    defaults={
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "sliding_window": 4_096,
        "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
        "query_pre_attn_scalar": 256,
    },
    untold_by_gguf=_untold,
    windows=_windows,
    ropes=_ropes,
    norms=GEMMA_NORMS,
    activation="gelu_pytorch_tanh",
    activation_key="hidden_activation",
    has_qk_norm=True,
    has_softcaps=True,
    norm_offset=1,
    scales_embedding=True,
)
