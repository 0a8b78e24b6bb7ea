"""What a pod trusts a model hub by, where the hub's certificate is not of a public authority."""

from forebay_operator.observed import Settings
from forebay_operator.planning.situation import Manifest
from forebay_operator.service import Model

FOLDER = "/etc/forebay/hub"
VOLUME = "forebay-hub-ca"
FILE = "ca.crt"


def build_hub_trust(model: Model, settings: Settings) -> tuple[list[Manifest], list[Manifest]]:
    """The volume with the hub's certificates and its mount; both empty where none are named.

    The ConfigMap lies in the service's own namespace, as pods cannot mount another's.
    """
    config_map, _, key = settings.hub_ca.partition("/")
    if model.scheme != "hf" or not config_map:
        return [], []
    source = {"name": config_map, "items": [{"key": key or FILE, "path": FILE}]}
    mount = {"name": VOLUME, "mountPath": FOLDER, "readOnly": True}
    return [{"name": VOLUME, "configMap": source}], [mount]


def build_trust_env(model: Model, settings: Settings) -> list[Manifest]:
    """The variable by which Python and its clients find those certificates."""
    volumes, _ = build_hub_trust(model, settings)
    return [{"name": "SSL_CERT_FILE", "value": f"{FOLDER}/{FILE}"}] if volumes else []
