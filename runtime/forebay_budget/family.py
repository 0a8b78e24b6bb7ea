"""The model families that the engine runs.

A family enters here in the same commit that teaches the engine to run it; the inspection and the
runtime both refuse through this package, so that they refuse alike.
"""

from dataclasses import dataclass

from forebay_budget.inspection import ModelError


@dataclass(frozen=True)
class Family:
    """A family, and what transformers assumes where its config.json is silent."""

    architecture: str
    default_num_kv_heads: int | None
    """None: as many as query heads."""
    default_max_position_embeddings: int
    default_sliding_window: int | None = None
    needs_qkv_bias: bool = False


FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        Family("LlamaForCausalLM", None, 2_048),
        Family("MistralForCausalLM", 8, 131_072, default_sliding_window=4_096),
        Family("Qwen2ForCausalLM", 32, 32_768, needs_qkv_bias=True),
    )
}

GGUF_ARCHITECTURES: dict[str, str] = {
    # Mistral's conversions call themselves llama, and without a sliding window they are one.
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
}


def find_family(architecture: str) -> Family:
    """Return the family of an architecture.

    Raises: ModelError with the reason UnsupportedArchitecture that lists the known ones.
    """
    family = FAMILIES.get(architecture)
    if family is None:
        raise ModelError(
            "UnsupportedArchitecture",
            f"The architecture {architecture[:80]!r} is not supported; "
            f"supported are {', '.join(FAMILIES)}.",
        )
    return family
