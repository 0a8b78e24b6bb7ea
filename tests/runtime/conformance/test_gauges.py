"""Every gauge is back at 0 when the last request ended, however it ended; it is counted once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from server_metrics import read_metrics, wait_for_rest

pytestmark = pytest.mark.component
LIMITS = {"temperature": 0, "max_tokens": 4}
BASE: dict[str, Any] = {"prompt": "The capital of France is"} | LIMITS


def count(http: httpx.Client, act: Callable[[], Any]) -> dict[str, float]:
    """What an action adds to every sample; the gauges have to be at rest after it."""
    before = read_metrics(http)
    act()
    after = wait_for_rest(http)
    return {name: value - before.get(name, 0) for name, value in after.items()}


def success(added: dict[str, float]) -> dict[str, float]:
    """The ends counted, by their reason."""
    prefix = 'vllm:request_success_total{finished_reason="'
    return {
        name.removeprefix(prefix).removesuffix('"}'): value
        for name, value in added.items()
        if name.startswith(prefix) and value
    }


@pytest.mark.parametrize(
    ("path", "fields", "expected"),
    [
        pytest.param("/v1/completions", {}, {"length": 1}, id="length"),
        pytest.param("/v1/completions", {"stop": "."}, {"stop": 1}, id="a stop string"),
        pytest.param("/v1/completions", {"stop_token_ids": [30]}, {"stop": 1}, id="a stop token"),
        pytest.param("/v1/completions", {"stream": True}, {"length": 1}, id="a stream"),
        pytest.param("/v1/completions", {"n": 3}, {"length": 3}, id="three choices"),
        pytest.param("/v1/completions", {"prompt": ["a", "b"]}, {"length": 2}, id="two prompts"),
        pytest.param("/v1/completions", {"echo": True, "max_tokens": 0}, {"length": 1}, id="echo"),
        pytest.param(
            "/v1/completions",
            {"structured_outputs": {"choice": ["yes"]}},
            {"stop": 1},
            id="a constraint",
        ),
        pytest.param("/v1/completions", {"temperature": -1}, {}, id="a refusal"),
        pytest.param("/v1/completions", {"prompt": "x " * 3000}, {}, id="a prompt too long"),
        pytest.param(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}]},
            {"length": 1},
            id="a chat",
        ),
    ],
)
def test_an_end_is_counted_once_by_its_reason(
    http: httpx.Client, path: str, fields: dict[str, Any], expected: dict[str, float]
) -> None:
    body = fields | LIMITS if "messages" in fields else BASE | fields
    added = count(http, lambda: http.post(path, json=body))
    assert success(added) == expected


def test_tokens_are_counted_as_usage_counts_them(http: httpx.Client) -> None:
    added = count(http, lambda: http.post("/v1/completions", json=BASE | {"max_tokens": 7}))
    assert added["vllm:prompt_tokens_total"] == 5
    assert added["vllm:generation_tokens_total"] == 7
    for name, value in (
        ("vllm:request_prompt_tokens", 5),
        ("vllm:request_generation_tokens", 7),
        ("vllm:request_params_n", 1),
        ("vllm:request_params_max_tokens", 7),
    ):
        assert (added[f"{name}_count"], added[f"{name}_sum"]) == (1, value), name
    for name in (
        "vllm:time_to_first_token_seconds",
        "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds",
        "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds",
        "vllm:request_inference_time_seconds",
        "vllm:request_time_per_output_token_seconds",
    ):
        assert added[f"{name}_count"] == 1, name
    assert added["vllm:inter_token_latency_seconds_count"] == 6


def test_a_prefix_that_was_seen_is_a_hit(http: httpx.Client) -> None:
    body = BASE | {"prompt": list(range(1000, 1100)), "max_tokens": 1}
    first = count(http, lambda: http.post("/v1/completions", json=body))
    again = count(http, lambda: http.post("/v1/completions", json=body))
    assert first["vllm:prefix_cache_queries_total"] == 100
    assert first["vllm:prefix_cache_hits_total"] == 0
    assert 64 <= again["vllm:prefix_cache_hits_total"] < 100


def test_another_salt_hits_nothing(http: httpx.Client) -> None:
    body = BASE | {"prompt": list(range(2000, 2100)), "max_tokens": 1, "cache_salt": "mine"}
    count(http, lambda: http.post("/v1/completions", json=body))
    same = count(http, lambda: http.post("/v1/completions", json=body))
    other = count(http, lambda: http.post("/v1/completions", json=body | {"cache_salt": "yours"}))
    assert same["vllm:prefix_cache_hits_total"] > 0
    assert other["vllm:prefix_cache_hits_total"] == 0


def test_a_request_that_ran_out_of_time_ends_with_an_error(http: httpx.Client) -> None:
    body = BASE | {"max_tokens": 900, "ignore_eos": True, "timeout": 0.3}
    responses = []
    count(http, lambda: responses.append(http.post("/v1/completions", json=body)))
    assert responses[0].status_code == 408
    streams = []
    count(http, lambda: streams.append(http.post("/v1/completions", json=body | {"stream": True})))
    assert '"error"' in streams[0].text and "[DONE]" not in streams[0].text.splitlines()[-2:]


def test_a_crowd_leaves_nothing_behind(http: httpx.Client) -> None:
    def crowd() -> None:
        with ThreadPoolExecutor(24) as threads:
            statuses = set(
                threads.map(
                    lambda n: (
                        http.post(
                            "/v1/completions",
                            json=BASE
                            | {"prompt": f"{n} is", "max_tokens": 1 + n % 5, "ignore_eos": True},
                        ).status_code
                    ),
                    range(24),
                )
            )
        assert statuses == {200}

    assert success(count(http, crowd)) == {"length": 24}


METRICS = {
    "vllm:num_requests_running": "gauge",
    "vllm:num_requests_waiting": "gauge",
    "vllm:kv_cache_usage_perc": "gauge",
    "vllm:cache_config_info": "gauge",
    "vllm:prefix_cache_queries_total": "counter",
    "vllm:prefix_cache_hits_total": "counter",
    "vllm:num_preemptions_total": "counter",
    "vllm:prompt_tokens_total": "counter",
    "vllm:generation_tokens_total": "counter",
    "vllm:request_success_total": "counter",
    "vllm:iteration_tokens_total": "histogram",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
    "vllm:request_time_per_output_token_seconds": "histogram",
    "vllm:e2e_request_latency_seconds": "histogram",
    "vllm:request_queue_time_seconds": "histogram",
    "vllm:request_prefill_time_seconds": "histogram",
    "vllm:request_decode_time_seconds": "histogram",
    "vllm:request_inference_time_seconds": "histogram",
    "vllm:request_prompt_tokens": "histogram",
    "vllm:request_generation_tokens": "histogram",
    "vllm:request_params_n": "histogram",
    "vllm:request_params_max_tokens": "histogram",
    "forebay:vram_bytes": "gauge",
    "forebay:startup_seconds": "gauge",
    "forebay:warmup_seconds": "gauge",
    "forebay:cold_total": "counter",
    "forebay:host_gap_seconds_total": "counter",
    "forebay:kv_fragmentation_ratio": "gauge",
}


@pytest.mark.parametrize(("name", "kind"), METRICS.items(), ids=METRICS.keys())
def test_a_metric_has_vllms_name_and_type(http: httpx.Client, name: str, kind: str) -> None:
    text = http.get("/metrics").text
    assert f"# TYPE {name} {kind}\n" in text
    sample = next(line for line in text.splitlines() if line.startswith(name) and "{" in line)
    assert 'model_name="smollm2"' in sample or name == "vllm:cache_config_info"


def test_nothing_ran_cold(http: httpx.Client) -> None:
    samples = read_metrics(http)
    assert samples["forebay:cold_total"] == 0
