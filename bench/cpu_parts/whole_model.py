"""Steps of a served model in this process: no HTTP, no clients, all else as it is served."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cpu_parts.row import Row
from forebay_budget.inspection import ModelConfig
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.loading.description import describe_model
from forebay_runtime.request import Request, SamplingParams

_NUM_STEPS = 40
_PROMPT_TOKENS = 512
_NUM_TOKENS = 160
"""So many that the first request still runs when the last one's prompt was read."""
_KV_BYTES = 2**31
_PART = "steps of a whole model"


@dataclass(frozen=True)
class Flags:
    """Of forebay serve."""

    dtype: str = "auto"
    quantization: str = "None"
    kv_cache_dtype: str = "auto"


def measure(
    model: Path, kind: str, batches: Sequence[int], contexts: Sequence[int], flags: Flags
) -> Iterator[Row]:
    """Decode steps at each batch and length, then prompts; kind: whose peak they are held to."""
    longest = max(*contexts, _PROMPT_TOKENS) + _NUM_TOKENS
    config = EngineConfig(
        model,
        device="cpu",
        max_model_len=longest,
        max_num_seqs=max(batches),
        max_num_batched_tokens=_PROMPT_TOKENS,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=_KV_BYTES,
        dtype=flags.dtype,
        quantization=flags.quantization,
        kv_cache_dtype=flags.kv_cache_dtype,
    )
    engine = build_engine(config)
    engine.warm_up()
    measured = {term.name: term.measured_bytes for term in engine.vram_terms}
    token_bytes = measured["kv_cache"] / engine.load_now().free_kv_tokens
    sizes = describe_model(model).blueprint.sizes
    for context in contexts:
        for batch in batches:
            read = measured["weights"] + int(batch * context * token_bytes)
            operations = 2 * batch * (num_multiplied(sizes) + sizes.vocab_size * sizes.hidden_size)
            seconds = time_decode(engine, batch, context)
            what = f"decode behind {context} tokens"
            yield Row(_PART, what, batch, seconds, read, operations, kind)
    yield Row(
        _PART,
        f"a prompt of {_PROMPT_TOKENS} tokens",
        1,
        time_prompt(engine),
        measured["weights"],
        2 * _PROMPT_TOKENS * num_multiplied(sizes),
        kind,
    )


def num_multiplied(sizes: ModelConfig) -> int:
    """The weights of all layers that each token is multiplied by."""
    attention = (2 * sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    return sizes.num_layers * sizes.hidden_size * (attention + 3 * sizes.intermediate_size)


def time_decode(engine: Engine, batch: int, context: int) -> float:
    """The median seconds of a step in which each request gets a token."""
    _add(engine, batch, context, _NUM_TOKENS)
    while len(engine.step()) < batch:
        if not engine.has_work:
            raise RuntimeError(f"{batch} requests of {context} tokens never ran at the same time")
    seconds: list[float] = []
    while engine.has_work and len(seconds) < _NUM_STEPS:
        start = time.perf_counter()
        outputs = engine.step()
        if len(outputs) == batch:
            seconds.append(time.perf_counter() - start)
    _end(engine, batch)
    return statistics.median(seconds)


def time_prompt(engine: Engine) -> float:
    """The least seconds from a prompt's coming to its first token."""
    seconds: list[float] = []
    for _ in range(5):
        _add(engine, 1, _PROMPT_TOKENS, 2)
        start = time.perf_counter()
        while not engine.step():
            pass
        seconds.append(time.perf_counter() - start)
        _end(engine, 1)
    return min(seconds)


def _add(engine: Engine, num_requests: int, num_prompt_tokens: int, num_tokens: int) -> None:
    sampling = SamplingParams(num_tokens, temperature=0, ignore_eos=True)
    for index in range(num_requests):
        prompt = random.choices(range(engine.vocab_size), k=num_prompt_tokens)
        engine.add(Request(str(index), prompt, sampling))


def _end(engine: Engine, num_requests: int) -> None:
    for index in range(num_requests):
        engine.abort(str(index))
    while engine.has_work:
        engine.step()
