"""A weight matrix in four or eight bits a number: one packing, whatever format it came in.

The weight of output n for input k is (code - zero) * scale, with zero and scale of n and of k's
group of inputs. Codes lie in words of 16 bytes, each holding consecutive inputs of one output, and
the words of neighbouring outputs side by side: whoever reads a tile of them reads whole lines of
memory, 16 bytes a thread. A word of eight bits a code has 16 inputs in order. A word of four bits
has 32: the first 16 in the low halves of its bytes, the last 16 in the high halves, so that a mask
and a shift give two runs of inputs and nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

GROUP_SIZES = (32, 64, 128)
WORD_BYTES = 16


@dataclass(frozen=True)
class QuantMatrix:
    """N outputs by K stored inputs.

    words: [K / inputs_a_word, N, 16] uint8. scales: [G, N], any float dtype. zeros: [G, N] uint8,
    or None where every zero is the middle code, 2 ** (bits - 1). bits: 4 or 8.
    group_size: inputs that share a scale, one of GROUP_SIZES; None: all of them, so G = 1.
    input_order: [K] int64, which input each stored one is, where they are stored in another order
    than they come in; an input may be stored more than once, which adds up. None: as they come.
    num_inputs: how many come in.
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor | None
    bits: int
    group_size: int | None
    num_inputs: int
    input_order: Tensor | None = None

    @property
    def num_outputs(self) -> int:
        """N."""
        return self.words.shape[1]

    @property
    def num_stored(self) -> int:
        """K, the inputs that are stored; num_inputs unless there is an input_order."""
        return self.words.shape[0] * inputs_a_word(self.bits)

    @property
    def num_bytes(self) -> int:
        """Bytes of codes, scales, zeros and order."""
        parts = (self.words, self.scales, self.zeros, self.input_order)
        return sum(part.nbytes for part in parts if part is not None)

    def to(self, device: torch.device) -> QuantMatrix:
        """The same matrix on a device."""
        return replace(
            self,
            words=self.words.to(device),
            scales=self.scales.to(device),
            zeros=None if self.zeros is None else self.zeros.to(device),
            input_order=None if self.input_order is None else self.input_order.to(device),
        )

    def codes(self) -> Tensor:
        """The codes one by one, inputs as stored: [N, K] uint8."""
        return unpack(self.words, self.bits)

    def dequantised(self, dtype: torch.dtype) -> Tensor:
        """The weight that this stands for, inputs as they come in: [N, num_inputs].

        Computed in float32 and rounded once.
        """
        size = self.group_size or self.num_stored
        zero = _middle(self.bits) if self.zeros is None else self.zeros.T.unsqueeze(2).float()
        groups = self.codes().float().unflatten(1, (-1, size))
        weight: Tensor = groups.sub_(zero).mul_(self.scales.T.unsqueeze(2).float()).flatten(1)
        if self.input_order is not None:
            stored, weight = weight, weight.new_zeros(self.num_outputs, self.num_inputs)
            weight.index_add_(1, self.input_order, stored)
        return weight.to(dtype)

    def split_rows(self, start: int, end: int) -> QuantMatrix:
        """Outputs start … end - 1, as one rank of a column-parallel product holds them.

        Raises: ValueError if there are no such outputs.
        """
        _check_range("outputs", start, end, self.num_outputs)
        return replace(
            self,
            words=self.words[:, start:end].contiguous(),
            scales=self.scales[:, start:end].contiguous(),
            zeros=None if self.zeros is None else self.zeros[:, start:end].contiguous(),
        )

    def split_columns(self, start: int, end: int) -> QuantMatrix:
        """Inputs start … end - 1, as one rank of a row-parallel product holds them.

        A matrix with an order of its own has these inputs in every group: each group's share is
        then filled up to a whole number of the smallest groups, with codes that mean zero.
        Raises: ValueError if there are no such inputs, or a border cuts a group in two.
        """
        _check_range("inputs", start, end, self.num_inputs)
        if self.input_order is not None:
            return self._pick_columns(self.input_order, start, end)
        step = self.group_size or inputs_a_word(self.bits)
        if start % step or end % step:
            unit = "group" if self.group_size else "word"
            raise ValueError(
                f"inputs {start} to {end} of a quantised matrix were asked for, which cuts a "
                f"{unit} of {step} inputs; split at multiples of {step}, or over fewer ranks"
            )
        width = inputs_a_word(self.bits)
        groups = slice(start // step, end // step) if self.group_size else slice(None)
        return replace(
            self,
            words=self.words[start // width : end // width].contiguous(),
            scales=self.scales[groups].contiguous(),
            zeros=None if self.zeros is None else self.zeros[groups].contiguous(),
            num_inputs=end - start,
        )

    def _pick_columns(self, order: Tensor, start: int, end: int) -> QuantMatrix:
        """Those of the stored inputs that come from [start, end), group by group."""
        codes, size = self.codes(), self.group_size or self.num_stored
        parts, inputs, groups = [], [], []
        for group in range(self.scales.shape[0]):
            stored = torch.arange(group * size, (group + 1) * size, device=order.device)
            stored = stored[(order[stored] >= start) & (order[stored] < end)]
            padding = -len(stored) % GROUP_SIZES[0]
            zero = self.scales.new_full((self.num_outputs,), _middle(self.bits), dtype=torch.uint8)
            if self.zeros is not None:
                zero = self.zeros[group]
            parts += [codes[:, stored], zero.unsqueeze(1).expand(-1, padding)]
            inputs += [order[stored] - start, order.new_zeros(padding)]
            groups += [group] * ((len(stored) + padding) // GROUP_SIZES[0])
        return replace(
            self,
            words=pack(torch.cat(parts, 1), self.bits),
            scales=self.scales[groups].contiguous(),
            zeros=None if self.zeros is None else self.zeros[groups].contiguous(),
            group_size=GROUP_SIZES[0],
            num_inputs=end - start,
            input_order=torch.cat(inputs),
        )


def merge_rows(parts: Sequence[QuantMatrix]) -> QuantMatrix:
    """Several matrices over the same inputs as one, outputs in the order of the parts.

    Parts with zeros beside parts without get zeros all.
    Raises: ValueError if they differ in bits, groups or order of inputs, and so cannot be one.
    """
    first = parts[0]
    if not all(can_merge(first, other) for other in parts[1:]):
        raise ValueError(
            "quantised matrices that differ in bits, group size or order of inputs cannot be one "
            "product; keep them apart"
        )
    has_zeros = any(part.zeros is not None for part in parts)
    zeros = torch.cat([_zeros(part) for part in parts], 1) if has_zeros else None
    return replace(
        first,
        words=torch.cat([part.words for part in parts], 1),
        scales=torch.cat([part.scales for part in parts], 1),
        zeros=zeros,
    )


def can_merge(one: QuantMatrix, other: QuantMatrix) -> bool:
    """Are they of the same bits, groups and order of inputs, so that merge_rows takes them?"""
    if (one.bits, one.group_size, one.words.shape[0]) != (
        other.bits,
        other.group_size,
        other.words.shape[0],
    ):
        return False
    if one.input_order is None or other.input_order is None:
        return one.input_order is other.input_order
    return torch.equal(one.input_order, other.input_order)


def build_matrix(
    codes: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    bits: int,
    group_size: int | None,
    input_order: Tensor | None = None,
) -> QuantMatrix:
    """A matrix of codes that are known: the way in for every format.

    Shapes: codes [N, K] uint8, inputs in the order of input_order; scales, zeros [G, N].
    Raises: ValueError if bits, group size or K are not what the packing can hold.
    """
    check_shape(codes.shape[1], bits, group_size)
    return QuantMatrix(
        words=pack(codes, bits),
        scales=scales.contiguous(),
        zeros=None if zeros is None else zeros.to(torch.uint8).contiguous(),
        bits=bits,
        group_size=group_size,
        num_inputs=codes.shape[1],
        input_order=input_order,
    )


def quantise(weight: Tensor, bits: int, group_size: int | None, symmetric: bool) -> QuantMatrix:
    """Round a weight [N, K] to nearest, with the scales that its groups' extremes ask for.

    symmetric: codes about the middle one; else about a zero of the group's own. Scales are of the
    weight's dtype, and codes are rounded for the scales as stored.
    Raises: ValueError as build_matrix.
    """
    num_inputs = weight.shape[1]
    check_shape(num_inputs, bits, group_size)
    groups = weight.float().unflatten(1, (-1, group_size or num_inputs))
    most, zeros = 2**bits - 1, None
    if symmetric:
        scales = groups.abs().amax(2) / (_middle(bits) - 1)
    else:
        low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
        scales = (high - low) / most
    scales = scales.to(weight.dtype)
    scales[scales == 0] = 1
    zero: int | Tensor = _middle(bits)
    if not symmetric:
        zeros = (-low / scales.float()).round().clamp(0, most)
        zero = zeros.unsqueeze(2)
    codes = (groups / scales.float().unsqueeze(2)).round_().add_(zero).clamp_(0, most)
    return build_matrix(
        codes.flatten(1).to(torch.uint8),
        scales.T,
        None if zeros is None else zeros.T,
        bits,
        group_size,
    )


def check_shape(num_inputs: int, bits: int, group_size: int | None) -> None:
    """Refuse what the packing cannot hold.

    Raises: ValueError naming what was asked and what is possible.
    """
    if bits not in (4, 8):
        raise ValueError(f"{bits} bits a weight are not supported; 4 and 8 are")
    if group_size is not None and group_size not in GROUP_SIZES:
        raise ValueError(
            f"groups of {group_size} inputs are not supported; "
            f"{', '.join(map(str, GROUP_SIZES))} and one scale for all inputs are"
        )
    unit = group_size or inputs_a_word(bits)
    if num_inputs % unit:
        raise ValueError(
            f"{num_inputs} inputs do not divide into {'groups' if group_size else 'words'} of "
            f"{unit}; choose a group size that divides them"
        )


def inputs_a_word(bits: int) -> int:
    """Inputs in a word of 16 bytes."""
    return WORD_BYTES * 8 // bits


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes [N, K] uint8 as words [K / inputs_a_word, N, 16]."""
    words: Tensor = codes.unflatten(1, (-1, 8 // bits, WORD_BYTES)).permute(1, 0, 2, 3)
    words = words.squeeze(2) if bits == 8 else words[:, :, 0] | (words[:, :, 1] << 4)
    return words.contiguous()


def unpack(words: Tensor, bits: int) -> Tensor:
    """Words [K / inputs_a_word, N, 16] as codes [N, K] uint8."""
    if bits == 8:
        return words.transpose(0, 1).flatten(1)
    return torch.stack((words & 15, words >> 4), 2).transpose(0, 1).flatten(1)


def _middle(bits: int) -> int:
    return 1 << (bits - 1)


def _zeros(matrix: QuantMatrix) -> Tensor:
    if matrix.zeros is not None:
        return matrix.zeros
    return torch.full_like(matrix.scales, _middle(matrix.bits), dtype=torch.uint8)


def _check_range(what: str, start: int, end: int, size: int) -> None:
    if not 0 <= start < end <= size:
        raise ValueError(f"{what} {start} to {end} were asked for; the matrix has {size}")
