"""Who this process is to the API server, in its own requests and in the watches of kopf."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

import kopf
from kubernetes.aio import config as kubeconfig
from kubernetes.aio.client.configuration import Configuration

AGAIN_SECONDS = 2.0
_NEVER = timedelta(days=36_500)


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


class Login:
    """Gives kopf the credentials that our own requests use, read anew each time.

    kopf ends the process when it is given once more what was refused before. But an API server may
    refuse a good token while it starts, and a file may hold the old one for a moment; so no two
    answers are equal, and they come at a pace.
    """

    def __init__(self) -> None:
        self._answered_at = float("-inf")

    async def answer(self) -> kopf.ConnectionInfo:
        """Once every AGAIN_SECONDS at most."""
        await asyncio.sleep(self._answered_at + AGAIN_SECONDS - time.monotonic())
        configuration = await load_configuration()
        token = await configuration.get_api_key_with_prefix("BearerToken")
        self._answered_at = time.monotonic()
        return kopf.ConnectionInfo(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            scheme="Bearer" if token else None,
            token=token.split(" ", 1)[-1] if token else None,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            expiration=datetime.now(UTC) + _NEVER,  # unlike any before
        )
