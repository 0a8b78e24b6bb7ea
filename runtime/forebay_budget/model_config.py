"""Turn a config.json, or a GGUF's metadata, into a Blueprint.

What the engine would run wrongly is refused here by name, before any weights are read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from forebay_budget.blueprint import Blueprint, Layer
from forebay_budget.families import find_family
from forebay_budget.family import Family
from forebay_budget.gguf_settings import read_gguf_settings
from forebay_budget.inspection import ModelConfig, ModelError
from forebay_budget.packing import Packing, read_packing
from forebay_budget.rope import reachable_positions
from forebay_budget.settings import Settings, unsupported

MAX_LAYERS = 1_024

_DTYPES = {
    "F64": "float32",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}


def dtype_name(stored: str) -> str:
    """Say in which dtype a checkpoint's weights run by default; quantised ones in bfloat16."""
    return _DTYPES.get(stored, "bfloat16")


def read_hf_config(document: Mapping[str, Any], stored_dtype: str) -> Blueprint:
    """Read a config.json; stored_dtype (the weights' own) counts where it names none.

    Raises: ModelError where the engine does not run such a model, or a number is missing.
    """
    family = find_family(_architecture_of(document))
    settings = Settings(_with_aliases(document)).with_defaults(family.defaults)
    _check_details(settings, family)
    packing = read_packing(settings.get("quantization_config"))
    named = document.get("dtype", document.get("torch_dtype"))
    dtype = str(named) if named in tuple(_DTYPES.values()) else dtype_name(stored_dtype)
    is_tied = settings.switch("tie_word_embeddings")
    blueprint = _read(family, settings, settings.number("vocab_size"), is_tied=is_tied, dtype=dtype)
    return blueprint if packing is None else _with_packing(blueprint, packing)


def _with_packing(blueprint: Blueprint, packing: Packing) -> Blueprint:
    sizes = replace(
        blueprint.sizes,
        weight_bits=packing.bits,
        weight_group_size=packing.group_size,
        has_weight_zeros=packing.has_zeros,
        is_weight_reordered=packing.is_reordered,
        quantizes_activations=packing.quantizes_activations,
    )
    return replace(blueprint, sizes=sizes, packing=packing)


def read_gguf_config(
    metadata: Mapping[str, Any],
    tensor_names: Iterable[str],
    vocab_size: int,
    has_head: bool,
    stored_dtype: str,
) -> Blueprint:
    """Read a GGUF's metadata; the vocabulary's size and the head are known from its tensors.

    Raises: ModelError as read_hf_config does.
    """
    family, settings = read_gguf_settings(metadata, tensor_names)
    blueprint = _read(
        family, settings, vocab_size, is_tied=not has_head, dtype=dtype_name(stored_dtype)
    )
    value_dim = settings.get("value_dim")
    if value_dim not in (None, blueprint.sizes.head_dim):
        only = f"{blueprint.sizes.head_dim}, the size of a head,"
        raise unsupported(settings.name("value_dim"), value_dim, only)
    return blueprint


def _read(
    family: Family, settings: Settings, vocab_size: int, *, is_tied: bool, dtype: str
) -> Blueprint:
    layers = _read_layers(family, settings)
    num_heads, head_dim = settings.number("num_attention_heads"), _head_dim(settings)
    key = "num_key_value_heads"
    num_kv_heads = num_heads if settings.get(key) is None else settings.number(key)
    windows = [layer.window for layer in layers]
    sizes = ModelConfig(
        architecture=family.architecture,
        num_layers=len(layers),
        hidden_size=settings.number("hidden_size"),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        intermediate_size=settings.number("intermediate_size"),
        vocab_size=vocab_size,
        max_position_embeddings=_num_positions(settings, layers),
        tie_word_embeddings=is_tied,
        dtype=dtype,
        window=None if None in windows else max(window or 0 for window in windows),
        **_expert_sizes(family, settings, layers),
    )
    scalar = settings.optional_real("query_pre_attn_scalar")
    return Blueprint(
        family,
        _checked(sizes),
        layers,
        rms_norm_eps=settings.real("rms_norm_eps"),
        attention_scale=(scalar or head_dim) ** -0.5,
        attention_softcap=_softcap(family, settings, "attn_logit_softcapping"),
        logit_softcap=_softcap(family, settings, "final_logit_softcapping"),
        normalises_experts=settings.switch("norm_topk_prob"),
    )


