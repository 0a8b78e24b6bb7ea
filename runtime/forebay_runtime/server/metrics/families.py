"""The metrics of requests, by vLLM's names, labels and buckets, so that its dashboards fit.

Made once a server, when the model's length is known: some buckets depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram

ENGINE = "0"
"""vLLM numbers the engines behind one server; here there is one."""
FINISH_REASONS = ("stop", "length", "abort", "error")
TIMEOUT_KINDS = ("waiting", "answering")

_FIRST_TOKEN_SECONDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_NEXT_TOKEN_SECONDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST_SECONDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_CHOICES = (1, 2, 5, 10, 20)


def build_token_buckets(max_tokens: int) -> list[int]:
    """1, 2, 5, 10, 20, 50 … for as long as they are at most max_tokens."""
    buckets: list[int] = []
    power = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * power > max_tokens:
                return buckets
            buckets.append(mantissa * power)
        power *= 10


class RequestFamilies:
    """One counter or histogram for each thing that is counted of requests."""

    def __init__(self, registry: CollectorRegistry, model_name: str, max_model_len: int) -> None:
        """Register them; max_model_len bounds the buckets that count tokens."""
        self._registry = registry
        self._labels = {"model_name": model_name, "engine": ENGINE}
        self._token_buckets = build_token_buckets(max_model_len)
        self._add_counters()
        self._add_sizes()
        self._add_times()

    def _add_counters(self) -> None:
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of requests read")
        self.cached_prompt_tokens = self._counter(
            "prompt_tokens_cached", "Prompt tokens that the prefix cache spared"
        )
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated")
        finished = Counter(
            "vllm:request_success",
            "Requests that ended, by reason",
            [*self._labels, "finished_reason"],
            registry=self._registry,
        )
        self.finished = {
            reason: finished.labels(**self._labels, finished_reason=reason)
            for reason in FINISH_REASONS
        }
        timeouts = Counter(
            "forebay:timeouts",
            "Requests that ran out of time, before or after their first token",
            ["model_name", "kind"],
            registry=self._registry,
        )
        self.timeouts = {
            kind: timeouts.labels(self._labels["model_name"], kind) for kind in TIMEOUT_KINDS
        }

    def _add_sizes(self) -> None:
        self.request_prompt_tokens = self._tokens("prompt_tokens", "Prompt tokens of a request")
        self.request_generation_tokens = self._tokens(
            "generation_tokens", "Tokens generated for a request"
        )
        self.computed_prompt_tokens = self._tokens(
            "prefill_kv_computed_tokens", "Prompt tokens of a request that no cache spared"
        )
        self.most_generation_tokens = self._tokens(
            "max_num_generation_tokens", "Tokens of the longest of a request's choices"
        )
        self.params_max_tokens = self._tokens("params_max_tokens", "A request's max_tokens")
        self.params_n = self._histogram("request_params_n", "A request's n", _CHOICES)

    def _add_times(self) -> None:
        self.first_token = self._histogram(
            "time_to_first_token_seconds",
            "Seconds from a request's arrival to its first token",
            _FIRST_TOKEN_SECONDS,
        )
        self.next_token = self._histogram(
            "inter_token_latency_seconds",
            "Seconds between a request's tokens",
            _NEXT_TOKEN_SECONDS,
        )
        self.per_token = self._histogram(
            "request_time_per_output_token_seconds",
            "A request's mean seconds a token after its first",
            _NEXT_TOKEN_SECONDS,
        )
        self.whole = self._seconds("e2e_request_latency", "Seconds from a request's arrival to end")
        self.queue = self._seconds("request_queue_time", "Seconds that a request waited to run")
        self.prefill = self._seconds(
            "request_prefill_time", "Seconds from a request's first step to its first token"
        )
        self.decode = self._seconds(
            "request_decode_time", "Seconds from a request's first token to its last"
        )
        self.inference = self._seconds(
            "request_inference_time", "Seconds from a request's first step to its last token"
        )

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, list(self._labels), registry=self._registry)
        return counter.labels(**self._labels)

    def _tokens(self, name: str, text: str) -> Histogram:
        return self._histogram(f"request_{name}", text, self._token_buckets)

    def _seconds(self, name: str, text: str) -> Histogram:
        return self._histogram(f"{name}_seconds", text, _REQUEST_SECONDS)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        histogram = Histogram(
            f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry
        )
        return histogram.labels(**self._labels)
