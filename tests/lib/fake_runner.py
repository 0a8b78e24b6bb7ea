"""A runner without a model, over a cache that really holds what blocks hold.

It stands at the seam between engine and runner. What a token leaves in its block's slot depends on
the token and on all that its window sees in the slots before it, as keys and values of deeper
layers do; the next token is read off the last slot. So a block that is stale, lost, shared with the
wrong request or let go too early changes an answer.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from forebay_runtime.request import Request
from forebay_runtime.scheduling.batch import Batch, Chunk
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


class Later:
    """Numbers of a step, computed when they are asked for, after all steps before it."""

    def __init__(self, compute: Callable[[], list[int]], before: "Later | None" = None) -> None:
        self._compute: Callable[[], list[int]] | None = compute
        self._before = before

    def get(self) -> list[int]:
        if self._compute is not None:
            if self._before is not None:
                self._before.get()
            self._value, self._compute, self._before = self._compute(), None, None
        return self._value


@dataclass(frozen=True)
class Work:
    """A chunk as the device was told of it; what the host changes later is not seen."""

    start: int
    token_ids: list[int]
    slots: list[int]
    carried_row: int | None
    num_sampled: int


class FakeRunner:
    """Computes batches over a cache of numbers; its logits are what the last slots hold.

    is_late: as late as possible, when the host waits for it.
    """

    def __init__(self, block_size: int, window: int | None = None, is_late: bool = False) -> None:
        self.num_cold = 0
        self.batches: list[Batch] = []
        self._block_size = block_size
        self._window = window
        self._is_late = is_late
        self._slots: dict[int, int] = {}
        self._last: Later | None = None
        self._carried: Later | None = None

    def run(self, batch: Batch) -> StepResult:
        self.batches.append(batch)
        works, carried = [self._describe(chunk) for chunk in batch.chunks], self._carried
        self._last = Later(lambda: self._compute(works, carried), self._last)
        if not self._is_late:
            self._last.get()
        return StepResult(self._last)

    def carry(self, token_ids: Later) -> None:
        self._carried = token_ids

    def _describe(self, chunk: Chunk) -> Work:
        token_ids = [*chunk.request.token_ids(chunk.start, chunk.end), *chunk.proposed]
        assert len(token_ids) + (chunk.carried_row is not None) == chunk.num_tokens
        slots = self._find_slots(chunk.request.block_ids, chunk.end)
        num_sampled = 1 + len(chunk.proposed) if chunk.catches_up else 0
        return Work(chunk.start, token_ids, slots, chunk.carried_row, num_sampled)

    def _compute(self, works: list[Work], carried: Later | None) -> list[int]:
        for work in works:
            token_ids = list(work.token_ids)
            if work.carried_row is not None:
                assert carried is not None
                token_ids.append(carried.get()[work.carried_row])
            for position, token_id in enumerate(token_ids, work.start):
                first = 0 if self._window is None else max(0, position - self._window + 1)
                seen = [self._slots[slot] for slot in work.slots[first:position]]
                self._slots[work.slots[position]] = _value(token_id, seen)
        return [
            self._slots[slot]
            for work in works
            for slot in work.slots[len(work.slots) - work.num_sampled :]
        ]

    def _find_slots(self, block_ids: list[int], num_tokens: int) -> list[int]:
        size = self._block_size
        return [block_ids[place // size] * size + place % size for place in range(num_tokens)]


@dataclass(frozen=True)
class FakeDrawn:
    """Tokens that are known when somebody looks."""

    token_ids: Later

    def wait(self) -> Sampled:
        return Sampled(tuple(self.token_ids.get()))

    def is_over(self) -> bool:
        return False


class FakeProposer:
    """Guesses what a request gets alone, and is wrong at every so many places."""

    round_seconds = 0.0

    def __init__(self, window: int | None, wrong_at: int) -> None:
        self._window = window
        self._wrong_at = wrong_at

    def num_ready(self, request: Request, most: int) -> int:
        return most

    def propose(self, wanted: Sequence[tuple[Request, int]]) -> list[tuple[int, ...]]:
        return [self._guess(request, number) for request, number in wanted]

    def _guess(self, request: Request, number: int) -> tuple[int, ...]:
        known, seed = len(request.output_token_ids), request.sampling.seed
        prompt = request.prompt_token_ids
        answer = answer_alone(prompt, known + number, self._window, seed)
        return tuple(
            (token_id + (place % self._wrong_at == 0)) % NUM_TOKENS
            for place, token_id in enumerate(answer[known:], known)
        )


class FakeSampler:
    """Takes the token that the last slot says, or moves on from it by chance."""

    def sample(self, result: StepResult, batch: Batch) -> FakeDrawn:
        for request in batch.sampled:
            assert not request.needs_known_tokens or request.num_pending_tokens == 1
        num_ahead = [len(own) for own in batch.assumed] or [0] * len(batch.sampled)
        draws = [
            0 if request.sampling.is_greedy else request.draw(number)
            for request, number in zip(batch.sampled, num_ahead, strict=True)
        ]
        return FakeDrawn(Later(lambda: list(map(_choose, result.logits.get(), draws))))
