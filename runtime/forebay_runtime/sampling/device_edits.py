"""What a request's wishes come to for the device: which tokens may come, and what is added to some.

A request's edits are built once, at its first token. All bans of a step are one bit a token, made
here and sent, as most of them are the host's to know; penalties go by counts that stay there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from forebay_runtime.request import Request
from forebay_runtime.sampling.transfer import send

Bits = NDArray[np.uint8]
"""A bit for each token, lowest first."""


class DeviceEdits:
    """One request's edits."""

    def __init__(
        self,
        request: Request,
        end_token_ids: frozenset[int],
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """end_token_ids: the model's own."""
        sampling = request.sampling
        self._vocab_size = vocab_size
        self._longer = [word for word in sampling.bad_words if len(word) > 1]
        self._always = self._constant_bans(request)
        self._ends = sampling.stop_token_ids | end_token_ids if sampling.min_tokens else frozenset()
        self._bias = _known_biases(dict(sampling.logit_bias), vocab_size, device)
        self.is_penalised = (
            sampling.repetition_penalty != 1
            or sampling.frequency_penalty != 0
            or sampling.presence_penalty != 0
        )
        self.is_any = (
            self.is_penalised
            or self._bias is not None
            or self._always is not None
            or bool(self._longer or self._ends)
            or request.constraint is not None
        )

    def add_bias(self, scores: Tensor) -> None:
        """Add to some tokens' scores [V] in place."""
        if self._bias is not None:
            token_ids, amounts = self._bias
            scores.index_add_(0, token_ids, amounts)

    def mask(self, request: Request, assumed: Sequence[int] = ()) -> Bits | None:
        """The tokens that may come next, after those taken for granted; None for all."""
        banned = self._bans(request, assumed)
        bits = self._always
        if banned:
            every = np.full(-(-self._vocab_size // 8), 0xFF, np.uint8)
            bits = (every if bits is None else bits) & ~self._to_bits(banned)
        if request.constraint is not None:
            allowed = np.zeros(-(-self._vocab_size // 8), np.uint8)
            told = np.frombuffer(request.constraint.allowed(), np.uint8)[: len(allowed)]
            allowed[: len(told)] = told
            bits = allowed if bits is None else bits & allowed
        return bits

    def _bans(self, request: Request, assumed: Sequence[int]) -> set[int]:
        """What may not come after what came: ends of words, and ends before min_tokens."""
        sampling, output = request.sampling, request.output_token_ids
        if self._longer and assumed:
            output = [*output, *assumed]
        banned = {word[-1] for word in self._longer if tuple(output[1 - len(word) :]) == word[:-1]}
        if self._ends and request.num_sampled_tokens + len(assumed) < sampling.min_tokens:
            # What is structurally complete can only end, however short it is.
            if request.constraint is None or not request.constraint.is_complete:
                banned |= self._ends
        return banned

    def _constant_bans(self, request: Request) -> Bits | None:
        sampling = request.sampling
        words = {word[0] for word in sampling.bad_words if len(word) == 1}
        allowed = sampling.allowed_token_ids
        if allowed is not None:
            return self._to_bits(allowed - words)
        return ~self._to_bits(words) if words else None

    def _to_bits(self, token_ids: Iterable[int]) -> Bits:
        """Token ids as bits; those beyond the vocabulary name nothing and are left out."""
        is_in = np.zeros(self._vocab_size, np.bool_)
        is_in[[each for each in token_ids if 0 <= each < self._vocab_size]] = True
        return np.packbits(is_in, bitorder="little")


def _known_biases(
    biases: dict[int, float], vocab_size: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    """Token ids and what is added to each, on the device."""
    known = sorted(each for each in biases if 0 <= each < vocab_size)
    if not known:
        return None
    amounts = np.array([biases[each] for each in known], np.float32)
    token_ids, sent = send([np.array(known, np.int64), amounts], device)
    return token_ids, sent
