"""What a GPU's architecture allows a kernel, and what single GPUs are rated for.

Launch tables choose by an Architecture, compiled kernels are held to its limits, and the roofline
estimates with a Gpu's ratings. Imports no Triton.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

KIB = 1024


@dataclass(frozen=True)
class Architecture:
    """Limits of one compute capability.

    generation: whose launch parameters and matrix instructions it takes: sm_80, sm_90 or sm_100.
    shared_bytes: of one program, as a kernel may ask at most; shared_bytes_per_sm: of all
    programs on a multiprocessor, of which each also takes 1 KiB for the system.
    Source: NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    name: str
    capability: int
    generation: str
    shared_bytes: int
    shared_bytes_per_sm: int
    most_warps_per_sm: int = 64
    most_programs_per_sm: int = 32
    registers_per_sm: int = 65_536

    @property
    def matrix_instructions(self) -> tuple[str, ...]:
        """What tensor cores are told in PTX, the generation's own first."""
        return _MATRIX_INSTRUCTIONS[self.generation]


_MATRIX_INSTRUCTIONS = {
    "sm_80": ("mma.sync",),
    "sm_90": ("wgmma.mma_async", "mma.sync"),
    "sm_100": ("tcgen05.mma", "mma.sync"),
}

SM_80 = Architecture("sm_80", 80, "sm_80", 163 * KIB, 164 * KIB)
SM_90 = Architecture("sm_90", 90, "sm_90", 227 * KIB, 228 * KIB)
SM_100 = Architecture("sm_100", 100, "sm_100", 227 * KIB, 228 * KIB)

SHIPPED = (SM_80, SM_90, SM_100)
"""What launch tables are made for and tests compile for."""

_KNOWN = {
    architecture.capability: architecture
    for architecture in (
        *SHIPPED,
        Architecture("sm_86", 86, "sm_80", 99 * KIB, 100 * KIB, 48, 16),
        Architecture("sm_89", 89, "sm_80", 99 * KIB, 100 * KIB, 48, 24),
        Architecture("sm_103", 103, "sm_100", 227 * KIB, 228 * KIB),
        # Blackwell for workstations has neither wgmma nor tcgen05.
        Architecture("sm_120", 120, "sm_80", 99 * KIB, 100 * KIB, 48, 24),
    )
}


@cache
def architecture_of(device: torch.device) -> Architecture:
    """A device's architecture; where Triton interprets on a CPU, as if it were SM_90.

    Raises: ValueError for a GPU older than sm_80, which the kernels are not made for.
    """
    if device.type != "cuda":
        return SM_90
    major, minor = torch.cuda.get_device_capability(device)
    return architecture_at(10 * major + minor)


def architecture_at(capability: int) -> Architecture:
    """The architecture of a compute capability; of one not known, by the least that it can be.

    Raises: ValueError for one older than sm_80.
    """
    if capability < SM_80.capability:
        raise ValueError(
            f"the GPU has compute capability {capability / 10}; the kernels need 8.0 or newer"
        )
    if capability in _KNOWN:
        return _KNOWN[capability]
    return Architecture(f"sm_{capability}", capability, "sm_80", 99 * KIB, 100 * KIB, 48, 16)


@dataclass(frozen=True)
class Gpu:
    """One product's ratings: peaks that no program reaches; matrix rates without sparsity.

    Units: bytes_per_second of its memory; flops_per_second of bf16 and fp16 products with float32
    sums; int8_per_second operations of int8 products; l2_bytes.
    """

    name: str
    architecture: Architecture
    num_sms: int
    memory_bytes: int
    bytes_per_second: float
    flops_per_second: float
    int8_per_second: float
    l2_bytes: int


# Sources: NVIDIA's datasheets "A100 80GB SXM", "H100 SXM", "H200 SXM" and "HGX B200" (the eighth
# part of it), whose matrix rates with sparsity are halved; multiprocessors and L2 by the
# architectures' whitepapers.
A100 = Gpu("A100 80GB SXM", SM_80, 108, 80 * 10**9, 2.039e12, 312e12, 624e12, 40 * KIB**2)
H100 = Gpu("H100 SXM", SM_90, 132, 80 * 10**9, 3.35e12, 989.5e12, 1_979e12, 50 * KIB**2)
H200 = Gpu("H200 SXM", SM_90, 132, 141 * 10**9, 4.8e12, 989.5e12, 1_979e12, 50 * KIB**2)
B200 = Gpu("B200 SXM", SM_100, 148, 180 * 10**9, 8.0e12, 2_250e12, 4_500e12, 126 * KIB**2)
