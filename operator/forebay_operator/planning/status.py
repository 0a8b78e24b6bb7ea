"""The whole status of one decision."""

from forebay_operator.planning.conditions import build_conditions, stamp_conditions
from forebay_operator.planning.metadata import selector_labels
from forebay_operator.planning.network_service import service_url
from forebay_operator.planning.outlook import Outlook
from forebay_operator.planning.situation import Manifest, Situation


def build_status(outlook: Outlook, scaling: Manifest | None, draining: list[Manifest]) -> Manifest:
    """What a reader of the InferenceService sees; a field that does not apply is absent."""
    situation = outlook.situation
    optional = {
        "model": outlook.knowledge.model,
        "plan": outlook.revision.plan if outlook.revision else None,
        "scaling": scaling,
        "draining": draining,
    }
    return {
        "observedGeneration": situation.service.generation,
        "conditions": stamp_conditions(build_conditions(outlook), situation),
        "replicas": outlook.progress.num_existing,
        "readyReplicas": outlook.progress.num_ready,
        "selector": format_selector(situation),
        "url": service_url(situation.service),
        **{name: value for name, value in optional.items() if value},
    }


def format_selector(situation: Situation) -> str:
    """The pods' selector as text, for a HorizontalPodAutoscaler."""
    labels = selector_labels(situation.service)
    return ",".join(f"{key}={value}" for key, value in labels.items())
