"""The kinds of objects that the operator reads or writes, and where the API server keeps them."""

from dataclasses import dataclass

FIELD_MANAGER = "forebay"
_MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGED_LABEL = {_MANAGED_BY: "forebay"}
MANAGED_SELECTOR = f"{_MANAGED_BY}=forebay"
SERVICE_LABEL = "forebay.dev/inference-service"
INSPECTION_LABEL = "forebay.dev/inspection-of"
INSPECTED_LABEL = "forebay.dev/inspected"
"""On what inspects anything but the served model: its role."""
TEMPLATE_HASH_LABEL = "forebay.dev/template-hash"
"""Of pods: which template they were made from."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


@dataclass(frozen=True)
class Kind:
    """One kind of object."""

    group: str
    version: str
    name: str
    plural: str

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """The address of an object, of a namespace's objects, or of all."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


INFERENCE_SERVICE = Kind("forebay.dev", "v1alpha1", "InferenceService", "inferenceservices")
VRAM_QUOTA = Kind("forebay.dev", "v1alpha1", "VRAMQuota", "vramquotas")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SET = Kind("apps", "v1", "ReplicaSet", "replicasets")
CONTROLLER_REVISION = Kind("apps", "v1", "ControllerRevision", "controllerrevisions")
JOB = Kind("batch", "v1", "Job", "jobs")
POD = Kind("", "v1", "Pod", "pods")
NETWORK_SERVICE = Kind("", "v1", "Service", "services")
SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
DISRUPTION_BUDGET = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
NODE = Kind("", "v1", "Node", "nodes")
RESOURCE_SLICE = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices")
EVENT = Kind("", "v1", "Event", "events")
RESOURCE_QUOTA = Kind("", "v1", "ResourceQuota", "resourcequotas")
EVENT_RECORD = Kind("events.k8s.io", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")

CHILDREN = (
    DEPLOYMENT,
    REPLICA_SET,
    CONTROLLER_REVISION,
    JOB,
    POD,
    NETWORK_SERVICE,
    SERVICE_ACCOUNT,
    DISRUPTION_BUDGET,
)
"""What belongs to a service; only those that carry the label of MANAGED_SELECTOR are watched."""

WATCHED = (INFERENCE_SERVICE, VRAM_QUOTA, *CHILDREN)

SURROUNDINGS = (NODE, RESOURCE_SLICE)
"""Of the whole cluster, and read only where the platform team allows it."""

_BY_TYPE = {(kind.api_version, kind.name): kind for kind in (*WATCHED, *SURROUNDINGS)}


def find_kind(api_version: str, name: str) -> Kind:
    """The kind of a manifest; KeyError for one that the operator has no business with."""
    return _BY_TYPE[api_version, name]


def selector_of(kind: Kind) -> str:
    """The label selector with which a kind is listed and watched."""
    return MANAGED_SELECTOR if kind in CHILDREN else ""
