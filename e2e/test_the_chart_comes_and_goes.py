"""Story: Forebay is installed, upgraded, removed and installed again while a model serves, and
nobody who asks it notices.

The release serves one namespace and lies in it; meanwhile the cluster's own operator is away.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_release import copy_chart, package
from cluster import choose_cluster
from cluster_api import ClusterApi, Object, path_of
from commands import CommandError
from deployment import CHART, set_image
from helm import Helm
from kubectl import Kubectl
from long_streams import hold_pods
from namespace import Namespace
from operator_pod import OperatorPod, read_operator
from served import ServedModel, build_service, names
from traffic import Traffic

RELEASE = "story"
RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture
def helm(kubectl: Kubectl) -> Helm:
    """The helm that speaks to the cluster that is tested."""
    if os.environ.get("KUBECONFIG") and (program := shutil.which("helm")):
        return Helm(Path(program), kubectl.kubeconfig)
    return choose_cluster().helm


class Installed:
    """A release that serves its own namespace, with the images of the cluster's operator."""

    def __init__(self, helm: Helm, namespace: Namespace, images: dict[str, str]) -> None:
        self._helm = helm
        self._namespace = namespace
        self._images = images

    def upgrade(self, chart: Path, runtime_tag: str = "") -> None:
        """Install it or upgrade it, and wait until its operator is ready."""
        runtime = self._images["runtime"]
        if runtime_tag:
            runtime = f"{runtime.rpartition(':')[0]}:{runtime_tag}"
        flags = [*set_image("operator", self._images["operator"]), *set_image("runtime", runtime)]
        scope = (f"--set=watch.namespaces={{{self._namespace.name}}}", "--set=rbac.nodes=false")
        shared = ("--set=crds.install=false", "--set=rbac.userRoles=false")
        wait = ("--wait", "--timeout=120s")
        self._run("upgrade", "--install", RELEASE, chart, *flags, *scope, *shared, *wait)

    def uninstall(self) -> None:
        """Take it away, and wait until its pods are gone."""
        self._run("uninstall", RELEASE, "--wait", "--ignore-not-found", "--timeout=120s")

    def has_operator(self) -> bool:
        """Say whether its Deployment is there."""
        return self._namespace.get("deployments", f"{RELEASE}-operator") is not None

    def _run(self, *arguments: str | Path) -> None:
        self._helm("--namespace", self._namespace.name, *arguments)


def read_images(operator: Object) -> dict[str, str]:
    """Return the images of a running operator, by target."""
    [container] = operator["spec"]["template"]["spec"]["containers"]
    environ = {one["name"]: one.get("value", "") for one in container["env"]}
    return {"operator": container["image"], "runtime": environ["FOREBAY_RUNTIME_IMAGE"]}


@pytest.fixture
def release(
    helm: Helm, api: ClusterApi, namespace: Namespace, operator_pod: OperatorPod
) -> Iterator[Installed]:
    """A release to be installed where the restricted Pod Security Standard is enforced."""
    namespace.cluster_kubectl("label", "namespace", namespace.name, RESTRICTED)
    with pytest.raises(CommandError, match="violates PodSecurity"):
        namespace.kubectl("run", "unconfined", "--image=localhost/any")
    installed = Installed(helm, namespace, read_images(read_operator(api)))
    with operator_pod.absent():
        try:
            yield installed
        finally:
            installed.uninstall()


def wait_handled(served: ServedModel, deadline_seconds: int) -> None:
    """Have the operator look at a new generation of the service that changes no pod."""
    served.patch({"spec": {"rollout": {"progressDeadlineSeconds": deadline_seconds}}})
    served.wait_ready()


def test_a_model_serves_on_through_every_step_of_its_operators_life(
    release: Installed, namespace: Namespace, tmp_path: Path
) -> None:
    previous = package(copy_chart(tmp_path, "0.0.9", log={"level": "debug", "format": "full"}))
    release.upgrade(previous)
    namespace.apply(build_service("smollm2", drain={"timeoutSeconds": 120, "lameDuckSeconds": 1}))
    served = ServedModel(namespace, "smollm2")
    served.wait_ready()
    pods = names(served.wait_pods(1))
    traffic = Traffic(served.base_url(), served.name)

    streams = hold_pods(served, traffic)
    release.upgrade(CHART, runtime_tag="of-tomorrow")
    wait_handled(served, 601)
    release.uninstall()
    assert not release.has_operator()
    traffic.ask_together([4, 4])
    release.upgrade(CHART, runtime_tag="of-tomorrow")
    wait_handled(served, 602)

    assert names(served.wait_pods(1)) == pods
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in served.pods()] == [0]
    assert [stream.finish().fault for stream in streams] == [""] * len(streams)
    assert traffic.faults == []
    assert namespace.api.get(path_of("leases", namespace.name, "forebay-operator"))
