"""A pod with a CPU limit gets that many threads, not one for each core of its node."""

import os
from pathlib import Path

import pytest

from forebay_runtime.start import threads


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        pytest.param({"cpu.max": "150000 100000\n"}, 1.5, id="v2"),
        pytest.param({"cpu.max": "max 100000\n"}, None, id="v2-unlimited"),
        pytest.param(
            {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5, id="v1"
        ),
        pytest.param(
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            None,
            id="v1-unlimited",
        ),
        pytest.param({}, None, id="no-cgroup"),
    ],
)
def test_the_quota_is_read_from_either_cgroup_version(
    tmp_path: Path, files: dict[str, str], quota: float | None
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert threads.read_quota(tmp_path / "cpu.max", tmp_path / "cpu") == quota


@pytest.mark.parametrize(("asked", "number"), [("1", 1), ("nonsense", None), ("0", None)])
def test_fewer_threads_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch, asked: str, number: int | None
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    unasked = threads.usable_cpus()
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads.usable_cpus() == (unasked if number is None else number)


def test_never_more_threads_than_the_affinity_allows() -> None:
    assert 1 <= threads.usable_cpus() <= len(os.sched_getaffinity(0))
