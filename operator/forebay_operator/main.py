"""kopf's entry: `kopf run -m forebay_operator.main`. Handlers only hand events over; nothing
happens here.

Only `on.event` handlers exist (no create, update, delete, field, timer or daemon ones), so kopf
writes nothing: no annotations, no finalizers.
"""

import logging
from typing import Any

import kopf
from kubernetes.aio import config as kubeconfig
from kubernetes.aio.client.configuration import Configuration

from forebay_operator.cluster import ApiError, KubernetesCluster
from forebay_operator.controller import Controller
from forebay_operator.kinds import (
    CHILDREN,
    INFERENCE_SERVICE,
    MANAGED_SELECTOR,
    NODE,
    WATCHED,
    Kind,
)
from forebay_operator.lease import FAILURES
from forebay_operator.planning import plan
from forebay_operator.settings import read_settings

RETRY_SECONDS = 3.0

_running: list[Controller] = []


@kopf.on.login()
async def login(**_: Any) -> kopf.ConnectionInfo:
    """Give kopf the same credentials that our own requests use, read anew each time."""
    configuration = await load_configuration()
    token = await configuration.get_api_key_with_prefix("BearerToken")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme="Bearer" if token else None,
        token=token.split(" ", 1)[-1] if token else None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


async def load_configuration() -> Configuration:
    """The pod's own credentials inside a cluster, the kubeconfig's elsewhere."""
    configuration = Configuration()
    try:
        kubeconfig.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except kubeconfig.ConfigException:
        await kubeconfig.load_kube_config(  # type: ignore[no-untyped-call]
            client_configuration=configuration
        )
    return configuration


@kopf.on.startup(errors=kopf.ErrorsMode.PERMANENT)
async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
    """Set kopf up, wait for the API server and the CRD, and begin to compete for the lease."""
    configure(settings)
    process = read_settings()
    cluster = KubernetesCluster(await load_configuration())
    controller = Controller(cluster, process, plan)
    try:
        namespace = process.namespaces[0] if process.namespaces else None
        await cluster.list(INFERENCE_SERVICE, namespace)
        controller.store.has_nodes = await _can_list_nodes(cluster)
    except FAILURES as error:
        await cluster.close()
        raise kopf.TemporaryError(_explain(error), delay=RETRY_SECONDS) from error
    if controller.store.has_nodes:
        _watch(NODE)
    await controller.start()
    _running.append(controller)


@kopf.on.cleanup()
async def stop(**_: Any) -> None:
    """Stop all work and give the lease back."""
    while _running:
        await _running.pop().stop()


@kopf.on.probe(id="watches", errors=kopf.ErrorsMode.PERMANENT)
async def check_watches(**_: Any) -> str:
    """Fail liveness where a watch went silent."""
    for controller in _running:
        complaint = controller.complaint()
        if complaint:
            raise kopf.PermanentError(complaint)
    return "ok"


async def notice(event: kopf.RawEvent, **_: Any) -> None:
    """Hand one event over."""
    for controller in _running:
        controller.notice(event["type"], event["object"])


def configure(settings: kopf.OperatorSettings) -> None:
    """What experience with kopf in production asks for."""
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.server_timeout = 600
    settings.watching.client_timeout = 660
    settings.watching.connect_timeout = settings.networking.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 60
    settings.networking.enforce_retry_after = True
    settings.execution.default_backoff = 5
    settings.queueing.error_delays = [1, 2, 5, 10, 30, 60]
    settings.queueing.exit_timeout = 0.5
    settings.process.ultimate_exiting_timeout = 25
    for kind in CHILDREN:
        settings.watching.label_selectors[kind.group, kind.version, kind.plural] = MANAGED_SELECTOR
    for noisy in ("kopf.objects", "kopf.activities.probe", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


async def _can_list_nodes(cluster: KubernetesCluster) -> bool:
    try:
        await cluster.list(NODE, None)
    except ApiError as error:
        if error.status == 403:
            return False
        raise
    return True


def _explain(error: Exception) -> str:
    if not isinstance(error, ApiError):
        return f"The API server does not answer: {error!r}"
    if error.status == 404:
        return "The CRD inferenceservices.forebay.dev is missing; apply crds/ first."
    return f"The API server refused to list: {error.message}"


def _watch(kind: Kind) -> None:
    kopf.on.event(kind.group, kind.version, kind.plural)(notice)


for _kind in WATCHED:
    _watch(_kind)
