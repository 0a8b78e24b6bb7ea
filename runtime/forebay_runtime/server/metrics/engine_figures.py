"""Numbers that the engine keeps itself, read when Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from forebay_runtime.engine import EngineLike, VramTerm
from forebay_runtime.request import Load, Speculated
from forebay_runtime.server.metrics.families import ENGINE


@dataclass(frozen=True)
class Gauges:
    """Where numbers that the engine holds are read at a scrape; engine gives one once warm."""

    load: Callable[[], Load]
    engine: Callable[[], EngineLike | None]


class EngineFigures(Collector):
    """The engine's load and counts by vLLM's names, its coldness and memory by our own."""

    def __init__(self, model_name: str, gauges: Gauges) -> None:
        """model_name labels everything."""
        self._model_name = model_name
        self._gauges = gauges
        self.cache_config: Mapping[str, str] = {}
        """Labels of vllm:cache_config_info, once they are known."""

    def collect(self) -> Iterable[Metric]:
        """Yield everything as of now."""
        yield from self._load(self._gauges.load())
        if self.cache_config:
            labels = {**self.cache_config, "engine": ENGINE}
            yield _gauge("vllm:cache_config_info", "How the KV cache is set up", labels, 1)
        yield from self._own(self._gauges.engine())

    def _load(self, load: Load) -> Iterable[Metric]:
        own = {"model_name": self._model_name}
        labels = own | {"engine": ENGINE}
        for name, text, number in (
            ("num_requests_running", "Requests in the running batch", load.num_running),
            ("num_requests_waiting", "Requests waiting to run", load.num_waiting),
            ("kv_cache_usage_perc", "KV cache in use, 1 is full", load.kv_cache_usage),
        ):
            yield _gauge(f"vllm:{name}", text, labels, number)
        for name, text, count in (
            ("num_preemptions", "Times that a request lost its KV blocks", load.num_preemptions),
            (
                "prefix_cache_queries",
                "Tokens looked up in the prefix cache",
                load.num_prefix_queries,
            ),
            ("prefix_cache_hits", "Tokens found in the prefix cache", load.num_prefix_hits),
        ):
            yield _counter(f"vllm:{name}", text, labels, count)
        if load.speculated is not None:
            yield from self._speculated(load.speculated)
        text = "Share of the KV slots that requests hold in which no token is"
        yield _gauge("forebay:kv_fragmentation_ratio", text, own, load.kv_fragmentation)

    def _speculated(self, counts: Speculated) -> Iterable[Metric]:
        labels = {"model_name": self._model_name, "engine": ENGINE}
        for name, text, count in (
            ("num_drafts", "Times that tokens were proposed for a request", counts.num_drafts),
            ("num_draft_tokens", "Tokens that were proposed", counts.num_proposed_tokens),
            ("num_accepted_tokens", "Proposed tokens that were kept", counts.num_kept_tokens),
        ):
            yield _counter(f"vllm:spec_decode_{name}", text, labels, count)
        family = CounterMetricFamily(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Proposed tokens that were kept, by their place after the last known one",
            labels=[*labels, "position"],
        )
        for position, count in enumerate(counts.num_kept_at):
            family.add_metric([*labels.values(), str(position)], count)
        yield family

    def _own(self, engine: EngineLike | None) -> Iterable[Metric]:
        own = {"model_name": self._model_name}
        text = "Compilations, captures, first touches and buffer growths after Ready"
        yield _counter("forebay:cold", text, own, engine.num_cold if engine else 0)
        text = (
            "Seconds, at most, in which the device had ended a step and the next was not launched"
        )
        yield _counter(
            "forebay:host_gap_seconds", text, own, engine.host_gap_seconds if engine else 0
        )
        yield self._memory(
            "forebay:vram_bytes",
            "Device memory by term, as planned and as measured",
            ("term", engine.vram_terms if engine else ()),
        )
        yield self._memory(
            "forebay:vram_overhead_bytes",
            "What the term overhead is made of, as planned and as measured",
            ("part", engine.overhead_parts if engine else ()),
        )
        startup = GaugeMetricFamily(
            "forebay:startup_seconds",
            "What the start took by phase",
            labels=["model_name", "phase"],
        )
        for phase, seconds in engine.startup_seconds.items() if engine else ():
            startup.add_metric([self._model_name, phase], seconds)
        yield startup

    def _memory(self, name: str, text: str, told: tuple[str, tuple[VramTerm, ...]]) -> Metric:
        """told: what the terms are called, and they themselves."""
        label, terms = told
        family = GaugeMetricFamily(name, text, labels=["model_name", label, "kind"])
        for term in terms:
            family.add_metric([self._model_name, term.name, "planned"], term.planned_bytes)
            family.add_metric([self._model_name, term.name, "measured"], term.measured_bytes)
        return family


def _gauge(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    family = CounterMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
