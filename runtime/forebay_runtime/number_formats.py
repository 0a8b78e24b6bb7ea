"""The names of number formats: ours, and those by which vLLM's users ask for the same.

Imports no torch, so that flags are checked before anything slow is imported.
"""

from __future__ import annotations

DTYPES = ("auto", "float32", "bfloat16", "float16")
KV_CACHE_DTYPES = (*DTYPES, "fp8", "int8", "int4")

_KV_ALIASES = {
    "fp8_e4m3": "fp8",
    "int8_per_token_head": "int8",
    "int4_per_token_head": "int4",
    "half": "float16",
    "float": "float32",
}


def to_kv_cache_dtype(text: str) -> str:
    """One of KV_CACHE_DTYPES, also by another name; what is none is left for the config."""
    name = text.lower()
    return _KV_ALIASES.get(name, name)
