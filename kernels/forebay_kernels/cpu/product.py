"""A single product on a CPU, in Linear's place for what runs operation by operation."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from forebay_kernels.cpu.native_structs import InputForm, NativeCall
from forebay_kernels.cpu.packed_matrix import PackedMatrix
from forebay_kernels.cpu.recorded import RecordedRows
from forebay_kernels.cpu.workspace import Workspace, own_workspace


class CpuLinear:
    """x @ weight.T + bias, by the native kernels.

    Shapes: x [T, I]; weight [N, I]; bias [N]; out [T, N]. Of another dtype than float32, x and out
    are converted. Of rows that are recorded it is an instruction, and what their program is told
    counts rather than input_form.
    """

    def __init__(
        self,
        matrix: PackedMatrix,
        bias: Tensor | None = None,
        input_form: InputForm = InputForm.ROUNDED,
    ) -> None:
        self.num_bytes = matrix.num_bytes + (bias.nbytes if bias is not None else 0)
        self.matrix = matrix
        self.bias = None if bias is None else bias.float().contiguous()
        self._input_form = input_form

    def __call__(self, x: Tensor) -> Tensor:
        """The product."""
        if isinstance(x, RecordedRows):
            return x.then(x.program.linear(x.buffer, self.matrix, self.bias))
        out = torch.empty(x.shape[0], self.matrix.num_outputs)
        multiply(self.matrix, _as_float(x), out, self.bias, input_form=self._input_form)
        return out.to(x.dtype)

    def add_to(self, residual: Tensor, x: Tensor) -> Tensor:
        """The product plus residual [T, N], where they are recorded in its place."""
        if isinstance(x, RecordedRows) and isinstance(residual, RecordedRows):
            x.program.linear_add(residual.buffer, x.buffer, self.matrix, self.bias)
            return residual
        out = residual.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        multiply(self.matrix, _as_float(x), out, self.bias, input_form=self._input_form, adds=True)
        return out.to(residual.dtype)


def multiply(
    matrix: PackedMatrix,
    x: Tensor,
    out: Tensor,
    bias: Tensor | None = None,
    *,
    input_form: InputForm = InputForm.ROUNDED,
    adds: bool = False,
) -> None:
    """out = x @ weight.T + bias, or out += that, on the calling thread's workspace.

    Shapes: x [T, I], out [T, N], bias [N], float32, the last dimension contiguous.
    """
    product = Product(matrix, x, out, bias, input_form=input_form, adds=adds)
    product.run(own_workspace())


class Product:
    """A product whose operands are given once, to be run often; they have to stay."""

    def __init__(
        self,
        matrix: PackedMatrix,
        x: Tensor,
        out: Tensor,
        bias: Tensor | None = None,
        *,
        input_form: InputForm = InputForm.ROUNDED,
        adds: bool = False,
    ) -> None:
        """Raises: ValueError if shapes, strides or dtypes are not as multiply tells."""
        num_rows = x.shape[0]
        _check("x", x, (num_rows, matrix.num_inputs))
        _check("out", out, (num_rows, matrix.num_outputs))
        if bias is not None:
            _check("bias", bias, (matrix.num_outputs,))
        self._kept = (matrix, x, out, bias)
        self._matrix = ctypes.byref(matrix.native)
        self._call = NativeCall(
            x=x.data_ptr(),
            x_stride=x.stride(0),
            num_rows=num_rows,
            bias=None if bias is None else bias.data_ptr(),
            out=out.data_ptr(),
            out_stride=out.stride(0),
            adds=adds,
            input_form=input_form,
        )

    def run(self, workspace: Workspace) -> None:
        """Compute it."""
        workspace.library.fb_linear(self._matrix, ctypes.byref(self._call), workspace.handle)


def _as_float(x: Tensor) -> Tensor:
    x = x.to(torch.float32)
    return x if x.stride(-1) == 1 else x.contiguous()


def _check(what: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    is_plain = tensor.dtype == torch.float32 and (tensor.stride(-1) == 1 or tensor.shape[-1] <= 1)
    if tensor.shape != shape or not is_plain or tensor.device.type != "cpu":
        raise ValueError(
            f"{what} of shape {tuple(tensor.shape)} and {tensor.dtype} was given; a product takes "
            f"{shape} in float32, on the CPU and with its last dimension contiguous"
        )
