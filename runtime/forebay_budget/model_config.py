"""Turn a config.json, or a GGUF's metadata, into the numbers that memory depends on.

What the engine would run wrongly (scaled rope, a sliding window, experts) is refused here by name.
"""

from collections.abc import Mapping
from typing import Any

from forebay_budget.family import GGUF_ARCHITECTURES, Family, find_family
from forebay_budget.inspection import ModelConfig, ModelError

MAX_LAYERS = 1_024
_MAX_NUMBER = 2**31

_DTYPES = {
    "F64": "float32",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
}


def dtype_name(stored: str) -> str:
    """Say in which dtype a checkpoint's weights run by default; quantised ones in bfloat16."""
    return _DTYPES.get(stored, "bfloat16")


def read_hf_config(document: Mapping[str, Any], stored_dtype: str) -> ModelConfig:
    """Read a config.json; stored_dtype (the weights' own) counts where it names none.

    Raises: ModelError where the engine does not run such a model, or a number is missing.
    """
    family = find_family(_architecture_of(document))
    _check_rope(document)
    _check_sliding_window(document, family)
    _check_details(document)
    num_heads = _number(document, "num_attention_heads")
    hidden_size = _number(document, "hidden_size")
    num_kv_heads = family.default_num_kv_heads or num_heads
    if "num_key_value_heads" in document:
        num_kv_heads = _number(document, "num_key_value_heads", num_heads)
    return _checked(
        ModelConfig(
            architecture=family.architecture,
            num_layers=_number(document, "num_hidden_layers"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=_head_dim(document, "head_dim", hidden_size, num_heads),
            intermediate_size=_number(document, "intermediate_size"),
            vocab_size=_number(document, "vocab_size"),
            max_position_embeddings=_number(
                document, "max_position_embeddings", family.default_max_position_embeddings
            ),
            tie_word_embeddings=document.get("tie_word_embeddings") is True,
            dtype=_dtype_of(document, stored_dtype),
        )
    )


def read_gguf_config(
    metadata: Mapping[str, Any], vocab_size: int, has_head: bool, stored_dtype: str
) -> ModelConfig:
    """Read a GGUF's metadata; the vocabulary's size and the head are known from its tensors.

    Raises: ModelError as read_hf_config does.
    """
    kind = metadata.get("general.architecture")
    if not isinstance(kind, str):
        raise ModelError("BadConfig", "The GGUF names no general.architecture.")
    family = find_family(GGUF_ARCHITECTURES.get(kind, kind))
    _check_gguf_details(metadata, kind)
    num_heads = _number(metadata, f"{kind}.attention.head_count")
    hidden_size = _number(metadata, f"{kind}.embedding_length")
    head_dim = _head_dim(metadata, f"{kind}.attention.key_length", hidden_size, num_heads)
    _expect_equal(metadata, f"{kind}.attention.value_length", head_dim)
    _expect_equal(metadata, f"{kind}.rope.dimension_count", head_dim)
    return _checked(
        ModelConfig(
            architecture=family.architecture,
            num_layers=_number(metadata, f"{kind}.block_count"),
            hidden_size=hidden_size,
            num_heads=num_heads,
            num_kv_heads=_number(metadata, f"{kind}.attention.head_count_kv", num_heads),
            head_dim=head_dim,
            intermediate_size=_number(metadata, f"{kind}.feed_forward_length"),
            vocab_size=vocab_size,
            max_position_embeddings=_number(metadata, f"{kind}.context_length"),
            tie_word_embeddings=not has_head,
            dtype=dtype_name(stored_dtype),
        )
    )


def _architecture_of(document: Mapping[str, Any]) -> str:
    architectures = document.get("architectures")
    if isinstance(architectures, list) and architectures and isinstance(architectures[0], str):
        return architectures[0]
    raise ModelError("BadConfig", "The config.json names no architecture.")


def _check_rope(document: Mapping[str, Any]) -> None:
    for key in ("rope_scaling", "rope_parameters"):
        rope = document.get(key)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise ModelError("BadConfig", f"{key} in config.json is no object.")
        kind = rope.get("rope_type", rope.get("type", "default"))
        if kind != "default" or any(isinstance(value, dict) for value in rope.values()):
            raise _scaled_rope(str(kind)[:40])
    for holder in (document, document.get("rope_parameters") or {}):
        factor = holder.get("partial_rotary_factor")
        if factor not in (None, 1, 1.0):
            raise _unsupported("partial_rotary_factor", factor, "1")


def _check_sliding_window(document: Mapping[str, Any], family: Family) -> None:
    window = document.get("sliding_window", family.default_sliding_window)
    if family.architecture == "MistralForCausalLM":
        is_active = window is not None
    else:
        is_active = document.get("use_sliding_window") is True
    layer_types = document.get("layer_types") or []
    is_uniform = isinstance(layer_types, list) and set(map(str, layer_types)) <= {"full_attention"}
    if is_active or not is_uniform:
        raise _sliding_window(window)


def _check_details(document: Mapping[str, Any]) -> None:
    quantization = document.get("quantization_config")
    if quantization is not None:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else None
        raise ModelError(
            "UnsupportedQuantization",
            f"The checkpoint is quantised ({str(method)[:40]}), which the runtime does not read; "
            "use the model's unquantised checkpoint, or a GGUF of Q8_0, Q4_0 or Q4_1.",
        )
    activation = document.get("hidden_act", "silu")
    if activation != "silu":
        raise _unsupported("hidden_act", activation, "silu")


def _check_gguf_details(metadata: Mapping[str, Any], kind: str) -> None:
    scaling = metadata.get(f"{kind}.rope.scaling.type", "none")
    if scaling != "none":
        raise _scaled_rope(str(scaling)[:40])
    if metadata.get(f"{kind}.rope.scale_linear", 1.0) != 1.0:
        raise _scaled_rope("linear")
    if metadata.get(f"{kind}.attention.sliding_window"):
        raise _sliding_window(metadata[f"{kind}.attention.sliding_window"])
    if metadata.get(f"{kind}.expert_count"):
        raise ModelError(
            "UnsupportedArchitecture",
            f"The GGUF is a mixture of {metadata[f'{kind}.expert_count']} experts, which the "
            "runtime does not support.",
        )


def _scaled_rope(kind: str) -> ModelError:
    return ModelError(
        "UnsupportedRopeScaling",
        f"The model scales its rotary embedding ({kind}), which the runtime does not support.",
    )


def _sliding_window(window: Any) -> ModelError:
    return ModelError(
        "UnsupportedSlidingWindow",
        f"The model attends within a sliding window ({str(window)[:40]} tokens), which the runtime "
        "does not support.",
    )


def _unsupported(key: str, value: Any, only: str) -> ModelError:
    return ModelError(
        "UnsupportedConfig",
        f"The model's {key} is {str(value)[:40]}; the runtime supports {only} only.",
    )


def _number(document: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = document.get(key)
    if value is None:
        value = default
    if value is None:
        raise ModelError("BadConfig", f"The model's configuration has no {key}.")
    if type(value) is not int or not 1 <= value < _MAX_NUMBER:
        raise ModelError("BadConfig", f"The model's {key} is {str(value)[:40]}, no usable number.")
    return value


def _head_dim(document: Mapping[str, Any], key: str, hidden_size: int, num_heads: int) -> int:
    """The stated head_dim; hidden_size / heads only where none is, as transformers does."""
    if document.get(key) is not None:
        return _number(document, key)
    if hidden_size % num_heads:
        raise ModelError(
            "BadConfig",
            f"The model states no {key}, and its hidden size {hidden_size} is not divisible by its "
            f"{num_heads} heads.",
        )
    return hidden_size // num_heads


def _expect_equal(metadata: Mapping[str, Any], key: str, expected: int) -> None:
    if metadata.get(key, expected) != expected:
        raise _unsupported(key, metadata[key], f"{expected}, the size of a head,")


def _dtype_of(document: Mapping[str, Any], stored_dtype: str) -> str:
    named = document.get("dtype", document.get("torch_dtype"))
    return str(named) if named in tuple(_DTYPES.values()) else dtype_name(stored_dtype)


def _checked(config: ModelConfig) -> ModelConfig:
    if config.num_layers > MAX_LAYERS:
        raise ModelError(
            "BadConfig", f"The model states {config.num_layers} layers, more than {MAX_LAYERS}."
        )
    if config.num_heads % config.num_kv_heads:
        raise ModelError(
            "BadConfig",
            f"The model's {config.num_heads} heads are not divisible by its {config.num_kv_heads} "
            "key-value heads.",
        )
    return config