def _read_layers(family: Family, settings: Settings) -> tuple[Layer, ...]:
    num_layers = settings.number("num_hidden_layers")
    if num_layers > MAX_LAYERS:
        raise ModelError(
            "BadConfig", f"The model states {num_layers} layers, more than {MAX_LAYERS}."
        )
    rope, windowed_rope = family.ropes(family, settings, _head_dim(settings))
    return tuple(
        Layer(window, rope if window is None else windowed_rope, has_experts)
        for window, has_experts in zip(
            family.windows(settings, num_layers),
            family.experts_in(settings, num_layers),
            strict=True,
        )
    )


def _num_positions(settings: Settings, layers: tuple[Layer, ...]) -> int:
    return reachable_positions(
        {layer.rope for layer in layers}, settings.number("max_position_embeddings")
    )


def _expert_sizes(family: Family, settings: Settings, layers: tuple[Layer, ...]) -> dict[str, Any]:
    """A mixture's sizes; none for a model without one."""
    if not any(layer.has_experts for layer in layers):
        return {}
    num_experts, num_chosen = settings.number("num_experts"), settings.number("num_experts_per_tok")
    if num_chosen > num_experts:
        raise ModelError(
            "BadConfig", f"The model asks for {num_chosen} of its {num_experts} experts a token."
        )
    has_own_size = settings.get("moe_intermediate_size") is not None
    shared = "shared_expert_intermediate_size"
    return {
        "num_experts": num_experts,
        "num_experts_per_token": num_chosen,
        "expert_intermediate_size": settings.number(
            "moe_intermediate_size" if has_own_size else "intermediate_size"
        ),
        "shared_intermediate_size": settings.number(shared) if shared in family.defaults else 0,
    }


def _softcap(family: Family, settings: Settings, key: str) -> float | None:
    return settings.optional_real(key) if family.has_softcaps else None


def _architecture_of(document: Mapping[str, Any]) -> str:
    architectures = document.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        return architectures[0]
    raise ModelError("BadConfig", "The config.json names no architecture.")


def _with_aliases(document: Mapping[str, Any]) -> Mapping[str, Any]:
    if "num_local_experts" in document:
        return {"num_experts": document["num_local_experts"], **document}
    return document


def _check_details(settings: Settings, family: Family) -> None:
    # Gemma's first configs name the activation by the other families' key as well.
    activation = settings.get(family.activation_key) or family.activation
    if activation != family.activation:
        raise unsupported(family.activation_key, activation, family.activation)
    if settings.switch("use_bidirectional_attention"):
        raise unsupported("use_bidirectional_attention", True, "false")


def _head_dim(settings: Settings) -> int:
    """The stated head_dim; hidden_size / heads only where none is, as transformers does."""
    if settings.get("head_dim") is not None:
        return settings.number("head_dim")
    hidden_size, num_heads = settings.number("hidden_size"), settings.number("num_attention_heads")
    if hidden_size % num_heads:
        raise ModelError(
            "BadConfig",
            f"The model states no {settings.name('head_dim')}, and its hidden size {hidden_size} "
            f"is not divisible by its {num_heads} heads.",
        )
    return hidden_size // num_heads


def _checked(sizes: ModelConfig) -> ModelConfig:
    if sizes.num_heads % sizes.num_kv_heads:
        raise ModelError(
            "BadConfig",
            f"The model's {sizes.num_heads} heads are not divisible by its {sizes.num_kv_heads} "
            "key-value heads.",
        )
    return sizes
