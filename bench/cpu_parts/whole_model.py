"""Steps of a served model in this process: no HTTP, no clients, all else as it is served."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cpu_parts.row import Row
from cpu_parts.step_parts import Timed, last_step
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
) -> tuple[list[Row], list[Timed]]:
    """Decode steps at each batch and length, then prompts, and what each step is made of.

    kind: whose peak they are held to.
    """
    engine = _build(model, max(batches), max(*contexts, _PROMPT_TOKENS) + _NUM_TOKENS, flags)
    measured = {term.name: term.measured_bytes for term in engine.vram_terms}
    token_bytes = measured["kv_cache"] / engine.load_now().free_kv_tokens
    sizes = describe_model(model).blueprint.sizes
    num_operations = 2 * (num_multiplied(sizes) + sizes.vocab_size * sizes.hidden_size)
    rows, parts = [], []
    with last_step() as step:
        for context in contexts:
            for batch in batches:
                read = measured["weights"] + int(batch * context * token_bytes)
                seconds = time_decode(engine, batch, context)
                what = f"decode behind {context} tokens"
                rows.append(Row(_PART, what, batch, seconds, read, batch * num_operations, kind))
                parts += step.parts()
                _end(engine, batch)
        seconds = time_prompt(engine)
        parts += step.parts()
        _end(engine, 1)
    operations = 2 * _PROMPT_TOKENS * num_multiplied(sizes)
    what = f"a prompt of {_PROMPT_TOKENS} tokens"
    rows.append(Row(_PART, what, 1, seconds, measured["weights"], operations, kind))
    return rows, parts


def _build(model: Path, num_seqs: int, longest: int, flags: Flags) -> Engine:
    """A warm engine, whose requests share nothing."""
    config = EngineConfig(
        model,
        device="cpu",
        max_model_len=longest,
        max_num_seqs=num_seqs,
        max_num_batched_tokens=_PROMPT_TOKENS,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=_KV_BYTES,
        dtype=flags.dtype,
        quantization=flags.quantization,
        kv_cache_dtype=flags.kv_cache_dtype,
    )
    engine = build_engine(config)
    engine.warm_up()
    return engine


def num_multiplied(sizes: ModelConfig) -> int:
    """The weights of all layers that each token is multiplied by."""
    attention = (2 * sizes.num_heads + 2 * sizes.num_kv_heads) * sizes.head_dim
    return sizes.num_layers * sizes.hidden_size * (attention + 3 * sizes.intermediate_size)


def time_decode(engine: Engine, batch: int, context: int) -> float:
    """The median seconds of a step in which each request gets a token; they still run after it."""
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
    return statistics.median(seconds)


def time_prompt(engine: Engine) -> float:
    """The least seconds from a prompt's coming to its first token; the last still runs after it."""
    seconds: list[float] = []
    for _ in range(5):
        _end(engine, 1)
        _add(engine, 1, _PROMPT_TOKENS, 2)
        start = time.perf_counter()
        while not engine.step():
            pass
        seconds.append(time.perf_counter() - start)
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
