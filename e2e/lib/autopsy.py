"""What a person would look at after a failure: objects, events, descriptions and logs, as text."""

from commands import CommandError
from deployment import NAMESPACE, OPERATOR
from namespace import Namespace

NUM_LOG_LINES = 200


def write_autopsy(namespace: Namespace) -> list[tuple[str, str]]:
    """Return (title, text) sections about a namespace; what cannot be read says why."""
    here = ("--namespace", namespace.name)
    kinds = "deployments,replicasets,jobs,pods,services,endpointslices,controllerrevisions"
    commands = [
        ("get", "inferenceservices.forebay.dev", "-o", "yaml", *here),
        ("get", kinds, "-o", "wide", *here),
        ("get", "events", "--sort-by=.lastTimestamp", *here),
        ("describe", "pods", *here),
    ]
    for pod in _pod_names(namespace):
        logs = ("logs", pod, "--all-containers", "--prefix", f"--tail={NUM_LOG_LINES}", *here)
        commands += [logs, (*logs, "--previous")]
    there = ("--namespace", NAMESPACE)
    commands.append(("logs", f"deployment/{OPERATOR}", f"--tail={2 * NUM_LOG_LINES}", *there))
    return [(f"kubectl {' '.join(command)}", _print(namespace, command)) for command in commands]


def _pod_names(namespace: Namespace) -> list[str]:
    try:
        return [pod["metadata"]["name"] for pod in namespace.list("pods")]
    except Exception as error:  # an autopsy never hides the failure it is about
        return [f"unknown ({error})"]


def _print(namespace: Namespace, command: tuple[str, ...]) -> str:
    try:
        return namespace.cluster_kubectl(*command)
    except (CommandError, OSError) as error:
        return str(error)
