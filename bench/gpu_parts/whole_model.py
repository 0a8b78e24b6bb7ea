"""A whole engine with random weights: start-up, memory, prefill, decoding, gaps between steps."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.loading.random_weights import write_random_model
from forebay_runtime.request import Request, SamplingParams
from gpu_parts.figure import Figure
from gpu_parts.models import config_of, prefill_flops
from gpu_parts.problems import Problems
from gpu_parts.rates import GEMM
from gpu_parts.run import Run

_UTILIZATION = 0.9
_PROFILED_STEPS = 20
_PREFILLS = 3


def measure(run: Run, model: str) -> Iterator[Figure]:
    """All of one model."""
    with tempfile.TemporaryDirectory() as folder:
        yield from _measure(run, model, Path(folder) / "model")


def _measure(run: Run, model: str, folder: Path) -> Iterator[Figure]:
    config = config_of(model, is_tiny=run.is_tiny)
    write_random_model(folder, config)
    start = time.perf_counter()
    engine = build_engine(engine_config(run, folder))
    engine.warm_up()
    yield Figure(f"{model}: start", time.perf_counter() - start, "s")
    for phase, seconds in engine.startup_seconds.items():
        yield Figure(f"{model}: start, {phase}", seconds, "s")
    yield from _memory(run, model, engine)
    bench = _Bench(engine, config["vocab_size"])
    yield from _prefill(run, model, bench, config)
    problems = Problems()
    for num_seqs in run.sizes.batches:
        yield from _decode(run, model, bench, num_seqs)
        if not run.is_tiny and num_seqs >= 8:
            with problems.of(f"profile of {num_seqs} at once"):
                yield _gaps(model, bench, num_seqs)
            bench.finish()
    yield Figure(f"{model}: shapes met cold while serving", engine.num_cold, "", most=0)
    problems.settle()


def engine_config(run: Run, folder: Path) -> EngineConfig:
    """The engine's flags, the same for all models."""
    sizes = run.sizes
    return EngineConfig(
        folder,
        device=run.device.type,
        dtype=str(run.dtype).removeprefix("torch."),
        max_model_len=sizes.prompt + 2 * sizes.num_tokens,
        max_num_seqs=max(sizes.batches),
        max_num_batched_tokens=sizes.prompt,
        gpu_memory_utilization=_UTILIZATION,
        kv_cache_memory_bytes=2**20 if run.is_tiny else None,
        enable_prefix_caching=False,
    )


def _memory(run: Run, model: str, engine: Engine) -> Iterator[Figure]:
    for term in engine.vram_terms:
        for kind in ("planned", "measured"):
            num_bytes = getattr(term, f"{kind}_bytes")
            yield Figure(f"{model}: {term.name}, {kind}", num_bytes / 2**30, "GiB")
    if not run.is_tiny:
        free, total = torch.cuda.mem_get_info()
        share = (total - free) / total
        yield Figure(f"{model}: of the GPU's memory", share, "share", most=_UTILIZATION)


@dataclass
class _Bench:
    """An engine, and requests of random tokens for it."""

    engine: Engine
    vocab_size: int
    num_requests: int = 0

    def add(self, num_prompt_tokens: int, num_tokens: int) -> None:
        self.num_requests += 1
        chance = random.Random(self.num_requests)
        prompt = [chance.randrange(self.vocab_size) for _ in range(num_prompt_tokens)]
        sampling = SamplingParams(num_tokens, temperature=0, ignore_eos=True)
        self.engine.add(Request(f"request-{self.num_requests}", prompt, sampling))

    def step(self) -> int:
        """Run one step; how many tokens came."""
        outputs = self.engine.step()
        errors = [output.error for output in outputs if output.error]
        if errors:
            raise RuntimeError(f"a request failed: {errors[0]}")
        return sum(len(output.token_ids) for output in outputs)

    def finish(self) -> int:
        """Step until nothing is left to do; how many tokens came."""
        num_tokens = 0
        while self.engine.has_work:
            num_tokens += self.step()
        return num_tokens

    def time_first_token(self, num_prompt_tokens: int) -> float:
        """Seconds from adding a request to its first token."""
        start = time.perf_counter()
        self.add(num_prompt_tokens, 1)
        while not self.step():
            pass
        seconds = time.perf_counter() - start
        self.finish()
        return seconds


def _prefill(run: Run, model: str, bench: _Bench, config: dict[str, Any]) -> Iterator[Figure]:
    length = run.sizes.prompt
    bench.time_first_token(length)
    seconds = statistics.median(bench.time_first_token(length) for _ in range(_PREFILLS))
    rate = prefill_flops(config, length) / seconds / 1e12
    yield Figure(f"{model}: TTFT of {length} tokens", seconds * 1e3, "ms")
    yield Figure(f"{model}: prefill of {length} tokens", rate, "TFLOP/s")
    least = 0.5 if model == "Llama-3.1-8B" else None
    share = rate / run.known[GEMM]
    yield Figure(f"{model}: prefill, of the square product's rate", share, "share", least=least)
    short = min(length, 512)
    seconds = statistics.median(bench.time_first_token(short) for _ in range(_PREFILLS))
    yield Figure(f"{model}: TTFT of {short} tokens", seconds * 1e3, "ms")


def _decode(run: Run, model: str, bench: _Bench, num_seqs: int) -> Iterator[Figure]:
    """Tokens a second while all sequences decode; prompts are read before."""
    num_tokens = run.sizes.num_tokens
    for _ in range(num_seqs):
        bench.add(min(run.sizes.prompt, 128), num_tokens)
    came = 0
    while came < num_seqs:
        came += bench.step()
    start = time.perf_counter()
    came = bench.finish()
    seconds = time.perf_counter() - start
    yield Figure(f"{model}: decode, {num_seqs} at once", came / seconds, "tokens/s")


def _gaps(model: str, bench: _Bench, num_seqs: int) -> Figure:
    """The share of time in which the GPU waits for the next step.

    By a profile: as many of the longest waits between kernels as there were steps. Kernels within
    a step wait for one another far less.
    """
    for _ in range(num_seqs):
        bench.add(128, _PROFILED_STEPS + 16)
    came = 0
    while came < 8 * num_seqs:
        came += bench.step()
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(_PROFILED_STEPS):
            bench.step()
        torch.cuda.synchronize()
    bench.finish()
    spans = sorted(
        (event.time_range.start, event.time_range.end)
        for event in profiled.events()
        if event.device_type == DeviceType.CUDA
    )
    share = longest_gaps_share(spans, _PROFILED_STEPS - 1)
    return Figure(f"{model}: gaps between steps, {num_seqs} at once", share, "share", most=0.05)


def longest_gaps_share(spans: list[tuple[float, float]], num_gaps: int) -> float:
    """The num_gaps longest times in which nothing runs, of all the time from first to last.

    spans: (start, end) of whatever ran, by start.
    """
    gaps, end = [], spans[0][1]
    for start, next_end in spans[1:]:
        gaps.append(max(0.0, start - end))
        end = max(end, next_end)
    return sum(sorted(gaps)[-num_gaps:]) / (end - spans[0][0])
