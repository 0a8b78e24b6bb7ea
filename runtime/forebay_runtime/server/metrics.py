"""What the server counts, under vLLM's metric names, so that existing dashboards work unchanged.

One ServerMetrics a server, with a registry of its own. Updated on the asyncio loop only; gauges of
the engine are read when scraped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay_runtime.engine import EngineLike
from forebay_runtime.request import Load

_FIRST_TOKEN_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_NEXT_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKEN_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)


@dataclass(frozen=True)
class Gauges:
    """Where numbers that the engine holds are read at a scrape."""

    load: Callable[[], Load]
    engine: Callable[[], EngineLike | None]


class ServerMetrics:
    """Every metric of one server, each with the label model_name."""

    def __init__(self, model_name: str, gauges: Gauges) -> None:
        """model_name labels everything."""
        self._registry = CollectorRegistry()
        self._model_name = model_name
        self._registry.register(_EngineCollector(model_name, gauges))
        self._prompt_tokens = self._counter("vllm:prompt_tokens", "Prompt tokens processed")
        self._generation_tokens = self._counter("vllm:generation_tokens", "Tokens generated")
        self._finished = Counter(
            "vllm:request_success",
            "Requests finished, by reason",
            ["model_name", "finished_reason"],
            registry=self._registry,
        )
        for reason in ("stop", "length", "abort", "error"):
            self._finished.labels(model_name, reason)
        self._first_token = self._histogram(
            "vllm:time_to_first_token_seconds",
            "Seconds from a request's arrival to its first token",
            _FIRST_TOKEN_BUCKETS,
        )
        self._next_token = self._histogram(
            "vllm:inter_token_latency_seconds",
            "Seconds between a request's tokens",
            _NEXT_TOKEN_BUCKETS,
        )
        self._request = self._histogram(
            "vllm:e2e_request_latency_seconds",
            "Seconds from a request's arrival to its end",
            _REQUEST_BUCKETS,
        )
        self._request_prompt = self._histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a request", _TOKEN_BUCKETS
        )
        self._request_generation = self._histogram(
            "vllm:request_generation_tokens", "Generated tokens of a request", _TOKEN_BUCKETS
        )
        self._rejected = self._counter("forebay:rejected", "Requests answered 429, queue full")
        self._cut = self._counter("forebay:cut", "Answers that a drain's timeout cut short")
        self._start = Gauge(
            "forebay:start_seconds",
            "Seconds from the process's start to ready",
            ["model_name"],
            registry=self._registry,
        ).labels(model_name)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ["model_name"], registry=self._registry).labels(self._model_name)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(name, text, ["model_name"], buckets=buckets, registry=self._registry)
        return histogram.labels(self._model_name)

    def observe_first_token(self, num_prompt_tokens: int, seconds: float) -> None:
        """Count a prompt that was read, and how long its first token took."""
        self._prompt_tokens.inc(num_prompt_tokens)
        self._first_token.observe(seconds)

    def observe_tokens(self, num_tokens: int) -> None:
        """Count tokens generated."""
        self._generation_tokens.inc(num_tokens)

    def observe_next_token(self, seconds: float) -> None:
        """Note the time since the same request's token before."""
        self._next_token.observe(seconds)

    def observe_end(
        self, reason: str, seconds: float, num_prompt_tokens: int, num_tokens: int
    ) -> None:
        """Count a request's end; reason is stop, length, abort or error."""
        self._finished.labels(self._model_name, reason).inc()
        self._request.observe(seconds)
        self._request_prompt.observe(num_prompt_tokens)
        self._request_generation.observe(num_tokens)

    def count_rejected(self) -> None:
        """Count a request that the queue had no room for."""
        self._rejected.inc()

    def count_cut(self, num_requests: int) -> None:
        """Count answers that the drain's timeout cut short."""
        self._cut.inc(num_requests)

    def observe_start(self, seconds: float) -> None:
        """Note how long the start took."""
        self._start.set(seconds)

    def to_text(self) -> bytes:
        """Everything in Prometheus's text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """Numbers that the engine keeps, read at the scrape."""

    def __init__(self, model_name: str, gauges: Gauges) -> None:
        self._labels = [model_name]
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        """Yield the engine's gauges and, once it is warm, its cold count and memory."""
        load = self._gauges.load()
        for name, text, value in (
            ("vllm:num_requests_running", "Requests in the running batch", load.num_running),
            ("vllm:num_requests_waiting", "Requests waiting to run", load.num_waiting),
            ("vllm:kv_cache_usage_perc", "KV cache in use, 1 is full", load.kv_cache_usage),
        ):
            gauge = GaugeMetricFamily(name, text, labels=["model_name"])
            gauge.add_metric(self._labels, value)
            yield gauge
        engine = self._gauges.engine()
        cold = CounterMetricFamily(
            "forebay:cold",
            "Compilations, captures, first touches and buffer growths after Ready",
            labels=["model_name"],
        )
        cold.add_metric(self._labels, engine.num_cold if engine else 0)
        yield cold
        memory = GaugeMetricFamily(
            "forebay:vram_bytes",
            "Device memory by term, as planned and as measured",
            labels=["model_name", "term", "kind"],
        )
        for term in engine.vram_terms if engine else ():
            memory.add_metric([*self._labels, term.name, "planned"], term.planned_bytes)
            memory.add_metric([*self._labels, term.name, "measured"], term.measured_bytes)
        yield memory
