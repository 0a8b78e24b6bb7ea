"""What requests leave in the metrics, by vLLM's names and by our own."""

import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from forebay_runtime.request import Load, Output, Request, SamplingParams, Speculated
from forebay_runtime.server.metrics.engine_figures import Gauges
from forebay_runtime.server.metrics.families import build_token_buckets
from forebay_runtime.server.metrics.request_record import RequestRecord
from forebay_runtime.server.metrics.server_metrics import ServerMetrics

LOAD = Load(
    num_running=2,
    num_waiting=3,
    kv_cache_usage=0.5,
    free_kv_tokens=100,
    num_preemptions=4,
    num_prefix_queries=50,
    num_prefix_hits=20,
    kv_fragmentation=0.25,
)


def build_metrics() -> ServerMetrics:
    metrics = ServerMetrics("m", Gauges(lambda: LOAD, lambda: None))
    metrics.begin(200, {"block_size": "16", "num_gpu_blocks": "64"})
    return metrics


@pytest.fixture
def metrics() -> ServerMetrics:
    return build_metrics()


def build_request(max_tokens: int = 9, num_prompt_tokens: int = 5, **fields: Any) -> Request:
    return Request("id", [1] * num_prompt_tokens, SamplingParams(max_tokens=max_tokens), **fields)


def open_one(metrics: ServerMetrics, **fields: Any) -> RequestRecord:
    return metrics.open_requests([build_request(**fields)], 1)[0]


def read(metrics: ServerMetrics) -> dict[str, float]:
    """Samples by name, and label values where they tell something."""
    return {
        "|".join(
            [
                sample.name,
                *(v for k, v in sample.labels.items() if k not in ("model_name", "engine")),
            ]
        ): sample.value
        for family in text_string_to_metric_families(metrics.to_text().decode())
        for sample in family.samples
    }


def counted(metrics: ServerMetrics, *names: str) -> list[float]:
    samples = read(metrics)
    return [samples[name] for name in names]


def test_families_have_vllms_names_types_and_labels(metrics: ServerMetrics) -> None:
    expected = {
        "num_requests_running": "gauge",
        "num_requests_waiting": "gauge",
        "kv_cache_usage_perc": "gauge",
        "cache_config_info": "gauge",
        "prefix_cache_queries": "counter",
        "prefix_cache_hits": "counter",
        "num_preemptions": "counter",
        "prompt_tokens": "counter",
        "prompt_tokens_cached": "counter",
        "generation_tokens": "counter",
        "request_success": "counter",
        "admission_rejections": "counter",
        "iteration_tokens_total": "histogram",
        "time_to_first_token_seconds": "histogram",
        "inter_token_latency_seconds": "histogram",
        "request_time_per_output_token_seconds": "histogram",
        "e2e_request_latency_seconds": "histogram",
        "request_queue_time_seconds": "histogram",
        "request_prefill_time_seconds": "histogram",
        "request_decode_time_seconds": "histogram",
        "request_inference_time_seconds": "histogram",
        "request_prompt_tokens": "histogram",
        "request_generation_tokens": "histogram",
        "request_prefill_kv_computed_tokens": "histogram",
        "request_max_num_generation_tokens": "histogram",
        "request_params_n": "histogram",
        "request_params_max_tokens": "histogram",
    }
    families = [
        family
        for family in text_string_to_metric_families(metrics.to_text().decode())
        if family.name.startswith("vllm:") and not family.name.endswith("_created")
    ]
    assert {f.name.removeprefix("vllm:"): f.type for f in families} == expected
    for family in families:
        labels = set(family.samples[0].labels)
        match family.name:
            case "vllm:cache_config_info":
                assert labels == {"block_size", "num_gpu_blocks", "engine"}
            case "vllm:admission_rejections":
                assert labels == {"model_name", "reason"}
            case _:
                assert {"model_name", "engine"} <= labels, family.name


@pytest.mark.parametrize(
    ("name", "bounds"),
    [
        ("request_params_n", [1, 2, 5, 10, 20]),
        ("request_prompt_tokens", [1, 2, 5, 10, 20, 50, 100, 200]),
        ("request_params_max_tokens", [1, 2, 5, 10, 20, 50, 100, 200]),
        ("iteration_tokens_total", [1] + [2**power for power in range(3, 15)]),
        ("time_to_first_token_seconds", [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25]),
        ("inter_token_latency_seconds", [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5]),
        ("e2e_request_latency_seconds", [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0]),
    ],
)
def test_buckets_begin_as_vllms_do(metrics: ServerMetrics, name: str, bounds: list[float]) -> None:
    found = [
        float(key.rpartition("|")[2])
        for key in read(metrics)
        if key.startswith(f"vllm:{name}_bucket|")
    ]
    assert found[: len(bounds)] == bounds
    assert found[-1] == math.inf


