"""Read a server's metrics as numbers, and wait until it holds nothing."""

import re
import time

import httpx

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$")
_COMMON = re.compile(r'(model_name|engine)="[^"]*",?')
_PATIENCE_SECONDS = 60.0
_RESTING = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "forebay:kv_fragmentation_ratio",
)


def read_metrics(http: httpx.Client) -> dict[str, float]:
    """Every sample by its name and labels, but for the labels that all share."""
    samples = {}
    for line in http.get("/metrics").raise_for_status().text.splitlines():
        match = _SAMPLE.match(line)
        if match:
            labels = _COMMON.sub("", match[2] or "").replace(",}", "}")
            samples[match[1] + (labels if labels != "{}" else "")] = float(match[3])
    return samples


def wait_for_rest(http: httpx.Client) -> dict[str, float]:
    """Wait until every gauge of what the server holds is 0; returns the samples of that moment."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while any((samples := read_metrics(http))[name] for name in _RESTING):
        assert time.monotonic() < deadline, {name: samples[name] for name in _RESTING}
        time.sleep(0.01)
    return samples
