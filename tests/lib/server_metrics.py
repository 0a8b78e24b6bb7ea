"""Read a server's metrics as numbers."""

import re

import httpx

_SAMPLE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)$")
_COMMON = re.compile(r'(model_name|engine)="[^"]*",?')


def read_metrics(http: httpx.Client) -> dict[str, float]:
    """Every sample by its name and labels, but for the labels that all share."""
    samples = {}
    for line in http.get("/metrics").raise_for_status().text.splitlines():
        match = _SAMPLE.match(line)
        if match:
            labels = _COMMON.sub("", match[2] or "").replace(",}", "}")
            samples[match[1] + (labels if labels != "{}" else "")] = float(match[3])
    return samples
