"""Build a tokenizer from a GGUF file's metadata, which holds a vocabulary and no tokenizer.json.

Called by the server when the model is a GGUF file. Two kinds exist among Llama-architecture models:
`gpt2` (byte-level BPE with merges) and `llama` (SentencePiece BPE, whose merges are implied by the
vocabulary's scores). Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, decoders, normalizers
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE

from forebay_runtime.loading.end_tokens import gguf_end_tokens
from forebay_runtime.text.pretokenizer import (
    IGNORES_MERGES,
    build_pretokenizer,
    known_pretokenizers,
)
from forebay_runtime.text.tokenizer import SpecialTokens, Tokenizer, TokenizerError

_UNKNOWN, _CONTROL, _USER_DEFINED, _NORMAL = 2, 3, 4, 1  # tokenizer.ggml.token_type
_ID_KEYS = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def build_gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer that the metadata describes.

    Raises: TokenizerError naming what is missing or not supported.
    """
    try:
        return _build(metadata)
    except TokenizerError:
        raise
    except Exception as exc:  # the library raises plain Exception, and metadata can hold anything
        raise TokenizerError(
            f"The GGUF file's tokenizer is damaged ({type(exc).__name__}: {exc})"
        ) from exc


def _build(metadata: Mapping[str, Any]) -> Tokenizer:
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        backend = _build_byte_level(metadata)
    elif kind == "llama":
        backend = _build_sentencepiece(metadata)
    else:
        raise TokenizerError(
            f"The GGUF file's tokenizer model is {kind!r}; supported are 'gpt2' and 'llama'"
        )
    _add_whole_tokens(backend, metadata)
    return Tokenizer(backend, _special_tokens(metadata, kind))


def _build_byte_level(metadata: Mapping[str, Any]) -> Backend:
    name = metadata.get("tokenizer.ggml.pre", "default")
    try:
        pre_tokenizer = build_pretokenizer(name)
    except KeyError:
        raise TokenizerError(
            f"The GGUF file's pre-tokenizer {name!r} is not supported; "
            f"supported are {', '.join(known_pretokenizers())}"
        ) from None
    merges = [tuple(merge.split(" ", 1)) for merge in _array(metadata, "merges")]
    model = BPE(vocab=_vocabulary(metadata), merges=merges, ignore_merges=name in IGNORES_MERGES)
    backend = Backend(model)
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.ByteLevel()
    return backend


def _build_sentencepiece(metadata: Mapping[str, Any]) -> Backend:
    vocabulary = _vocabulary(metadata)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id")
    model = BPE(
        vocab=vocabulary,
        merges=_implied_merges(metadata, vocabulary),
        unk_token=None if unknown is None else _array(metadata, "tokens")[unknown],
        fuse_unk=True,
        byte_fallback=True,
    )
    backend = Backend(model)
    # SentencePiece puts a space before every text, also before one that begins with a space; the
    # library's Metaspace would not.
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
    back: list[decoders.Decoder] = [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend("▁"))
        back.append(decoders.Strip(" ", 1, 0))
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence(back)
    return backend


def _implied_merges(
    metadata: Mapping[str, Any], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Every way to make a token from two others, best score first, as SentencePiece would merge.

    Only normal tokens are made: the others are matched whole, or stand for single bytes.
    """
    tokens, scores = _array(metadata, "tokens"), _array(metadata, "scores")
    types = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    ranked = []
    for token, score, type_ in zip(tokens, scores, types, strict=True):
        if type_ != _NORMAL:
            continue
        for cut in range(len(token) - 1, 0, -1):
            left, right = token[:cut], token[cut:]
            if left in vocabulary and right in vocabulary:
                ranked.append((-score, -cut, left, right))
    ranked.sort(key=lambda merge: merge[:2])
    return [(left, right) for _, _, left, right in ranked]


def _add_whole_tokens(backend: Backend, metadata: Mapping[str, Any]) -> None:
    """Have control tokens, and tokens that users defined, matched whole wherever they stand."""
    tokens = _array(metadata, "tokens")
    types = metadata.get("tokenizer.ggml.token_type") or []
    special, plain = [], []
    for token, type_ in zip(tokens, types, strict=False):
        if type_ in (_CONTROL, _UNKNOWN):
            special.append(AddedToken(token, special=True, normalized=False))
        elif type_ == _USER_DEFINED:
            plain.append(AddedToken(token, special=False, normalized=False))
    backend.add_special_tokens(special)
    backend.add_tokens(plain)


def _special_tokens(metadata: Mapping[str, Any], kind: str) -> SpecialTokens:
    tokens = _array(metadata, "tokens")
    ids = {
        key: metadata[f"tokenizer.ggml.{key}"]
        for key in _ID_KEYS.values()
        if 0 <= metadata.get(f"tokenizer.ggml.{key}", -1) < len(tokens)
    }
    by_default = kind == "llama" or metadata.get("tokenizer.ggml.pre") in IGNORES_MERGES
    return SpecialTokens(
        names={name: tokens[ids[key]] for name, key in _ID_KEYS.items() if key in ids},
        eos_token_ids=gguf_end_tokens(metadata) & frozenset(range(len(tokens))),
        bos_token_id=ids.get("bos_token_id"),
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", by_default)),
    )


def _vocabulary(metadata: Mapping[str, Any]) -> dict[str, int]:
    return {token: index for index, token in enumerate(_array(metadata, "tokens"))}


def _array(metadata: Mapping[str, Any], name: str) -> list[Any]:
    value = metadata.get(f"tokenizer.ggml.{name}")
    if not value:
        raise TokenizerError(f"The GGUF file's metadata has no tokenizer.ggml.{name}")
    return list(value)
