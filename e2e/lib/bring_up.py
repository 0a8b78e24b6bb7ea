"""From nothing to a cluster that runs this source's operator and holds the model.

Only what is missing is done. The demo and the e2e tests both begin here.
"""

from cluster import IMAGES, Cluster, choose_cluster
from deployment import deploy
from images import image_tag
from model import IMAGE, pack_model
from steps import at_once, step

_ESTIMATES = {"runtime": " (where its source is new: about 3 minutes on 2 cores)"}


def bring_up() -> Cluster:
    """Return a running cluster with the operator in it."""
    cluster = choose_cluster()
    at_once(lambda: _start(cluster), lambda: build_images(cluster), _pack_model)
    tags = {target: image_tag(target) for target in IMAGES}
    with step("Images to the node"):
        for tag in tags.values():
            cluster.ship(tag)
        cluster.load(pack_model(), IMAGE)
    with step("CRD, RBAC and operator"):
        deploy(cluster.kubectl, cluster.helm, tags["operator"], tags["runtime"])
    return cluster


def _start(cluster: Cluster) -> None:
    with step("Cluster programs (the first time: about 12 minutes on 2 cores)"):
        cluster.prepare()
    with step("Cluster"):
        cluster.up()


def build_images(cluster: Cluster) -> None:
    """Build the images of this source that are not there."""
    for target in IMAGES:
        with step(f"Image of the {target}{_ESTIMATES.get(target, '')}"):
            cluster.build(target, image_tag(target))


def _pack_model() -> None:
    with step("Model as an OCI image"):
        pack_model()
