"""What this machine can do at most: bytes read and operations a second, on one and all threads.

Measured by loops in C++ (limits.cpp), compiled for the processor at hand; where there is no
compiler, or it is not enough for an instruction, by torch's operators alone.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from forebay_kernels.cpu.build import CannotBuild, find_compiler

_SOURCE = Path(__file__).with_name("limits.cpp")
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC")
_REPEATS = 400
_GEMM_SIZE = 1024
BIG_BYTES = 2**31
KINDS = ("float32", "bf16", "int8")


@dataclass(frozen=True)
class Limits:
    """Of one number of threads. read_bytes: a second, by the buffer's bytes. peaks: by KINDS."""

    num_threads: int
    read_bytes: dict[int, float]
    peaks: dict[str, float]
    torch_peaks: dict[str, float]

    @property
    def bandwidth(self) -> float:
        """Bytes a second, of the largest buffer."""
        return self.read_bytes[max(self.read_bytes)]

    def peak(self, kind: str) -> float:
        """Operations a second: the better of the loop's and of torch's."""
        return max(self.peaks.get(kind, 0.0), self.torch_peaks.get(kind, 0.0))


def compile_loops() -> ctypes.CDLL | None:
    """The loops; None where there is no compiler that takes them, which is said."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "limits.so"
        try:
            command = [find_compiler(), *_FLAGS, "-pthread", "-o", str(library), str(_SOURCE)]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except CannotBuild as problem:
            print(f"No native loops, only torch's operators: {problem}")
            return None
        except subprocess.CalledProcessError as problem:
            print(f"No native loops, only torch's operators: {problem.stderr[:500]}")
            return None
        loops = ctypes.CDLL(str(library))
    for name in ("limit_read_seconds", "limit_float32", "limit_bf16", "limit_int8"):
        getattr(loops, name).restype = ctypes.c_double
    loops.limit_read_seconds.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int,
        ctypes.c_int,
    ]
    return loops


def measure_limits(
    loops: ctypes.CDLL | None, num_threads: int, weights_bytes: int, big_bytes: int = BIG_BYTES
) -> Limits:
    """Bandwidth on buffers of both sizes, and the peak of each kind of number."""
    read = {
        num_bytes: _read_rate(loops, num_bytes, num_threads)
        for num_bytes in (weights_bytes, big_bytes)
    }
    peaks = {}
    if loops is not None:
        for kind in KINDS:
            peaks[kind] = float(getattr(loops, f"limit_{kind}")(num_threads, _REPEATS))
    return Limits(num_threads, read, peaks, _torch_peaks(num_threads))


def _read_rate(loops: ctypes.CDLL | None, num_bytes: int, num_threads: int) -> float:
    """Bytes a second of the best of several passes over one buffer."""
    buffer = torch.ones(num_bytes // 4, dtype=torch.float32)
    if loops is None:
        torch.set_num_threads(num_threads)
        return buffer.nbytes / least_seconds(buffer.sum)
    # Each thread reads a whole number of the loop's strides, or a little would be left out.
    stride = 512 * num_threads
    whole = buffer.nbytes // stride * stride
    repeats = max(5, min(60, 2**32 // whole))
    return whole / float(loops.limit_read_seconds(buffer.data_ptr(), whole, num_threads, repeats))


def _torch_peaks(num_threads: int) -> dict[str, float]:
    """Of square products by torch (oneDNN, MKL), operations a second."""
    torch.set_num_threads(num_threads)
    n = _GEMM_SIZE
    a = torch.randn(n, n)
    pairs: dict[str, Callable[[], object]] = {"float32": lambda: torch.mm(a, a)}
    narrow, codes = a.bfloat16(), a.mul(20).to(torch.int8)
    pairs["bf16"] = lambda: torch.mm(narrow, narrow)
    pairs["int8"] = lambda: torch._int_mm(codes, codes)
    return {kind: 2 * n**3 / least_seconds(product, 7) for kind, product in pairs.items()}


def least_seconds(call: Callable[[], object], repeats: int = 9) -> float:
    """Of several calls, after one that warms up."""
    call()
    least = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        least = min(least, time.perf_counter() - start)
    return least
