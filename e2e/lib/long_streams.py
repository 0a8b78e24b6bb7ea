"""Long answers that hold every pod of a service busy, for whatever happens to the pods then."""

from cluster_api import wait_until
from served import ServedModel
from traffic import Stream, Traffic

NUM_STREAMS = 8
NUM_TOKENS = 200


def hold_pods(served: ServedModel, traffic: Traffic) -> list[Stream]:
    """Open long streams, at least NUM_STREAMS, until every pod holds one that has begun."""
    pods = [pod["metadata"]["name"] for pod in served.pods()]
    streams = [traffic.open_stream(NUM_TOKENS) for _ in range(NUM_STREAMS)]
    _wait_begun(streams)
    # Which pod a new connection reaches is chance.
    while not all(served.load(pod)["running"] for pod in pods):
        streams.append(traffic.open_stream(NUM_TOKENS))
        _wait_begun(streams)
    return streams


def _wait_begun(streams: list[Stream]) -> None:
    wait_until(
        lambda: [stream.answer.fault for stream in streams if not stream.answer.pieces],
        lambda mute: not mute,
        "every stream has begun",
        120,
    )
