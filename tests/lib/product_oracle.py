"""What the CPU's products should give, computed in float64 from the same rounded inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from forebay_kernels.cpu.library import isa_names, native, native_library
from forebay_kernels.cpu.packed_matrix import CodeScales, PackedMatrix, pack_codes

BLOCK_INPUTS = 32


@contextmanager
def instructions(name: str) -> Iterator[None]:
    """One set of instructions for this process, for a while."""
    library = native_library()
    before = int(library.fb_isa())
    library.fb_use_isa(list(isa_names(library)).index(name))
    try:
        yield
    finally:
        library.fb_use_isa(before)


def usable_isas() -> list[str]:
    """Those that this processor and this build have; none without a library."""
    library = native()
    names = {} if library is None else isa_names(library)
    return [name for name, is_usable in names.items() if is_usable]


@dataclass(frozen=True)
class CodedWeight:
    """A matrix of codes, packed and as float64 [N, K]."""

    packed: PackedMatrix
    weight: Tensor
    unit_inputs: int


@dataclass(frozen=True)
class Coding:
    """bits; group_size, None for all; zero_kind: middle, integers or mins."""

    bits: int
    group_size: int | None
    zero_kind: str

    def __str__(self) -> str:
        return f"{self.bits}bit-group{self.group_size or 'all'}-{self.zero_kind}"


def random_codes(coding: Coding, num_outputs: int, num_inputs: int, seed: int = 0) -> CodedWeight:
    """Any codes, with scales that float16 holds."""
    generator = torch.Generator().manual_seed(seed)
    size = coding.group_size or num_inputs
    num_groups = -(-num_inputs // size)
    most = 2**coding.bits
    codes = torch.randint(0, most, (num_outputs, num_inputs), generator=generator)
    scales = (torch.rand(num_groups, num_outputs, generator=generator) + 0.2).half() / most
    zeros = torch.full((num_groups, num_outputs), most // 2)
    mins = torch.zeros(num_groups, num_outputs)
    if coding.zero_kind == "integers":
        zeros = torch.randint(0, most, (num_groups, num_outputs), generator=generator)
    if coding.zero_kind == "mins":
        zeros = torch.zeros(num_groups, num_outputs)
        mins = torch.randn(num_groups, num_outputs, generator=generator).half().float()
    meaning = CodeScales(
        coding.bits,
        coding.group_size,
        scales,
        zeros if coding.zero_kind == "integers" else None,
        mins if coding.zero_kind == "mins" else None,
    )
    group = torch.arange(num_inputs) // size
    weight = (codes - zeros.T[:, group]).double() * scales.T[:, group] + mins.T[:, group]
    packed = pack_codes(codes.to(torch.uint8), meaning)
    return CodedWeight(packed, weight, min(size, BLOCK_INPUTS))


def rounded_inputs(x: Tensor, unit_inputs: int) -> Tensor:
    """x [T, K] as codes of eight bits, a scale for each unit of inputs: float64 [T, K]."""
    padding = -x.shape[1] % unit_inputs
    units = torch.nn.functional.pad(x, (0, padding)).unflatten(1, (-1, unit_inputs))
    most = units.abs().amax(2, keepdim=True)
    inverse = torch.where(
        most > 0, torch.full_like(most, 127) / most, 0
    )  # 127 / most is rounded twice
    codes = (units * inverse).round()
    rounded: Tensor = (codes.double() * (most / 127)).flatten(1)[:, : x.shape[1]]
    return rounded


def error(out: Tensor, wanted: Tensor, weight: Tensor, x: Tensor) -> float:
    """The largest error, against what the largest products of an output come to."""
    sizes = x.double().abs() @ weight.double().abs().T
    return float(((out - wanted).abs() / sizes.clamp_min(1e-30)).max())
