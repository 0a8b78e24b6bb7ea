"""Chooses a step's tokens by the GPU's kernels: nothing is read back, and little is sent.

All that a step's requests want travels in one block: a few numbers a row, and bits for the tokens
of those rows whose tokens are not all allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from forebay_kernels.gpu.sampling.draw import Wishes, draw
from forebay_kernels.gpu.sampling.score_edits import EditedRows, edit_scores
from forebay_runtime.request import Request
from forebay_runtime.sampling.device_edits import Bits, DeviceEdits
from forebay_runtime.sampling.scores import Ranking, rank_tokens
from forebay_runtime.sampling.token_counts import DeviceTokenCounts
from forebay_runtime.sampling.transfer import send


class DeviceChoice:
    """Tokens of a device's logits; requests' counts and edits live as long as they do."""

    def __init__(
        self, end_token_ids: frozenset[int], vocab_size: int, device: torch.device
    ) -> None:
        """end_token_ids: what min_tokens keeps away besides a request's own stop tokens."""
        self._end_token_ids = end_token_ids
        self._vocab_size = vocab_size
        self._device = device
        self._edits: WeakKeyDictionary[Request, DeviceEdits] = WeakKeyDictionary()
        self._counts = DeviceTokenCounts(vocab_size, device)
        self._most_rows = 1

    @torch.inference_mode()
    def choose(
        self, logits: Tensor, requests: Sequence[Request], assumed: Sequence[tuple[int, ...]] = ()
    ) -> Tensor:
        """Each row's token. Shapes: logits [R, V] float32; out [2, R] int64: tokens, outcomes.

        assumed: what each row takes for granted after its request's tokens; empty for nothing, and
        nothing where tokens are counted, as counts grow with each token that is drawn.
        """
        assumed = assumed or ((),) * len(requests)
        self._most_rows = max(self._most_rows, len(requests))
        edits = [self._edits_of(request) for request in requests]
        edited_rows = [row for row, edit in enumerate(edits) if edit.is_any]
        penalised = [row for row in edited_rows if edits[row].is_penalised]
        count_rows = np.full(len(requests), -1, np.int32)
        if penalised:
            count_rows[penalised] = self._counts.rows(
                [requests[row] for row in penalised], self._most_rows
            )
        sources = np.full(len(requests), -1, np.int32)
        sources[edited_rows] = np.arange(len(edited_rows))
        wishes = Wishes(*send(_wishes(requests, assumed, sources, count_rows), self._device))
        edited = logits
        if edited_rows:
            chosen = [(requests[row], assumed[row], edits[row]) for row in edited_rows]
            edited = self._edit(logits, edited_rows, chosen, count_rows[edited_rows])
        return draw(logits, edited, wishes, self._counts.counts)

    def rank(self, logits: Tensor, token_ids: Tensor, num_top: int) -> Ranking:
        """Each row's token ranked."""
        return rank_tokens(logits, token_ids, num_top)

    def _edits_of(self, request: Request) -> DeviceEdits:
        edits = self._edits.get(request)
        if edits is None:
            edits = self._edits[request] = DeviceEdits(
                request, self._end_token_ids, self._vocab_size, self._device
            )
        return edits

    def _edit(
        self,
        logits: Tensor,
        rows: Sequence[int],
        chosen: Sequence[tuple[Request, tuple[int, ...], DeviceEdits]],
        count_rows: np.ndarray[tuple[int], np.dtype[np.int32]],
    ) -> Tensor:
        """The rows with edits, edited. Shapes: logits [R, V]; out [E, V]."""
        masks = [edits.mask(request, own) for request, own, edits in chosen]
        requests = [request for request, _, _ in chosen]
        sent = send(
            [
                np.array(rows, np.int64),
                _stack(masks, -(-self._vocab_size // 8)),
                *_edited_rows(requests, masks, count_rows),
            ],
            self._device,
        )
        edited = logits.index_select(0, sent[0])
        for row, (_, _, edits) in enumerate(chosen):
            edits.add_bias(edited[row])
        edit_scores(edited, EditedRows(*sent[2:]), self._counts.counts, sent[1])
        return edited


def _wishes(
    requests: Sequence[Request],
    assumed: Sequence[tuple[int, ...]],
    sources: np.ndarray,
    count_rows: np.ndarray,
) -> list[np.ndarray]:
    """As Wishes has them."""
    sampling = [request.sampling for request in requests]
    temperatures = [0.0 if each.is_greedy else each.temperature for each in sampling]
    keys = [
        0 if request.sampling.is_greedy else request.draw(len(own))
        for request, own in zip(requests, assumed, strict=True)
    ]
    return [
        sources,
        np.array(temperatures, np.float32),
        np.array([each.top_k for each in sampling], np.int64).clip(max=2**31 - 1).astype(np.int32),
        np.array([each.top_p for each in sampling], np.float32),
        np.array([each.min_p for each in sampling], np.float32),
        np.array(keys, np.int64),
        count_rows,
    ]


def _edited_rows(
    requests: Sequence[Request], masks: Sequence[Bits | None], count_rows: np.ndarray
) -> list[np.ndarray]:
    """As EditedRows has them."""
    has_mask = np.array([mask is not None for mask in masks])
    sampling = [request.sampling for request in requests]
    return [
        count_rows,
        np.array([each.repetition_penalty for each in sampling], np.float32),
        np.array([each.frequency_penalty for each in sampling], np.float32),
        np.array([each.presence_penalty for each in sampling], np.float32),
        np.where(has_mask, np.cumsum(has_mask) - 1, -1).astype(np.int32),
    ]


def _stack(masks: Sequence[Bits | None], num_bytes: int) -> np.ndarray:
    """The masks that there are: [M, bytes]; one of nothing where there are none."""
    there = [mask for mask in masks if mask is not None]
    return np.stack(there) if there else np.zeros((1, num_bytes), np.uint8)
