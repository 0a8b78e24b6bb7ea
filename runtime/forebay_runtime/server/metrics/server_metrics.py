"""What the server counts, under vLLM's metric names, so that existing dashboards work unchanged.

One ServerMetrics a server, with a registry of its own. Updated on the asyncio loop only; gauges of
the engine are read when scraped. `vllm:` names carry vLLM's labels; `forebay:` names are our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from forebay_runtime.request import Load, Request
from forebay_runtime.server.metrics.engine_figures import EngineFigures, Gauges
from forebay_runtime.server.metrics.families import ENGINE, RequestFamilies
from forebay_runtime.server.metrics.gpu_figures import GpuFigures
from forebay_runtime.server.metrics.request_record import Choices, RequestRecord

REJECTIONS = ("max_num_queued_reqs", "max_num_queued_tokens")
"""The limits that refuse a request, by which refusals are told apart."""
_STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_ERROR_KINDS = {
    400: "bad_request",
    404: "not_found",
    405: "bad_method",
    408: "timeout",
    413: "too_large",
    429: "queue_full",
    500: "failed",
    503: "unavailable",
}


class ServerMetrics:
    """Every metric of one server, each with the label model_name."""

    def __init__(self, model_name: str, gauges: Gauges) -> None:
        """model_name labels everything."""
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._figures = EngineFigures(model_name, gauges)
        self._registry.register(self._figures)
        ProcessCollector(registry=self._registry)
        self._families: RequestFamilies | None = None
        self._step_tokens = Histogram(
            "vllm:iteration_tokens_total",
            "Tokens computed in a step",
            ["model_name", "engine"],
            buckets=_STEP_TOKENS,
            registry=self._registry,
        ).labels(model_name, ENGINE)
        self._rejections = self._counter(
            "vllm:admission_rejections", "Requests answered 429, by the limit", "reason"
        )
        for reason in REJECTIONS:
            self._rejections.labels(model_name, reason)
        self._errors = self._counter("forebay:errors", "Answers that were an error", "kind")
        self._cut = self._counter("forebay:cut", "Answers that a drain's timeout cut short")
        self._start = self._gauge("forebay:start_seconds", "Seconds from the process's start")
        self._warmup = self._gauge("forebay:warmup_seconds", "Seconds that warm-up took")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, ["model_name", *labels], registry=self._registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(name, text, ["model_name"], registry=self._registry)
        return gauge.labels(self._model_name)

    def watch_gpus(self, nvml: Any) -> None:
        """Show what the GPUs do; nvml is what open_nvml gave."""
        self._registry.register(GpuFigures(nvml))

    def begin(self, max_model_len: int, cache_config: Mapping[str, str]) -> None:
        """The model is warm: requests can come, and the cache's setup is known."""
        self._families = RequestFamilies(self._registry, self._model_name, max_model_len)
        self._figures.cache_config = cache_config

    def open_requests(self, requests: Sequence[Request], n: int) -> list[RequestRecord]:
        """Note requests at their submission; each n in a row answer the same prompt.

        Raises: RuntimeError before begin.
        """
        if self._families is None:
            raise RuntimeError("no request can be counted before the model is warm")
        records = []
        for start in range(0, len(requests), n):
            group = requests[start : start + n]
            choices = Choices(n, len(group))
            records += [RequestRecord(self._families, request, choices) for request in group]
        return records

    def observe_step(self, load: Load) -> None:
        """Count what a step computed."""
        if load.num_step_tokens:
            self._step_tokens.observe(load.num_step_tokens)

    def count_rejected(self, reason: str) -> None:
        """Count an HTTP request that the queue had no room for; reason is one of REJECTIONS."""
        self._rejections.labels(self._model_name, reason).inc()

    def count_error(self, status: int) -> None:
        """Count an answer that was an error, or a stream that ended with one, by its status."""
        self._errors.labels(self._model_name, _ERROR_KINDS.get(status, "other")).inc()

    def count_cut(self, num_requests: int) -> None:
        """Count answers that the drain's timeout cut short."""
        self._cut.labels(self._model_name).inc(num_requests)

    def observe_start(self, seconds: float) -> None:
        """Note how long the start took, from process to ready."""
        self._start.set(seconds)

    def observe_warmup(self, seconds: float) -> None:
        """Note how long warm-up took."""
        self._warmup.set(seconds)

    def to_text(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(self._registry)
