"""Story: no request reaches a pod before its warm-up ended, and none later finds a thing cold."""

import httpx
import pytest

from cluster_api import Object, wait_until
from impatient import Impatient
from namespace import Namespace
from route import reach, wait_turned_away
from served import SERVING_LABEL, ServedModel, build_service, sum_metric
from traffic import Traffic

NAME = "smollm2"
MAX_NUM_SEQS = 8
EAGER_SERVICE: Object = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "eager"},
    "spec": {
        "publishNotReadyAddresses": True,
        "selector": {SERVING_LABEL: NAME},
        "ports": [{"port": 80, "targetPort": "http"}],
    },
}
"""Leads to the pod from its first second, which the service's own Service must not."""


@pytest.fixture(scope="module")
def served(module_namespace: Namespace) -> ServedModel:
    """A service that was just applied."""
    engine = {"dtype": "float32", "maxModelLen": 1024, "maxNumSeqs": MAX_NUM_SEQS}
    module_namespace.apply(EAGER_SERVICE, build_service(NAME, engine=engine))
    return ServedModel(module_namespace, NAME)


def test_callers_from_the_first_second_are_put_off_and_then_answered(served: ServedModel) -> None:
    at_service = Impatient(served.base_url(), NAME)
    at_pod = Impatient(f"{reach(served.namespace, 'eager')}/v1", NAME)
    wait_turned_away(at_service.base_url)
    wait_turned_away(at_pod.base_url)

    with at_service.calling(), at_pod.calling():
        served.wait_ready()
        wait_until(lambda: at_service.num_right, lambda number: number >= 10, "10 answers", 60)

    for caller in (at_service, at_pod):
        assert caller.put_off, "it called too late to show anything"
        assert set(caller.put_off) == {one for one in caller.put_off if one.is_put_off}
        assert set(caller.served) == {one for one in caller.served if one.is_right}


def test_nothing_is_cold_at_any_batch_size(served: ServedModel) -> None:
    served.wait_ready()
    traffic = Traffic(served.base_url(), NAME)
    (pod,) = served.wait_pods(1)

    for num_together in (*range(1, MAX_NUM_SEQS + 1), MAX_NUM_SEQS + 5):
        traffic.ask_together([2 + index for index in range(num_together)])
    for num_words in (1, 100, 700):
        ask_with_long_prompt(served, num_words)

    metrics = served.metrics(pod["metadata"]["name"])
    assert traffic.faults == []
    assert sum_metric(metrics, "vllm:request_success_total") >= traffic.num_answers
    assert sum_metric(metrics, "forebay:cold_total") == 0


def ask_with_long_prompt(served: ServedModel, num_words: int) -> None:
    """Send a prompt of about so many tokens, which is computed in several pieces."""
    body = {"model": NAME, "prompt": "water " * num_words, "max_tokens": 2}
    response = httpx.post(f"{served.base_url()}/completions", json=body, timeout=120)
    assert response.is_success, response.text
