"""Taints by which those who take nodes away announce it.

A cordon alone announces nothing: people cordon nodes to look at them.
"""

from forebay_operator.observed import Object

ENDING_TAINTS = frozenset(
    {
        "karpenter.sh/disrupted",
        "karpenter.sh/disruption",
        "ToBeDeletedByClusterAutoscaler",
        "aws-node-termination-handler/spot-itn",
        "aws-node-termination-handler/scheduled-maintenance",
        "aws-node-termination-handler/asg-lifecycle-termination",
        "cloud.google.com/impending-node-termination",
        "node.cloudprovider.kubernetes.io/shutdown",
        "node.kubernetes.io/out-of-service",
    }
)


def find_ending(node: Object) -> str:
    """The taint that announces a node's end; empty where none does."""
    taints = (node.get("spec") or {}).get("taints") or ()
    return next((one["key"] for one in taints if one["key"] in ENDING_TAINTS), "")
