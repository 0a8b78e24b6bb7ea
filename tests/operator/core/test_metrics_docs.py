"""The page on metrics names every metric that there is, and its alerts ask for no other."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from fake_cluster import FakeCluster
from forebay_operator.lease import LeaseHolder
from forebay_operator.store import Store
from forebay_operator.telemetry.gauges import Gauges
from forebay_operator.telemetry.metrics import PREFIX, Metrics
from forebay_operator.workqueue import WorkQueue
from set_clock import SetClock

ROOT = Path(__file__).parents[3]
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((ROOT / "charts/forebay/alerts.yaml").read_text())
    for rule in group["rules"]
]
PAGE = (ROOT / "docs/metrics.md").read_text()


@pytest.fixture
async def families() -> dict[str, tuple[str, ...]]:
    """Each metric as Prometheus sees it, and its samples' names."""
    metrics, clock = Metrics(), SetClock()
    lease = LeaseHolder(FakeCluster(), "forebay-system", "me", clock)
    await lease.try_acquire()
    queue = WorkQueue(clock)
    metrics.registry.register(Gauges(Store(), queue, lease, metrics.watches, {}))
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
    return {
        family.name.removeprefix(f"{PREFIX}_"): suffixes[family.type]
        for family in metrics.registry.collect()
        if family.name.startswith(PREFIX)
    }


async def test_the_page_names_every_metric(families: dict[str, tuple[str, ...]]) -> None:
    named = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    totals = {name + ("_total" if ends == ("_total",) else "") for name, ends in families.items()}
    assert named == totals


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
async def test_an_alert_asks_for_metrics_that_there_are(
    rule: dict[str, Any], families: dict[str, tuple[str, ...]]
) -> None:
    asked = set(re.findall(rf"{PREFIX}_([a-z_]+)", rule["expr"]))
    samples = {name + end for name, ends in families.items() for end in ends}
    assert asked and asked <= samples
    assert rule["annotations"].keys() == {"summary", "description"}


def test_the_page_explains_every_alert() -> None:
    assert set(re.findall(r"`(Forebay[A-Za-z]+)`", PAGE)) == {rule["alert"] for rule in RULES}
