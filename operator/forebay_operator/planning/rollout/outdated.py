"""The pods that a rollout replaces."""

from forebay_operator.objects import controller_of, uid_of
from forebay_operator.observed import Object
from forebay_operator.planning.pods import template_hash
from forebay_operator.planning.situation import Situation

_REVISION = "deployment.kubernetes.io/revision"


def list_outdated(situation: Situation, wanted_hash: str) -> list[Object]:
    """Pods of another template, those that leave included.

    So are those of this one whose ReplicaSet is no longer the Deployment's newest: after `kubectl
    rollout restart`, or where somebody else added to the Deployment's template.
    """
    same = [one for one in situation.observed.replica_sets if template_hash(one) == wanted_hash]
    older = {uid_of(one) for one in sorted(same, key=_revision)[:-1]}
    return [
        pod
        for pod in situation.observed.pods
        if template_hash(pod) != wanted_hash or controller_of(pod).get("uid") in older
    ]


def _revision(replica_set: Object) -> int:
    annotations = replica_set["metadata"].get("annotations") or {}
    return int(annotations.get(_REVISION, 0))
