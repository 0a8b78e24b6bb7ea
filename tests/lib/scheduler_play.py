"""A scheduler alone, and requests for it: each test says what it needs, the rest is small."""

import random
from collections.abc import Sequence
from typing import Any

from forebay_runtime.request import Output, Request, SamplingParams
from forebay_runtime.scheduling.admission import Rules
from forebay_runtime.scheduling.batch import Batch, Limits
from forebay_runtime.scheduling.blocks import BlockPool
from forebay_runtime.scheduling.scheduler import Scheduler
from forebay_runtime.step_result import Sampled

BLOCK_SIZE = 4
EOS = 7
TOKEN = 1


def build_scheduler(
    num_blocks: int = 100,
    max_num_seqs: int = 4,
    max_num_batched_tokens: int = 16,
    max_model_len: int = 64,
    **rules: Any,
) -> Scheduler:
    """A scheduler whose clock stands still at 5."""
    limits = Limits(max_num_seqs, max_num_batched_tokens, max_model_len)
    pool = BlockPool(num_blocks, BLOCK_SIZE)
    return Scheduler(pool, limits, frozenset({EOS}), Rules(**rules), clock=lambda: 5.0)


def request(
    name: str, prompt: int | Sequence[int], max_tokens: int = 8, priority: int = 0, **more: Any
) -> Request:
    """A request; a prompt given by its length begins like no other's."""
    if isinstance(prompt, int):
        chance = random.Random(name)
        prompt = [chance.randrange(10, 1000) for _ in range(prompt)]
    in_request = {"cache_salt", "constraint", "pooling"} & more.keys()
    fields = {key: more.pop(key) for key in in_request}
    return Request(name, list(prompt), SamplingParams(max_tokens, **more), priority, **fields)


def picked(batch: Batch) -> list[tuple[str, int, int]]:
    """Each chunk's request, first token and number of tokens."""
    return [(c.request.request_id, c.start, c.num_tokens) for c in batch.chunks]


def advance(scheduler: Scheduler, token_id: int = TOKEN, **sampled: Any) -> list[Output]:
    """One step, in which every request that is sampled gets the same token."""
    batch = scheduler.schedule()
    token_ids = (token_id,) * len(batch.sampled)
    outputs = scheduler.settle(batch, Sampled(token_ids, **sampled))
    scheduler.check_integrity()
    return outputs


def finish(scheduler: Scheduler) -> list[Output]:
    """Steps until nothing is left to do."""
    outputs: list[Output] = []
    while scheduler.has_work:
        outputs += advance(scheduler)
    return outputs


def told(outputs: list[Output]) -> list[tuple[str, tuple[int, ...], str | None]]:
    """Of outputs, whose they are, the tokens and the end."""
    return [(o.request_id, o.token_ids, o.finish_reason) for o in outputs]


def names(requests: Sequence[Request]) -> list[str]:
    return [request.request_id for request in requests]
