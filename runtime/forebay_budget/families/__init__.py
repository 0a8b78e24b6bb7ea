"""The model families that the engine runs, one file each.

A new one is a file here and an entry below; the decoder, the sizing and what is refused follow.
"""

from forebay_budget.families.gemma2 import GEMMA2
from forebay_budget.families.gemma3 import GEMMA3
from forebay_budget.families.llama import LLAMA
from forebay_budget.families.mistral import MISTRAL
from forebay_budget.families.mixtral import MIXTRAL
from forebay_budget.families.phi3 import PHI3
from forebay_budget.families.qwen2 import QWEN2
from forebay_budget.families.qwen2_moe import QWEN2_MOE
from forebay_budget.families.qwen3 import QWEN3
from forebay_budget.families.qwen3_moe import QWEN3_MOE
from forebay_budget.family import Family
from forebay_budget.inspection import ModelError

FAMILIES: dict[str, Family] = {
    family.architecture: family
    for family in (
        LLAMA,
        MISTRAL,
        MIXTRAL,
        QWEN2,
        QWEN2_MOE,
        QWEN3,
        QWEN3_MOE,
        GEMMA2,
        GEMMA3,
        PHI3,
    )
}
_BY_GGUF_KIND = {kind: family for family in FAMILIES.values() for kind in family.gguf_kinds}


def find_family(architecture: str) -> Family:
    """Return the family of an architecture in Hugging Face's words.

    Raises: ModelError with the reason UnsupportedArchitecture that lists the known ones.
    """
    family = FAMILIES.get(architecture)
    if family is None:
        raise _unknown(architecture, FAMILIES)
    return family


def find_gguf_family(kind: str, *, has_experts: bool) -> Family:
    """Return the family of a GGUF's general.architecture; Mixtral's files call themselves llama.

    Raises: ModelError with the reason UnsupportedArchitecture that lists the known ones.
    """
    family = _BY_GGUF_KIND.get(kind)
    if family is None:
        raise _unknown(kind, _BY_GGUF_KIND)
    return MIXTRAL if has_experts and family is LLAMA else family


def _unknown(name: str, known: dict[str, Family]) -> ModelError:
    return ModelError(
        "UnsupportedArchitecture",
        f"The architecture {name[:80]!r} is not supported; supported are {', '.join(known)}.",
    )