@pytest.mark.parametrize(
    ("most", "buckets"),
    [(1, [1]), (7, [1, 2, 5]), (10, [1, 2, 5, 10]), (2000, [1, 2, 5, 10, 20, 50])],
)
def test_token_buckets_go_up_to_the_model_length(most: int, buckets: list[int]) -> None:
    assert build_token_buckets(most)[:6] == buckets
    assert build_token_buckets(most)[-1] <= most


def test_the_engines_own_counts_are_shown(metrics: ServerMetrics) -> None:
    assert counted(
        metrics,
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "forebay:kv_fragmentation_ratio",
        "vllm:cache_config_info|16|64",
    ) == [2, 3, 0.5, 4, 50, 20, 0.25, 1]


def test_a_request_counts_its_tokens_and_times(metrics: ServerMetrics) -> None:
    record = open_one(metrics)
    record.observe(Output("id"))
    record.observe(Output("id", (7,), num_cached_tokens=3, scheduled_at=0.0))
    record.observe(Output("id", (7, 8)))
    record.observe(Output("id", (9,), "length"))
    record.close("length")
    record.close("abort")
    assert counted(
        metrics,
        "vllm:prompt_tokens_total",
        "vllm:prompt_tokens_cached_total",
        "vllm:request_prefill_kv_computed_tokens_sum",
        "vllm:generation_tokens_total",
        "vllm:request_generation_tokens_sum",
        "vllm:request_prompt_tokens_sum",
        "vllm:request_params_max_tokens_sum",
    ) == [5, 3, 2, 4, 4, 5, 9]
    names = "e2e_request_latency request_queue_time request_prefill_time request_decode_time "
    names += "request_inference_time request_time_per_output_token time_to_first_token"
    assert set(counted(metrics, *(f"vllm:{name}_seconds_count" for name in names.split()))) == {1}
    assert read(metrics)["vllm:inter_token_latency_seconds_count"] == 2
    assert read(metrics)["vllm:request_success_total|length"] == 1
    assert read(metrics)["vllm:request_success_total|abort"] == 0


def test_choices_of_one_prompt_are_one_request_where_its_parameters_are_counted(
    metrics: ServerMetrics,
) -> None:
    records = metrics.open_requests([build_request() for _ in range(6)], 3)
    for number, record in enumerate(records):
        for _ in range(number + 1):
            record.observe(Output("id", (7,)))
        record.close("length")
    samples = read(metrics)
    assert samples["vllm:request_params_n_count"] == 2
    assert samples["vllm:request_params_n_sum"] == 6
    assert samples["vllm:request_max_num_generation_tokens_sum"] == 3 + 6
    assert samples["vllm:request_success_total|length"] == 6
    assert samples["vllm:prompt_tokens_total"] == 6 * 5
    assert samples["vllm:generation_tokens_total"] == 21


@pytest.mark.parametrize(
    ("fields", "output"),
    [
        ({"pooling": "mean", "max_tokens": 1}, Output("id", (), "stop", embedding=(1.0,))),
        ({"max_tokens": 0}, Output("id", (), "length")),
    ],
    ids=["embedding", "prompt-scores"],
)
def test_a_request_without_an_answer_counts_its_prompt(
    metrics: ServerMetrics, fields: dict[str, Any], output: Output
) -> None:
    record = open_one(metrics, **fields)
    record.observe(output)
    record.close(output.finish_reason or "")
    samples = read(metrics)
    assert samples["vllm:prompt_tokens_total"] == 5
    assert samples["vllm:time_to_first_token_seconds_count"] == 0
    assert samples["vllm:request_params_max_tokens_count"] == 0
    assert samples[f"vllm:request_success_total|{output.finish_reason}"] == 1


def test_a_request_that_never_ran_counts_no_tokens_and_no_running_time(
    metrics: ServerMetrics,
) -> None:
    open_one(metrics).close("abort")
    samples = read(metrics)
    assert samples["vllm:prompt_tokens_total"] == 0
    assert samples["vllm:request_success_total|abort"] == 1
    assert samples["vllm:request_queue_time_seconds_count"] == 1
    assert samples["vllm:request_inference_time_seconds_count"] == 0


