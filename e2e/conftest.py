"""Fixtures of the end-to-end tests: a cluster with the operator installed, and a namespace a test.

A failure is reported with what the cluster says about every namespace of the tests.
KUBECONFIG names the cluster and KUBECTL the client, as anywhere; `make test` sets both.
"""

import re
import secrets
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from autopsy import OPERATOR_NAMESPACE, write_autopsy
from cluster_api import ClusterApi, path_of, wait_until
from namespace import Namespace, kubectl

LIVE_NAMESPACES: dict[str, Namespace] = {}
"""Whatever exists when a test fails is looked at."""


@pytest.fixture(scope="session")
def api() -> Iterator[ClusterApi]:
    """The cluster's API, with the operator installed."""
    api = ClusterApi()
    operator = api.get(path_of("deployments", OPERATOR_NAMESPACE, "forebay-operator"))
    assert operator is not None, "the operator is not installed on this cluster"
    yield api
    api.close()


@pytest.fixture
def namespace(api: ClusterApi, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for one test."""
    with _fresh_namespace(api, request.node.name) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def module_namespace(api: ClusterApi, request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """A namespace for all the tests of one story."""
    with _fresh_namespace(api, request.module.__name__.rpartition(".")[2]) as namespace:
        yield namespace


@contextmanager
def _fresh_namespace(api: ClusterApi, title: str) -> Iterator[Namespace]:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).removeprefix("test-")[:40].strip("-")
    namespace = Namespace(api, f"e2e-{slug}-{secrets.token_hex(2)}")
    kubectl("create", "namespace", namespace.name)
    LIVE_NAMESPACES[namespace.name] = namespace
    try:
        yield namespace
    finally:
        kubectl("delete", "namespace", namespace.name, "--wait=false")
        path = f"/api/v1/namespaces/{namespace.name}"
        wait_until(lambda: api.get(path), lambda found: found is None, "namespace is gone", 180)
        del LIVE_NAMESPACES[namespace.name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test's report what the cluster says about its namespaces."""
    report = yield
    if report.failed:
        for namespace in LIVE_NAMESPACES.values():
            report.sections += write_autopsy(namespace)
    return report
