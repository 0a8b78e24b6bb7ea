"""A runner without a model: the next token is a sum over all tokens so far, from a fake cache.

It stands at the seam between engine and runner. Every computed token is written into its block's
slot, and what a request's blocks hold is read back before a token is made, so that a block lost,
shared or read too early changes an answer or fails.
"""

from forebay_runtime.request import Request
from forebay_runtime.scheduler import Batch

NUM_TOKENS = 97


def next_token(token_ids: list[int]) -> int:
    """What the fake model says after these tokens; order counts."""
    total = 0
    for token_id in token_ids:
        total = (total * 31 + token_id + 1) % 1_000_003
    return total % NUM_TOKENS


def answer_alone(prompt_token_ids: list[int], num_tokens: int) -> list[int]:
    """What a request gets that nothing disturbs."""
    token_ids = list(prompt_token_ids)
    for _ in range(num_tokens):
        token_ids.append(next_token(token_ids))
    return token_ids[len(prompt_token_ids) :]


class FakeRunner:
    """Computes batches over a cache of token ids; its logits are the next tokens themselves."""

    def __init__(self, block_size: int) -> None:
        self.num_cold = 0
        self.batches: list[Batch] = []
        self._block_size = block_size
        self._cache: dict[int, tuple[int, int]] = {}

    def run(self, batch: Batch) -> list[int]:
        self.batches.append(batch)
        for chunk in batch.chunks:
            tokens = chunk.request.token_ids(chunk.start, chunk.end)
            for position, token_id in zip(range(chunk.start, chunk.end), tokens, strict=True):
                self._cache[self._slot(chunk.request, position)] = (position, token_id)
        return [next_token(self._read(request)) for request in batch.sampled]

    def _read(self, request: Request) -> list[int]:
        cached = [self._cache[self._slot(request, p)] for p in range(request.num_tokens)]
        if [position for position, _ in cached] != list(range(request.num_tokens)):
            raise AssertionError(f"the blocks of {request.request_id} hold someone else's tokens")
        return [token_id for _, token_id in cached]

    def _slot(self, request: Request, position: int) -> int:
        block_id = request.block_ids[position // self._block_size]
        return block_id * self._block_size + position % self._block_size


class FakeSampler:
    """Takes what the fake runner gave."""

    def sample(self, logits: list[int], batch: Batch) -> list[int]:
        return logits
