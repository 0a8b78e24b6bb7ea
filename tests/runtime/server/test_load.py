"""`GET /load`: what the operator scales by, and what it compares with its plan."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forebay_runtime.server.metrics.gpu_utilization import GpuUtilization
from server_process import fake_server

QUIET = {"running": 0, "waiting": 0, "kvCacheUsage": 0.0}


@pytest.mark.component
def test_before_warm_up_nobody_knows_the_device_or_the_memory(tmp_path: Path) -> None:
    with fake_server(tmp_path, {"load_seconds": 600}) as server:
        said = server.get("/load").json()
    unknown = {"freeKvTokens": 0, "device": None, "gpuUtilization": None, "memoryBytes": None}
    assert said == QUIET | unknown


@pytest.mark.component
def test_a_warm_server_says_its_device_and_its_measured_memory(tmp_path: Path) -> None:
    with fake_server(tmp_path) as server:
        server.wait_ready()
        said = server.get("/load").json()
    measured = {"weights": 1010, "kvCache": 500, "activation": 190, "overhead": 120}
    told = {"device": "cpu", "gpuUtilization": None, "memoryBytes": measured}
    assert said == QUIET | {"freeKvTokens": 65_536} | told


class FakeNvml:
    """GPUs with these utilisations; None is a slice, which has none."""

    class NVMLError(Exception):
        pass

    def __init__(self, *percents: int | None) -> None:
        self.percents = percents
        self.num_read = 0

    def nvmlDeviceGetCount(self) -> int:
        if not self.percents:
            raise self.NVMLError
        return len(self.percents)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, gpu: int) -> Any:
        self.num_read += 1
        if self.percents[gpu] is None:
            raise self.NVMLError
        return SimpleNamespace(gpu=self.percents[gpu])


@pytest.mark.parametrize(
    ("percents", "share"),
    [((40,), 0.4), ((100, 50), 0.75), ((None, 50), 0.5), ((None,), None), ((), None)],
    ids=["one GPU", "two GPUs", "one that does not tell", "none that tells", "a lost driver"],
)
def test_the_utilisation_is_the_mean_of_the_gpus_that_tell(
    percents: tuple[int | None, ...], share: float | None
) -> None:
    assert GpuUtilization(FakeNvml(*percents)).read() == share


def test_the_driver_is_asked_once_a_second_however_often_the_load_is() -> None:
    now, nvml = [100.0], FakeNvml(40)
    gpus = GpuUtilization(nvml, lambda: now[0])
    for now[0] in (100.0, 100.4, 100.99, 101.0, 101.5):
        gpus.read()
    assert nvml.num_read == 2
