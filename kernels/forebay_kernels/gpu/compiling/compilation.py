"""Compiles a variant ahead of time, for any architecture and without a GPU, and says what it takes.

Used by the tests and by the kernels' report. Triton keeps what it compiled by source, so that a
second time costs little.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from forebay_kernels.gpu.architecture import Architecture
from forebay_kernels.gpu.variant import Variant

_WARP_LANES = 32
_SYSTEM_SHARED_BYTES = 1024
"""Of each program's shared memory, beside its own."""
_REGISTER_UNIT = 256
"""Registers are given to a warp in so many at a time."""


@dataclass(frozen=True)
class Resources:
    """What a program takes of a multiprocessor, and which matrix instructions it has.

    registers: of one thread. local_bytes: of one thread, in memory: what did not fit in registers.
    occupancy: warps at a time as a share of the most that there can be.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    matrix_instructions: tuple[str, ...]
    occupancy: float


def compile_variant(variant: Variant, architecture: Architecture) -> Resources:
    """Compile and read what the compiler gave.

    Raises: triton.CompilationError and what else Triton raises for a kernel that is none.
    """
    compiled = _compile(variant, architecture)
    registers, local_bytes = _read_usage(compiled.asm["cubin"])
    shared_bytes = int(compiled.metadata.shared)
    return Resources(
        registers,
        local_bytes,
        shared_bytes,
        tuple(name for name in architecture.matrix_instructions if name in compiled.asm["ptx"]),
        _occupancy(architecture, variant.launch.num_warps, registers, shared_bytes),
    )


def faults(variant: Variant, resources: Resources, architecture: Architecture) -> tuple[str, ...]:
    """What must not ship, one sentence each; nothing for a good kernel."""
    found = []
    if resources.local_bytes:
        found.append(
            f"{resources.local_bytes} bytes a thread spill out of its {resources.registers} "
            "registers: make the tiles smaller or the warps more"
        )
    most = min(variant.launch.shared_bytes, architecture.shared_bytes)
    if resources.shared_bytes > most:
        found.append(
            f"{resources.shared_bytes} bytes of shared memory are more than {most}, what the "
            f"launch says or {architecture.name} has: lower num_stages or the tiles"
        )
    if variant.uses_tensor_cores and not resources.matrix_instructions:
        found.append(f"no tensor core is used: none of {architecture.matrix_instructions} is there")
    return tuple(found)


def _compile(variant: Variant, architecture: Architecture) -> Any:
    kernel, constants = variant.kernel, dict(variant.constants)
    signature = {
        name: "constexpr" if name in constants else variant.signature[name]
        for name in kernel.arg_names
    }
    aligned = {
        (kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in variant.aligned
    }
    source = ASTSource(kernel, signature, constants, aligned)
    target = GPUTarget("cuda", architecture.capability, _WARP_LANES)
    options = {"num_warps": variant.launch.num_warps, "num_stages": variant.launch.num_stages}
    return triton.compile(source, target=target, options=options)


def _read_usage(cubin: bytes) -> tuple[int, int]:
    """Registers, and local bytes with the stack, of the one kernel in a binary."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    usage = {name: int(number) for name, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", told)}
    return usage["REG"], usage["STACK"] + usage["LOCAL"]


def _occupancy(
    architecture: Architecture, num_warps: int, registers: int, shared_bytes: int
) -> float:
    """Source: NVIDIA, CUDA C++ Best Practices Guide, "Occupancy"."""
    a_warp = -(-registers * _WARP_LANES // _REGISTER_UNIT) * _REGISTER_UNIT
    num_programs = min(
        architecture.most_programs_per_sm,
        architecture.most_warps_per_sm // num_warps,
        architecture.registers_per_sm // (a_warp * num_warps),
        architecture.shared_bytes_per_sm // (shared_bytes + _SYSTEM_SHARED_BYTES),
    )
    return num_programs * num_warps / architecture.most_warps_per_sm
