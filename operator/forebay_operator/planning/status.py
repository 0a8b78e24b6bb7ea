"""The whole status of one decision."""

from forebay_budget.quantity import to_exact_quantity
from forebay_operator.planning.children.metadata import selector_labels
from forebay_operator.planning.children.serving import service_url
from forebay_operator.planning.condition import stamp_condition
from forebay_operator.planning.conditions import build_conditions
from forebay_operator.planning.draining.leaving import list_draining
from forebay_operator.planning.outlook import Outlook
from forebay_operator.planning.quota.admission import Claim, most_replicas
from forebay_operator.planning.rollout.revision import serving_revisions
from forebay_operator.planning.situation import Manifest


def build_status(outlook: Outlook, scaling: Manifest | None) -> Manifest:
    """What a reader of the InferenceService sees; a field that does not apply is absent."""
    situation = outlook.situation
    labels = selector_labels(situation.service)
    optional = {
        "model": outlook.knowledge.model,
        "draft": outlook.knowledge.draft_model,
        "plan": _plan(outlook),
        "vram": _vram(outlook),
        "memory": outlook.memory.status,
        "scaling": scaling,
        "draining": list_draining(situation, outlook.wanted_hash),
    }
    return {
        "observedGeneration": situation.service.generation,
        "conditions": [
            stamp_condition(condition, situation.observed.service, situation.now)
            for condition in build_conditions(outlook)
        ],
        "replicas": outlook.progress.num_existing,
        "readyReplicas": outlook.progress.num_ready,
        "selector": ",".join(f"{key}={value}" for key, value in labels.items()),
        "url": service_url(situation.service),
        **{name: value for name, value in optional.items() if value},
    }


def _plan(outlook: Outlook) -> Manifest | None:
    """Of what runs; of what would run, where nothing may yet."""
    if outlook.revision is not None:
        return outlook.revision.plan
    return outlook.sizing.fit.to_plan() if outlook.sizing.fit else None


def _vram(outlook: Outlook) -> Manifest | None:
    """What VRAMQuotas count: at most, and now, where pods of an earlier spec may take more."""
    told = (outlook.revision,) if outlook.revision else ()
    running = max(
        (one.vram_bytes for one in (*told, *serving_revisions(outlook.situation))), default=0
    )
    if outlook.admission.claim is None and not running:
        return None
    claim = outlook.admission.claim or Claim(0, most_replicas(outlook.situation.service))
    heads = outlook.headcount
    num_replicas = heads.num_wanted - heads.num_successors if outlook.revision else 0
    now = {"replicas": num_replicas, "perRunningReplica": to_exact_quantity(running)}
    return claim.to_status() | now
