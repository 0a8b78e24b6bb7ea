"""A runner without a model, over a cache that really holds what blocks hold.

It stands at the seam between engine and runner. What a token leaves in its block's slot depends on
the token and on all that its window sees in the slots before it, as keys and values of deeper
layers do; the next token is read off the last slot. So a block that is stale, lost, shared with the
wrong request or let go too early changes an answer.
"""

import random
from collections.abc import Iterable

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Batch
from forebay_runtime.step_result import Sampled, StepResult

NUM_TOKENS = 97
_MODULUS = (1 << 61) - 1


def _value(token_id: int, seen: Iterable[int]) -> int:
    """What a token leaves behind after what it sees; order counts."""
    total = token_id + 1
    for value in seen:
        total = (total * 1_000_003 + value) % _MODULUS
    return total


def answer_alone(
    prompt_token_ids: list[int],
    num_tokens: int,
    window: int | None = None,
    seed: int | None = None,
) -> list[int]:
    """What a request gets that nothing disturbs; without a seed it is greedy."""
    token_ids: list[int] = list(prompt_token_ids)
    values: list[int] = []
    chance = random.Random(seed) if seed is not None else None
    while len(token_ids) < len(prompt_token_ids) + num_tokens:
        while len(values) < len(token_ids):
            seen = values if window is None else values[max(0, len(values) - window + 1) :]
            values.append(_value(token_ids[len(values)], seen))
        token_ids.append(_choose(values[-1], chance.getrandbits(63) if chance else 0))
    return token_ids[len(prompt_token_ids) :]


def _choose(value: int, draw: int) -> int:
    return (value + draw) % NUM_TOKENS


class FakeRunner:
    """Computes batches over a cache of numbers; its logits are what the last slots hold."""

    def __init__(self, block_size: int, window: int | None = None) -> None:
        self.num_cold = 0
        self.batches: list[Batch] = []
        self._block_size = block_size
        self._window = window
        self._slots: dict[int, int] = {}

    def run(self, batch: Batch) -> StepResult:
        self.batches.append(batch)
        for chunk in batch.chunks:
            token_ids = chunk.request.token_ids(chunk.start, chunk.end)
            slots = self._find_slots(chunk.request, chunk.end)
            for position, token_id in enumerate(token_ids, chunk.start):
                first = 0 if self._window is None else max(0, position - self._window + 1)
                seen = [self._slots[slot] for slot in slots[first:position]]
                self._slots[slots[position]] = _value(token_id, seen)
        return StepResult([self._last_value(request) for request in batch.sampled])

    def _last_value(self, request: Request) -> int:
        return self._slots[self._find_slots(request, request.num_tokens)[-1]]

    def _find_slots(self, request: Request, num_tokens: int) -> list[int]:
        size, block_ids = self._block_size, request.block_ids
        return [block_ids[place // size] * size + place % size for place in range(num_tokens)]


class FakeSampler:
    """Takes the token that the last slot says, or moves on from it by chance."""

    def sample(self, result: StepResult, batch: Batch) -> Sampled:
        return Sampled(
            tuple(
                _choose(value, 0 if request.sampling.is_greedy else request.draw())
                for value, request in zip(result.logits, batch.sampled, strict=True)
            )
        )
