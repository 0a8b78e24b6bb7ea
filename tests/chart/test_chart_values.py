"""Values that cannot be meant are refused, by a sentence that names them."""

import json
import re
from typing import Any

import pytest
import yaml

from chart import CHART, ChartError, render, render_objects, run_helm

WRONG = [
    pytest.param("replica=2", "'replica' not allowed", id="a name that nobody knows"),
    pytest.param("image.tag=1", "at '/image': .*'tag' not allowed", id="a name one level up"),
    pytest.param("replicas=two", "at '/replicas': got string, want integer", id="no number"),
    pytest.param("crds.keep=yes", "at '/crds/keep': got string, want boolean", id="no boolean"),
    pytest.param("log.level=loud", "one of 'debug', 'info', 'warning'", id="none of the choices"),
    pytest.param(
        "image.operator.digest=1a2b", "at '/image/operator/digest'.*sha256", id="a short digest"
    ),
    pytest.param(
        "image.operator.repository=Forebay", "at '/image/operator/repository'", id="a bad name"
    ),
    pytest.param('watch.namespaces="a"', "got string, want array", id="one namespace, no list"),
    pytest.param(
        'watch.namespaces=["a","a"]', "items at 0 and 1 are equal", id="a namespace twice"
    ),
    pytest.param(
        'watch.namespaces=["team_a"]', "at '/watch/namespaces/0'", id="no namespace's name"
    ),
    pytest.param("hub.endpoint=hub.example.com", "at '/hub/endpoint'.*https", id="no address"),
    pytest.param('extraEnv=[{"value":"1"}]', "missing property 'name'", id="a nameless variable"),
    pytest.param("models.priorityClass.value=2000000000", "maximum", id="the system's priority"),
    pytest.param("image.registry=https://reg.test", "at '/image/registry'", id="an address"),
    pytest.param(
        'podLabels={"app.kubernetes.io/name":"mine"}',
        "podLabels names app.kubernetes.io/name, which this chart selects",
        id="a label that the chart selects by",
    ),
    pytest.param(
        'extraEnv=[{"name":"FOREBAY_METRICS_PORT","value":"1"}]',
        "extraEnv names FOREBAY_METRICS_PORT, which this chart sets",
        id="a variable of the chart's own",
    ),
    pytest.param(
        'metrics={"service":false,"serviceMonitor":{"enabled":true}}',
        "finds nothing without metrics.service",
        id="a monitor of no Service",
    ),
    pytest.param("metrics.rules=null", "at '/metrics': missing property 'rules'", id="no value"),
    pytest.param("image.registry=", "image.registry is empty: set it", id="no registry"),
    pytest.param(
        "networkPolicies.models.enabled=true",
        "networkPolicies.models.namespaces is empty",
        id="a policy for no namespace",
    ),
]


@pytest.mark.parametrize(("value", "said"), WRONG)
def test_what_cannot_be_meant_is_refused_by_name(value: str, said: str) -> None:
    with pytest.raises(ChartError, match=said):
        render(value)


def test_the_registry_is_all_that_has_to_be_said() -> None:
    said = run_helm("lint", CHART, "--strict", "--set=image.registry=localhost", "--quiet")

    assert "WARNING" not in said


def test_no_value_may_be_missing_as_helm_would_have_it_with_reuse_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    [complete] = json.loads((CHART / "values.schema.json").read_text())["allOf"]

    def compare(known: dict[str, Any], schema: dict[str, Any]) -> None:
        assert schema["required"] == list(known)
        for name, part in schema.get("properties", {}).items():
            compare(known[name], part)

    compare(values, complete)


def test_every_value_has_a_line_that_explains_it() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    bare = []
    for number, line in enumerate(lines):
        if re.match(r" *[A-Za-z]+: ?\S", line) and not lines[number - 1].lstrip().startswith("#"):
            bare.append(line)

    assert bare == ["  requests: {cpu: 50m, memory: 128Mi}", "  limits: {memory: 512Mi}"]


def test_the_image_is_the_appversion_where_no_tag_is_named() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    [deployment] = [one for one in render_objects() if one["kind"] == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]

    assert container["image"] == f"localhost/forebay-operator:{version}"
