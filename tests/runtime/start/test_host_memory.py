"""What a process may have is known before it allocates: an allocation itself may not fail."""

import os
from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.start import host_memory
from forebay_runtime.start.host_memory import read_memory_limit
from tiny_model import save_tiny

ALL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [("1048576\n", 1048576), ("max\n", ALL), (f"{2**63 - 4096}\n", ALL), (None, ALL)],
    ids=["limited", "unlimited", "unlimited-v1", "no-cgroup"],
)
def test_the_limit_is_the_cgroups_or_all_memory(
    tmp_path: Path, text: str | None, num_bytes: int
) -> None:
    limit = tmp_path / "memory.max"
    if text is not None:
        limit.write_text(text)
    assert read_memory_limit([tmp_path / "absent", limit]) == num_bytes


def test_a_cache_beyond_the_containers_limit_is_never_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(str(64 * 1024))
    monkeypatch.setattr(host_memory, "_CGROUP_LIMITS", (limit,))
    save_tiny(tmp_path)
    config = EngineConfig(tmp_path, device="cpu", dtype="float32", kv_cache_memory_bytes=2**20)
    with pytest.raises(StartError, match=r"lower --kv-cache-memory-bytes.*may have 64 KiB in all"):
        build_engine(config)


@pytest.mark.parametrize("dtype", ["float32", "float16"], ids=["native", "torch"])
def test_a_step_beyond_all_memory_is_never_allocated(tmp_path: Path, dtype: str) -> None:
    save_tiny(tmp_path)
    sizes: dict[str, Any] = {"max_num_batched_tokens": 10**12, "max_model_len": 64}
    config = EngineConfig(tmp_path, device="cpu", dtype=dtype, **sizes)
    with pytest.raises(StartError, match="for the largest step .*; lower --max-num-batched-tokens"):
        build_engine(config)
