"""Story: the same manifest applied again changes nothing, and what a person wrote stays theirs."""

from namespace import Namespace
from served import RESOURCE, ServedModel, build_service

CHILD_KINDS = ("deployments", "services", "serviceaccounts", "controllerrevisions", "jobs")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_the_children_keep_their_resource_versions(two_replicas: ServedModel) -> None:
    served = two_replicas
    manifest = served.read_last_applied()
    served.namespace.apply(manifest)
    children, before = read_versions(served.namespace), served.read()

    printed = served.namespace.apply(manifest)
    served.namespace.kubectl("annotate", f"{RESOURCE}/{served.name}", "looked-at=again")
    wait_for_a_later_decision(served.namespace)

    assert "unchanged" in printed
    assert read_versions(served.namespace) == children
    assert served.read()["status"] == before["status"]
    served.namespace.kubectl("annotate", f"{RESOURCE}/{served.name}", "looked-at-")


def test_the_operator_writes_the_status_alone(two_replicas: ServedModel) -> None:
    metadata = two_replicas.read()["metadata"]
    by_forebay = [entry for entry in metadata["managedFields"] if entry["manager"] == "forebay"]

    assert [entry["subresource"] for entry in by_forebay] == ["status"]
    assert [set(entry["fieldsV1"]) for entry in by_forebay] == [{"f:status"}]
    assert set(metadata["annotations"]) == {LAST_APPLIED}
    assert not metadata.keys() & {"labels", "finalizers", "ownerReferences"}


def read_versions(namespace: Namespace) -> dict[str, str]:
    """Return the resource version of every object that Forebay made in a namespace."""
    return {
        f"{kind}/{child['metadata']['name']}": child["metadata"]["resourceVersion"]
        for kind in CHILD_KINDS
        for child in namespace.list(kind, "app.kubernetes.io/managed-by=forebay")
        if child["metadata"]["ownerReferences"][0]["name"] != "later"
    }


def wait_for_a_later_decision(namespace: Namespace) -> None:
    """Wait until the operator decided about a service that was applied after all that happened."""
    namespace.apply(build_service("later", model={"uri": "pvc://nowhere/model"}))
    later = ServedModel(namespace, "later")
    later.wait_condition("Ready", "False")
    namespace.kubectl("delete", f"{RESOURCE}/later")
