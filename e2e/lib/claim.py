"""A PersistentVolumeClaim that works on any cluster, and a pod that writes model files into it.

The volume is a folder of one node, so that neither a storage class nor a second node matters.
"""

from pathlib import Path

from cluster_api import ClusterApi, Object
from idle_pod import build_idle_pod
from namespace import Namespace
from operator_pod import read_operator_image
from served import MODEL_URI, is_ready

CLAIM = "models"
WRITER = "model-writer"
PARENT = "/var/tmp"
"""The node's folder in which the volumes' folders are made."""


class Claim:
    """The claim `models` of a namespace."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._volume = f"forebay-{namespace.name}-{CLAIM}"
        """The volume's name, and its folder's on the node."""

    def create(self) -> None:
        """Create volume, claim and writer, and wait for the writer."""
        node = pick_node(self._namespace.api)
        path = f"{PARENT}/{self._volume}"
        claim_ref = {"namespace": self._namespace.name, "name": CLAIM}
        self._namespace.apply(
            build_volume(self._volume, path, node, claim_ref),
            build_claim(self._volume),
            build_writer(read_operator_image(self._namespace.api), node),
        )
        self._namespace.wait_for("pods", WRITER, is_ready, "ready")

    def run_python(self, script: Path, *arguments: str) -> None:
        """Run a script of this machine in the writer; the claim is mounted at /claim."""
        command = ("exec", "-i", WRITER, "--", "python3", "-", *arguments)
        self._namespace.kubectl(*command, stdin=script.read_text())

    def run(self, *command: str) -> None:
        """Run a command in the writer."""
        self._namespace.kubectl("exec", WRITER, "--", *command)

    def remove(self) -> None:
        """Remove the folder and the volume, which no namespace takes with it."""
        self.run("rm", "-r", f"/parent/{self._volume}")
        self._namespace.kubectl("delete", "persistentvolume", self._volume, "--wait=false")


def pick_node(api: ClusterApi) -> str:
    """Return the name of the first node that takes pods."""
    taking = [node for node in api.list("/api/v1/nodes") if not node["spec"].get("unschedulable")]
    name: str = taking[0]["metadata"]["name"]
    return name


def build_volume(name: str, path: str, node: str, claim_ref: Object) -> Object:
    """Return a volume that is a folder of one node and waits for one claim."""
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "64Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": path, "type": "DirectoryOrCreate"},
            "claimRef": claim_ref,
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


def build_claim(volume: str) -> Object:
    """Return the claim on that volume."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": CLAIM},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Gi"}},
            "storageClassName": "",
            "volumeName": volume,
        },
    }


def build_writer(image: str, node: str) -> Object:
    """Return a pod with the claim at /claim and a model at /smollm2, to run commands in."""
    pod = build_idle_pod(WRITER, image, node)
    pod["spec"]["containers"][0]["volumeMounts"] = [
        {"name": "claim", "mountPath": "/claim"},
        {"name": "parent", "mountPath": "/parent"},
        {"name": "smollm2", "mountPath": "/smollm2"},
    ]
    pod["spec"]["volumes"] = [
        {"name": "claim", "persistentVolumeClaim": {"claimName": CLAIM}},
        {"name": "parent", "hostPath": {"path": PARENT}},
        {"name": "smollm2", "image": {"reference": MODEL_URI.removeprefix("oci://")}},
    ]
    return pod
