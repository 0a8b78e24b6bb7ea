"""Fixtures of the end-to-end tests: a cluster with the operator installed, and a namespace a test.

A failure is reported with what the cluster says about every namespace of the tests.
KUBECONFIG names the cluster, as anywhere; without it, it is the one that `make cluster` brings up.
"""

import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autopsy import write_autopsy
from cluster import choose_cluster
from cluster_api import ClusterApi
from kubectl import Kubectl
from namespace import Namespace
from operator_pod import OperatorPod, read_operator
from served import RESOURCE, ServedModel, build_service

LIVE_NAMESPACES: dict[str, Namespace] = {}
"""Whatever exists when a test fails is looked at."""
LEAVING_NAMESPACES: list[Namespace] = []
"""That none of them is held up is checked at the very end, which saves a wait a test."""


@pytest.fixture(scope="session")
def kubectl() -> Kubectl:
    """The client of the cluster that is tested."""
    kubeconfig, program = os.environ.get("KUBECONFIG"), shutil.which("kubectl")
    if kubeconfig and program:
        return Kubectl(Path(program), Path(kubeconfig))
    return choose_cluster().kubectl


@pytest.fixture(scope="session")
def api(kubectl: Kubectl) -> Iterator[ClusterApi]:
    """The cluster's API, with the operator installed."""
    api = ClusterApi(kubectl.kubeconfig)
    read_operator(api)
    yield api
    for namespace in LEAVING_NAMESPACES:
        namespace.wait_deleted()
    api.close()


@pytest.fixture
def namespace(
    kubectl: Kubectl, api: ClusterApi, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for one test."""
    with _fresh_namespace(kubectl, api, request.node.name) as namespace:
        yield namespace


@pytest.fixture(scope="module")
def module_namespace(
    kubectl: Kubectl, api: ClusterApi, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    """A namespace for all the tests of one story."""
    with _fresh_namespace(kubectl, api, request.module.__name__.rpartition(".")[2]) as namespace:
        yield namespace


@pytest.fixture(scope="session")
def long_lived(kubectl: Kubectl, api: ClusterApi) -> Iterator[ServedModel]:
    """One service of two replicas, for all stories that a running service is enough for."""
    with _fresh_namespace(kubectl, api, "long-lived") as namespace:
        namespace.apply(build_service("smollm2", replicas=2))
        yield ServedModel(namespace, "smollm2")


@pytest.fixture
def two_replicas(long_lived: ServedModel) -> ServedModel:
    """The long-lived service, with both its replicas ready and nobody leaving."""
    long_lived.namespace.kubectl("scale", "--replicas=2", f"{RESOURCE}/{long_lived.name}")
    long_lived.wait_pods(2)
    long_lived.wait_ready()
    return long_lived


@pytest.fixture(scope="session")
def operator_pod(kubectl: Kubectl, api: ClusterApi) -> Iterator[OperatorPod]:
    """The operator, to be killed."""
    with _fresh_namespace(kubectl, api, "killer") as namespace:
        yield OperatorPod(namespace)


@contextmanager
def _fresh_namespace(kubectl: Kubectl, api: ClusterApi, title: str) -> Iterator[Namespace]:
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).removeprefix("test-")[:40].strip("-")
    namespace = Namespace(kubectl, api, f"e2e-{slug}-{secrets.token_hex(2)}")
    kubectl("create", "namespace", namespace.name)
    LIVE_NAMESPACES[namespace.name] = namespace
    try:
        yield namespace
    finally:
        try:
            namespace.empty()
        finally:
            namespace.delete()
        LEAVING_NAMESPACES.append(LIVE_NAMESPACES.pop(namespace.name))


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
