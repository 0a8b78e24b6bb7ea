"""The operator's environment."""

import pytest

from forebay_operator.settings import SettingsError, read_settings

IMAGES = {"FOREBAY_RUNTIME_IMAGE": "runtime:1", "FOREBAY_OPERATOR_IMAGE": "operator:1"}


def test_two_images_are_enough() -> None:
    found = read_settings(IMAGES)
    assert (found.decisions.runtime_image, found.decisions.operator_image) == tuple(IMAGES.values())
    assert found.namespaces == ()
    assert found.lease_namespace == "forebay-system"
    assert found.identity


@pytest.mark.parametrize("name", IMAGES)
def test_a_missing_image_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({**IMAGES, name: ""})


def test_a_hub_of_ones_own_is_trusted_by_its_own_certificates() -> None:
    hub = {"FOREBAY_HUB_ENDPOINT": "https://hub.test", "FOREBAY_HUB_CA": "hub-ca/bundle.pem"}
    found = read_settings({**IMAGES, **hub}).decisions
    assert (found.hub_endpoint, found.hub_ca) == ("https://hub.test", "hub-ca/bundle.pem")


def test_namespaces_are_a_list() -> None:
    assert read_settings({**IMAGES, "FOREBAY_WATCH_NAMESPACES": "a, b,"}).namespaces == ("a", "b")


def test_a_pod_is_its_own_holder() -> None:
    pod = {"POD_NAME": "forebay-operator-1", "POD_NAMESPACE": "ops"}
    found = read_settings({**IMAGES, **pod})
    assert (found.identity, found.lease_namespace) == ("forebay-operator-1", "ops")


@pytest.mark.parametrize(
    ("value", "address"),
    [("", None), ("8081", ("", 8081)), ("127.0.0.1:0", ("127.0.0.1", 0))],
    ids=["nowhere", "a port", "an address"],
)
def test_metrics_are_served_where_it_is_said(value: str, address: tuple[str, int] | None) -> None:
    found = read_settings({**IMAGES, "FOREBAY_METRICS_PORT": value})
    assert found.metrics_address == address


@pytest.mark.parametrize("value", ["metrics", "99999", "8081/tcp"])
def test_a_port_that_is_none_is_refused_by_name(value: str) -> None:
    with pytest.raises(SettingsError, match="FOREBAY_METRICS_PORT"):
        read_settings({**IMAGES, "FOREBAY_METRICS_PORT": value})
