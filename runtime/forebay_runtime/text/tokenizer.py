"""Text to token ids and back, the same whether the model is a Hugging Face folder or a GGUF file.

Called by the server; knows no HTTP and no torch. Ids become bytes one at a time (`token_bytes`),
so that a stream costs the same per token however long it grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, processors

from forebay_budget.inspection import ModelError
from forebay_runtime.loading.end_tokens import folder_end_tokens

# Special tokens that end an answer whatever the model's files say: they are what chat models are
# trained to end a turn with, and converted files often name only one of them.
END_OF_TURN = frozenset(
    {
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end_of_text|>",
        "<|endoftext|>",
        "<|end|>",
        "<end_of_turn>",
    }
)


class TokenizerError(ValueError):
    """The model's tokenizer cannot be used; the message is one sentence that leads to the cause."""


@dataclass(frozen=True)
class SpecialTokens:
    """What the model's files say about its own special tokens.

    names: the texts that chat templates refer to (bos_token, eos_token …).
    adds_bos: a prompt begins with the bos token.
    """

    names: Mapping[str, str]
    eos_token_ids: frozenset[int]
    bos_token_id: int | None
    adds_bos: bool


class Tokenizer:
    """One model's tokenizer; safe to use from several threads."""

    def __init__(self, backend: Backend, special: SpecialTokens) -> None:
        """Wrap a `tokenizers` tokenizer.

        Raises: TokenizerError if it has no tokens, or a decoder of a kind that cannot be undone
        token by token.
        """
        vocabulary = backend.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise TokenizerError("The model's tokenizer has an empty vocabulary")
        backend.no_padding()
        backend.no_truncation()
        self._backend = backend
        self._added = backend.get_added_tokens_decoder()
        self._pieces: dict[int, bytes] = {}
        steps = _decoder_steps(backend.decoder)
        self._is_byte_level = _is_byte_level(steps)
        self._prefixes_space = _prefixes_space(steps)
        self.special = special
        self.longest_token_chars = max(map(len, vocabulary))
        ends = {id_ for id_, token in self._added.items() if token.content in END_OF_TURN}
        self.eos_token_ids = special.eos_token_ids | ends

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Turn text into ids; the text of a special token becomes that token.

        add_special_tokens: put the bos token in front if the model wants one there.
        """
        # A batch of one, because only for batches the library lets other threads run meanwhile.
        encodings = self._backend.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encodings[0].ids
        bos = self.special.bos_token_id
        if add_special_tokens and self.special.adds_bos and bos is not None:
            return [bos, *ids]
        return ids

    def decode(self, token_ids: Iterable[int]) -> str:
        """Turn ids into text with special tokens written out, so that encode undoes it."""
        text = b"".join(map(self._piece, token_ids)).decode("utf-8", errors="replace")
        if not self._prefixes_space:
            return text
        bos = self.special.names.get("bos_token", "")
        prefix = bos if bos and text.startswith(bos) else ""
        return prefix + text[len(prefix) :].removeprefix(" ")  # encode puts a space there

    def token_bytes(self, token_id: int, keeps_special: bool = False) -> bytes:
        """The bytes that a token adds to an answer.

        Those of special tokens only where keeps_special says so; none for unknown ids.
        """
        added = self._added.get(token_id)
        if added is not None and added.special and not keeps_special:
            return b""
        return self._piece(token_id)

    def save(self, path: Path) -> None:
        """Write it as tokenizer.json, with the bos token in front where prompts begin with one."""
        backend = Backend.from_str(self._backend.to_str())
        bos, bos_token_id = self.special.names.get("bos_token"), self.special.bos_token_id
        if self.special.adds_bos and bos is not None and bos_token_id is not None:
            backend.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, bos_token_id)]
            )
        backend.save(str(path))

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary spells it."""
        return self._backend.id_to_token(token_id) or ""

    def vocabulary(self) -> dict[str, int]:
        """Every token's id by its spelling, added tokens too."""
        vocabulary: dict[str, int] = self._backend.get_vocab(with_added_tokens=True)
        return vocabulary

    def _piece(self, token_id: int) -> bytes:
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._spell(token_id)
        return piece

    def _spell(self, token_id: int) -> bytes:
        if token_id in self._added:
            return str(self._added[token_id].content).encode()
        token = self.token_text(token_id)
        if self._is_byte_level:
            values = [_BYTE_OF_CHAR.get(char) for char in token]
            return token.encode() if None in values else bytes(v for v in values if v is not None)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace("▁", " ").encode()


def read_folder_tokenizer(folder: Path) -> Tokenizer:
    """Read the tokenizer of a Hugging Face folder.

    Raises: TokenizerError if there is no tokenizer.json, or one that cannot be read.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(
            f"{folder} has no tokenizer.json; save the model's fast tokenizer beside its weights"
        )
    try:
        backend = Backend.from_file(str(path))
    except Exception as exc:  # the library raises plain Exception
        raise TokenizerError(f"{path} could not be read as a tokenizer: {exc}") from exc
    return Tokenizer(backend, _folder_special_tokens(folder, backend))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or an empty one where there is no file.

    Raises: TokenizerError if the file holds something else.
    """
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError, RecursionError) as exc:
        raise TokenizerError(f"{path} is not valid JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds no JSON object")
    return value


def _folder_special_tokens(folder: Path, backend: Backend) -> SpecialTokens:
    config = read_json(folder / "special_tokens_map.json")
    config |= read_json(folder / "tokenizer_config.json")
    names = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = config.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            names[name] = text
    bos = backend.token_to_id(names["bos_token"]) if "bos_token" in names else None
    adds_bos = config.get("add_bos_token")
    if adds_bos is None:  # then the post-processor in tokenizer.json decides
        adds_bos = bos is not None and backend.encode("").ids[:1] == [bos]
    try:
        ends = folder_end_tokens(folder)
    except ModelError as error:
        raise TokenizerError(error.message) from error
    if "eos_token" in names and (end := backend.token_to_id(names["eos_token"])) is not None:
        ends |= {end}
    return SpecialTokens(names, ends, bos, bool(adds_bos))


def _decoder_steps(decoder: decoders.Decoder | None) -> list[dict[str, Any]]:
    """The steps by which tokens become text."""
    if decoder is None:
        return []
    document: dict[str, Any] = json.loads(decoder.__getstate__())
    return list(document["decoders"]) if document["type"] == "Sequence" else [document]


def _is_byte_level(steps: list[dict[str, Any]]) -> bool:
    """Does the vocabulary spell bytes (True), or text with `▁` for spaces (False)?"""
    kinds = {str(step["type"]) for step in steps}
    if "ByteLevel" in kinds:
        return True
    if kinds & {"ByteFallback", "Metaspace"}:
        return False
    raise TokenizerError(
        f"The tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'}) is not supported; "
        "supported are byte-level BPE and SentencePiece"
    )


def _prefixes_space(steps: list[dict[str, Any]]) -> bool:
    """Does encoding put a space before a text? Then decoding takes it off."""
    return any(
        step["type"] == "Strip"
        or (step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
        for step in steps
    )


def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE spells the 256 bytes with (Radford et al. 2019).

    Printable Latin-1 bytes stand for themselves; the others, in order, for U+0100 and up.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    alphabet = {chr(byte): byte for byte in printable}
    others = (byte for byte in range(256) if byte not in printable)
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTE_OF_CHAR = _byte_alphabet()
