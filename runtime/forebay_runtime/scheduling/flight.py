"""A step in flight: what it will have done to its requests, and who may go on before it lands.

While a step runs, the next is planned as if each request that it samples had its token already. The
token counts, its id is pending: the device takes it from the samples, and the host learns it when
the step lands. Steps run in the order in which they were launched. So blocks that are given back
while a step in flight still writes to them may go to the next one: it writes them later, and reads
only what it wrote. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Chunk


def num_ready_tokens(request: Request, max_model_len: int) -> int:
    """How many of a request's tokens the next step may compute; 0 if it waits for a pending one.

    A pending token may be computed, unless it is the last by length, or the host must know it for
    the next one to be sampled. That it may turn out to be a stop token holds nobody up: what was
    computed beyond it is thrown away. Where tokens were proposed, it is not known how many will be
    pending.
    """
    if request.num_pending_tokens:
        if request.needs_known_tokens or request.num_flying_drafts:
            return 0
        if request.num_coming_tokens >= min(request.num_wanted_tokens, max_model_len):
            return 0
    return request.num_missing_tokens


def launch(chunks: Sequence[Chunk]) -> None:
    """Count a batch's tokens as flying, and those that it samples as pending."""
    row = 0
    for chunk in chunks:
        request = chunk.request
        request.num_flying_tokens += chunk.num_tokens
        request.num_flying_drafts = len(chunk.proposed)
        if chunk.catches_up:
            request.num_pending_tokens += 1
            request.pending_row = row
            row += 1 + len(chunk.proposed)


def land(chunk: Chunk) -> bool:
    """Count a chunk's tokens as landed; false if they were lost with their blocks meanwhile."""
    request = chunk.request
    if chunk.catches_up:
        request.num_pending_tokens -= 1
    if chunk.proposed:
        request.num_flying_drafts = 0
    is_kept = request.num_flying_tokens > 0
    if is_kept:
        request.num_flying_tokens -= chunk.num_tokens
    return is_kept
