"""The account of a service's pods: it can do nothing and carries no token."""

from forebay_operator.planning.metadata import build_metadata, service_account_name
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Service


def build_service_account(service: Service) -> Manifest:
    """An account of its own, so that nobody's rights for `default` reach the pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": build_metadata(service, service_account_name(service)),
        "automountServiceAccountToken": False,
    }