@pytest.mark.parametrize(
    ("outputs", "kind"), [([], "waiting"), ([Output("id", (1,))], "answering")], ids=str
)
def test_requests_out_of_time_are_told_apart_by_how_far_they_came(
    metrics: ServerMetrics, outputs: list[Output], kind: str
) -> None:
    record = open_one(metrics)
    for output in outputs:
        record.observe(output)
    record.close("timeout")
    samples = read(metrics)
    assert samples[f"forebay:timeouts_total|{kind}"] == 1
    assert samples["vllm:request_success_total|abort"] == 1
    assert sum(v for k, v in samples.items() if k.startswith("forebay:timeouts_total")) == 1


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (lambda m: m.count_error(400), "forebay:errors_total|bad_request"),
        (lambda m: m.count_error(418), "forebay:errors_total|other"),
        (
            lambda m: m.count_rejected("max_num_queued_tokens"),
            "vllm:admission_rejections_total|max_num_queued_tokens",
        ),
        (lambda m: m.count_cut(1), "forebay:cut_total"),
        (lambda m: m.observe_warmup(1), "forebay:warmup_seconds"),
        (lambda m: m.observe_start(1), "forebay:start_seconds"),
    ],
    ids=["error", "odd-error", "rejection", "cut", "warm-up", "start"],
)
def test_what_befalls_the_server_is_counted(
    metrics: ServerMetrics, count: Callable[[ServerMetrics], None], name: str
) -> None:
    count(metrics)
    assert read(metrics)[name] == 1


def test_steps_that_computed_nothing_are_no_iterations(metrics: ServerMetrics) -> None:
    metrics.observe_step(Load(0, 0, 0.0, 0))
    metrics.observe_step(Load(1, 0, 0.0, 0, num_step_tokens=40))
    samples = read(metrics)
    assert samples["vllm:iteration_tokens_total_count"] == 1
    assert samples["vllm:iteration_tokens_total_sum"] == 40


def test_the_process_shows_its_memory_cpu_and_files(metrics: ServerMetrics) -> None:
    names = "resident_memory_bytes cpu_seconds_total open_fds"
    assert min(counted(metrics, *(f"process_{name}" for name in names.split()))) > 0


class FakeNvml:
    """Two GPUs; the second is a slice, which has no utilisation."""

    NVML_TEMPERATURE_GPU = 0

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        if gpu == 1:
            raise self.NVMLError
        return SimpleNamespace(gpu=75)

    def nvmlDeviceGetTemperature(self, gpu: int, sensor: int) -> int:
        return 60 + gpu

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(used=10 * (gpu + 1), total=100)


def test_each_gpu_shows_what_it_tells(metrics: ServerMetrics) -> None:
    metrics.watch_gpus(FakeNvml())
    shown = {name: value for name, value in read(metrics).items() if ":gpu_" in name}
    assert shown == {
        "forebay:gpu_utilization_ratio|0": 0.75,
        "forebay:gpu_temperature_celsius|0": 60,
        "forebay:gpu_temperature_celsius|1": 61,
        "forebay:gpu_memory_used_bytes|0": 10,
        "forebay:gpu_memory_used_bytes|1": 20,
        "forebay:gpu_memory_total_bytes|0": 100,
        "forebay:gpu_memory_total_bytes|1": 100,
    }


def test_no_request_is_counted_before_the_model_is_warm() -> None:
    metrics = ServerMetrics("m", Gauges(lambda: LOAD, lambda: None))
    with pytest.raises(RuntimeError, match="warm"):
        metrics.open_requests([build_request()], 1)


def test_what_was_proposed_and_kept_is_counted_by_vllms_names() -> None:
    load = replace(LOAD, speculated=Speculated(5, 20, (4, 3, 0, 1)))
    metrics = ServerMetrics("m", Gauges(lambda: load, lambda: None))
    name = "vllm:spec_decode_num"
    assert counted(
        metrics,
        f"{name}_drafts_total",
        f"{name}_draft_tokens_total",
        f"{name}_accepted_tokens_total",
    ) == [5, 20, 8]
    places = [f"{name}_accepted_tokens_per_pos_total|{place}" for place in range(4)]
    assert counted(metrics, *places) == [4, 3, 0, 1]


def test_tokens_of_a_step_that_are_none_of_the_answers_are_not_counted(
    metrics: ServerMetrics,
) -> None:
    record = open_one(metrics)
    record.observe(Output("id", (1, 2, 3, 4)), 2)
    assert counted(metrics, "vllm:generation_tokens_total") == [2]
    assert record.num_tokens == 2
