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


def test_namespaces_are_a_list() -> None:
    assert read_settings({**IMAGES, "FOREBAY_WATCH_NAMESPACES": "a, b,"}).namespaces == ("a", "b")


def test_a_pod_is_its_own_holder() -> None:
    pod = {"POD_NAME": "forebay-operator-1", "POD_NAMESPACE": "ops"}
    found = read_settings({**IMAGES, **pod})
    assert (found.identity, found.lease_namespace) == ("forebay-operator-1", "ops")
