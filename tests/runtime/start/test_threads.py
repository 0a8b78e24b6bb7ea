"""A pod with a CPU limit gets that many threads, not one for each core of its node."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from forebay_kernels import usable_cpus as cpus

V2 = "cgroup2 cgroup2 rw"
V1 = "cgroup cgroup rw,cpu,cpuacct"


class Host:
    """What a process sees of its cgroups, under a folder in place of the root."""

    def __init__(self, folder: Path) -> None:
        self.proc, self.mount = folder / "proc", folder / "cgroup"
        self.proc.mkdir()
        self._own: list[str] = []
        self._mounts = ["22 1 0:20 / /proc rw,relatime - proc proc rw"]

    def put(self, line: str, kind: str, root: str = "/", mount: str = "") -> None:
        """A line of /proc/self/cgroup, and where what it tells of is mounted."""
        self._own.append(line)
        at = self.mount / mount
        self._mounts.append(f"31 22 0:28 {root} {at} rw,relatime shared:9 - {kind}")
        (self.proc / "cgroup").write_text("\n".join(self._own) + "\n")
        (self.proc / "mountinfo").write_text("\n".join(self._mounts) + "\n")

    def limit(self, folder: str, quota: str) -> None:
        """A limit as the version that the folder's files are of spells it."""
        at = self.mount / folder
        at.mkdir(parents=True, exist_ok=True)
        if " " in quota:
            (at / "cpu.max").write_text(quota + "\n")
        else:
            (at / "cpu.cfs_quota_us").write_text(quota + "\n")
            (at / "cpu.cfs_period_us").write_text("100000\n")

    @property
    def quota(self) -> float | None:
        return cpus.read_quota(self.proc)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("quota", "cpus_allowed"),
    [("150000 100000", 1.5), ("max 100000", None), ("50000", 0.5), ("-1", None)],
    ids=["v2", "v2-unlimited", "v1", "v1-unlimited"],
)
def test_the_quota_is_read_from_either_cgroup_version(
    host: Host, quota: str, cpus_allowed: float | None
) -> None:
    host.put("0::/" if " " in quota else "4:cpu,cpuacct:/", V2 if " " in quota else V1)
    host.limit("", quota)
    assert host.quota == cpus_allowed


def test_without_cgroups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpus.read_quota(tmp_path) is None


@pytest.mark.parametrize(
    ("limits", "cpus_allowed"),
    [
        ({"pods/pod7/box": "200000 100000"}, 2.0),
        ({"pods/pod7/box": "max 100000", "pods/pod7": "300000 100000"}, 3.0),
        ({"pods/pod7/box": "400000 100000", "pods": "250000 100000"}, 2.5),
        ({"pods/pod8": "100000 100000"}, None),
    ],
    ids=["its-own", "its-parent's", "the-least", "another's"],
)
def test_a_limit_of_any_cgroup_above_counts(
    host: Host, limits: dict[str, str], cpus_allowed: float | None
) -> None:
    host.put("0::/pods/pod7/box", V2)
    for folder, quota in limits.items():
        host.limit(folder, quota)
    assert host.quota == cpus_allowed


@pytest.mark.parametrize(
    ("own", "root", "folder"),
    [("/pods/pod7", "/pods", "pod7"), ("/pods/pod7", "/other", ""), ("/../pod7", "/", "")],
    ids=["mounted-in-part", "mounted-elsewhere", "outside-of-its-namespace"],
)
def test_a_cgroup_is_looked_for_below_what_is_mounted(
    host: Host, own: str, root: str, folder: str
) -> None:
    host.put(f"0::{own}", V2, root)
    host.limit(folder, "100000 100000")
    assert host.quota == 1.0


def test_the_first_version_may_limit_beside_the_second(host: Host) -> None:
    host.put("0::/pod", V2, mount="unified")
    host.put("1:cpu,cpuacct:/pod", V1, mount="cpu")
    host.put("2:memory:/pod", "cgroup cgroup rw,memory", mount="memory")
    host.limit("cpu/pod", "300000")
    assert host.quota == 3.0


@pytest.mark.parametrize(
    ("quota", "number"),
    [(None, 4), (0.2, 1), (1.25, 1), (1.5, 2), (2.0, 2), (64.0, 4)],
    ids=["none", "little", "a-quarter-more", "a-half-more", "whole", "more-than-cores"],
)
def test_threads_are_the_nearest_whole_number_of_cpus(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, number: int
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(cpus, "read_quota", lambda _: quota)
    assert cpus.usable_cpus() == number


@pytest.fixture
def four_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    monkeypatch.setattr(cpus, "read_quota", lambda _: None)
    cpus._to_threads.cache_clear()


@pytest.mark.parametrize(
    ("asked", "number"),
    [("1", 1), ("2,1", 2), (" 3 , 2,1", 3), ("64", 4), ("", 4)],
    ids=["fewer", "nested", "spaced", "more", "empty"],
)
@pytest.mark.usefixtures("four_cpus")
def test_fewer_threads_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str, number: int
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert cpus.usable_cpus() == number
    assert caplog.messages == []


@pytest.mark.parametrize("asked", ["abc", "0", "-2", "2,0", "1.5", "²", "9" * 5000])
@pytest.mark.usefixtures("four_cpus")
def test_a_number_of_threads_that_is_none_is_passed_over_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, asked: str
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert [cpus.usable_cpus(), cpus.usable_cpus()] == [4, 4]
    [message] = caplog.messages
    assert message.startswith(f"Passed over OMP_NUM_THREADS={asked[:40]}")
    assert "a whole number of at least 1" in message and len(message) < 300


def test_never_more_threads_than_the_affinity_allows() -> None:
    assert 1 <= cpus.usable_cpus() <= len(os.sched_getaffinity(0))


SHOWN = """
import os, sys
import forebay_runtime.cli, forebay_runtime.serve_settings
from forebay_runtime.start.threads import prepare_libraries
assert not {"numpy", "torch"} & set(sys.modules), "too late to tell libraries"
prepare_libraries()
import forebay_runtime.server.loader, numpy, tokenizers, torch
numpy.ones((400, 400)) @ numpy.ones((400, 400))
torch.ones(400, 400) @ torch.ones(400, 400)
print(torch.get_num_threads(), len(os.listdir("/proc/self/task")))
"""


def test_libraries_start_no_more_threads_than_may_compute() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], capture_output=True, text=True, env=environment
    )
    assert done.stdout.split() == ["1", "1"], done.stderr
