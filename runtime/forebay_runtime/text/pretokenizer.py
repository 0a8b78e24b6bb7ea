"""How a byte-level BPE vocabulary cuts text into words before merging, by GGUF's name for it.

A GGUF file names its pre-tokenizer (`tokenizer.ggml.pre`) and carries no pattern, so the patterns
are here. Called by gguf_tokenizer. A name that is not in the table is refused: guessing would give
answers that are only slightly wrong.
"""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

_ENGLISH_ENDINGS = r"'s|'t|'re|'ve|'m|'ll|'d"
_ANY_CASE_ENDINGS = rf"(?i:{_ENGLISH_ENDINGS})"
_SPACES = r"\s+(?!\S)|\s+"
_LINES = r"\s*[\r\n]+"
_MARKS_TO_LINE_END = r" ?[^\s\p{L}\p{N}]+[\r\n]*"

_GPT2 = rf"{_ENGLISH_ENDINGS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|{_SPACES}"
_ONE_DIGIT = r"\p{N}"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_ANY_CASE_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_MARKS_TO_LINE_END}|{_LINES}|{_SPACES}"
_QWEN2 = rf"{_ANY_CASE_ENDINGS}|{_WORD}|\p{{N}}|{_MARKS_TO_LINE_END}|{_LINES}|{_SPACES}"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_LINES}|{_SPACES}"
)

# Applied one after another, each to the pieces that the one before it left.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "smollm": (_ONE_DIGIT, _GPT2),
    "starcoder": (_ONE_DIGIT, _GPT2),
    "refact": (_ONE_DIGIT, _GPT2),
    "command-r": (_ONE_DIGIT, _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
    "deepseek-r1-qwen": (_QWEN2,),
    "tekken": (_TEKKEN,),
}

# These vocabularies hold whole words that no chain of their merges reaches.
IGNORES_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3", "tekken"})


def build_pretokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """Build the pre-tokenizer that GGUF calls `name`.

    Raises: KeyError if the name is unknown.
    """
    splits: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in _PATTERNS[name]
    ]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*splits, to_bytes])


def known_pretokenizers() -> list[str]:
    """Every name that build_pretokenizer takes, sorted."""
    return sorted(_PATTERNS)
