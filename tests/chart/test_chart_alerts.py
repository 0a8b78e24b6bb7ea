"""Alerts ask for metrics that the operator has."""

import re
from types import SimpleNamespace
from typing import Any

from chart import render_objects
from forebay_operator.store import Store
from forebay_operator.telemetry.gauges import Gauges
from forebay_operator.telemetry.metrics import PREFIX, Metrics
from forebay_operator.workqueue import WorkQueue


def list_metrics() -> set[str]:
    """The names of all that a leading operator tells, as Prometheus stores them."""
    metrics = Metrics()
    leader: Any = SimpleNamespace(is_held=True)
    metrics.registry.register(Gauges(Store(), WorkQueue(), leader, metrics.watches, {}))
    families = list(metrics.registry.collect())
    return {one.name + ("_total" if one.type == "counter" else "") for one in families}


def test_every_alert_asks_for_metrics_that_exist() -> None:
    objects = render_objects("metrics.rules.enabled=true")
    [found] = [one for one in objects if one["kind"] == "PrometheusRule"]
    rules = found["spec"]["groups"][0]["rules"]
    asked = {name for rule in rules for name in re.findall(rf"{PREFIX}_\w+", rule["expr"])}

    assert len(asked) == len(rules)
    assert asked - list_metrics() == set()
    assert all({"summary", "description"} == set(rule["annotations"]) for rule in rules)
