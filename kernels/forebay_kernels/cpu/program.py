"""A model's step as a list of native instructions, run by one call.

Whoever records a model calls the operations once, on symbolic buffers; finish() gives them memory,
and run() then computes a step of any size up to the most that the program was made for. Rows are
float32: one a token, or one a sampled token behind take_sampled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from forebay_kernels.attention_rule import FULL_ATTENTION, AttentionRule
from forebay_kernels.cpu import instructions
from forebay_kernels.cpu.buffer_places import ALIGNMENT
from forebay_kernels.cpu.instruction_list import Buffer, InstructionList, NativeProgram
from forebay_kernels.cpu.instructions import NUMBER_OF_DTYPE, Gate, Instruction, KvCache
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import PackedMatrix
from forebay_kernels.cpu.step import Limits, Step, StepArrays
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.rotation import HeadNorms

_GATES = {"silu": Gate.SILU, "gelu_tanh": Gate.GELU_TANH}


class Program:
    """Instructions over buffers of max_tokens or max_sampled rows.

    Every operation computes a row in one order of additions, whatever the other rows, the threads
    or the blocks of the cache are.
    """

    def __init__(
        self,
        max_tokens: int,
        max_seqs: int,
        max_sampled: int,
        pool: ThreadPool,
        *,
        input_form: InputForm = InputForm.ROUNDED,
    ) -> None:
        self._max_rows = {False: max_tokens, True: max_sampled}
        self._max_seqs = max_seqs
        self._pool = pool
        self._input_form = input_form
        self._instructions = InstructionList()
        self._kept: list[object] = []
        self._as_floats: dict[int, Tensor] = {}
        self._outputs: dict[Buffer, Tensor] = {}
        self._limits = Limits.none()
        self._workspace = torch.empty(0, dtype=torch.uint8)
        self._native: NativeProgram | None = None
        self._step = Step()

    def embedding(self, table: Tensor | PackedMatrix, scale: float = 1.0) -> Buffer:
        """The rows of the step's token ids: of a table [V, N], or of a matrix with V outputs."""
        self._kept.append(table)
        if isinstance(table, Tensor):
            num_ids, width = table.shape
            numbers = {"number": NUMBER_OF_DTYPE[table.dtype], "table": table.data_ptr()}
        else:
            num_ids, width = table.num_outputs, table.num_inputs
            numbers = {"matrix": ctypes.addressof(table.native)}
        self._limits.lower(num_ids=num_ids)
        out = Buffer(width)
        self._add(
            instructions.Embedding(width=width, num_ids=num_ids, scale=scale, **numbers), out=out
        )
        return out

    def rms_norm(self, x: Buffer, weight: Tensor, eps: float) -> Buffer:
        """x / sqrt(mean of squares + eps) * weight [N]."""
        out = Buffer(x.width, x.is_sampled)
        weights = self._floats(weight)
        self._add(instructions.RmsNorm(width=x.width, eps=eps, weight=weights), x=x, out=out)
        return out

    def linear(self, x: Buffer, matrix: PackedMatrix, bias: Tensor | None = None) -> Buffer:
        """x @ matrix.T + bias [N]."""
        return self.linear_row(x, [(matrix, bias)])

    def linear_row(self, x: Buffer, parts: Sequence[tuple[PackedMatrix, Tensor | None]]) -> Buffer:
        """Products of the same rows, their outputs side by side."""
        out = Buffer(sum(matrix.num_outputs for matrix, _ in parts), x.is_sampled)
        column = 0
        for matrix, bias in parts:
            self._multiply(x, matrix, bias, out, column)
            column += matrix.num_outputs
        return out

    def linear_add(
        self, residual: Buffer, x: Buffer, matrix: PackedMatrix, bias: Tensor | None = None
    ) -> None:
        """Add x @ matrix.T + bias to residual, in place."""
        self._multiply(x, matrix, bias, residual, 0, adds=True)

    def add(self, residual: Buffer, x: Buffer) -> None:
        """Add x to residual, in place."""
        self._add(instructions.Add(width=x.width), x=x, to=residual)

    def rotate_and_write(
        self, qkv: Buffer, norms: HeadNorms | None, cos: Tensor, sin: Tensor, layer: KvLayer
    ) -> Buffer:
        """Norm the query and key heads where norms say so, turn their first R numbers by the
        tokens' positions, and write keys and values to the tokens' slots.

        Shapes: qkv [T, (H + 2 K) * D]; cos, sin [num_positions, 1, R]; returns the queries
        [T, H * D].
        """
        cache = self._cache(layer)
        num_heads = qkv.width // layer.head_dim - 2 * layer.num_kv_heads
        self._limits.lower(num_positions=len(cos))
        queries = Buffer(num_heads * layer.head_dim)
        instruction = instructions.RotateAndWrite(
            num_heads=num_heads,
            rotated_size=cos.shape[-1],
            num_positions=len(cos),
            eps=0.0 if norms is None else norms.eps,
            cache=cache,
            norm_weight=None if norms is None else self._floats(norms.weight),
            cos=self._floats(cos),
            sin=self._floats(sin),
        )
        self._add(instruction, qkv=qkv, queries=queries)
        return queries

    def attention(
        self, queries: Buffer, layer: KvLayer, rule: AttentionRule = FULL_ATTENTION
    ) -> Buffer:
        """Attend each query to its sequence's keys and values up to its own position; rows of no
        sequence give zeros. Shapes: queries, out [T, H * D]."""
        num_heads = queries.width // layer.head_dim
        if num_heads % layer.num_kv_heads:
            raise ValueError(
                f"{num_heads} query heads do not divide over {layer.num_kv_heads} KV heads"
            )
        scale = layer.head_dim**-0.5 if rule.scale is None else rule.scale
        out = Buffer(queries.width)
        instruction = instructions.Attention(
            num_heads=num_heads,
            window=rule.window or 0,
            scale=scale,
            softcap=rule.softcap or 0.0,
            input_form=self._input_form,
            cache=self._cache(layer),
            sinks=None if rule.sinks is None else self._floats(rule.sinks),
        )
        self._add(instruction, queries=queries, out=out)
        return out

    def gate_mul(self, gate_up: Buffer, kind: str) -> Buffer:
        """gate(left half) * right half; kind: "silu" or "gelu_tanh"."""
        width = gate_up.width // 2
        if gate_up.width % 2:
            raise ValueError(f"rows of {gate_up.width} numbers have no two halves")
        out = Buffer(width, gate_up.is_sampled)
        self._add(instructions.GateMul(gate=_GATES[kind], width=width), gate_up=gate_up, out=out)
        return out

    def softcap(self, x: Buffer, cap: float) -> Buffer:
        """cap * tanh(x / cap), in place: x is what is returned."""
        self._add(instructions.Softcap(width=x.width, cap=cap), x=x)
        return x

    def scale(self, x: Buffer, factor: float) -> Buffer:
        """x * factor, in place: x is what is returned."""
        self._add(instructions.Scale(width=x.width, factor=factor), x=x)
        return x

    def take_sampled(self, x: Buffer) -> Buffer:
        """The rows of the tokens that are sampled."""
        out = Buffer(x.width, is_sampled=True)
        self._add(instructions.TakeSampled(width=x.width), x=x, out=out)
        return out

    def flag_finite(self, x: Buffer) -> Tensor:
        """Which rows are all finite numbers: a tensor [most rows] of bool, written by each run."""
        flags = torch.zeros(self._max_rows[x.is_sampled], dtype=torch.bool)
        self._kept.append(flags)
        self._add(instructions.FlagFinite(width=x.width, flags=flags.data_ptr()), x=x)
        return flags

    def output(self, x: Buffer) -> Tensor:
        """The buffer as a tensor [most rows, N], which each run writes over."""
        if x not in self._outputs:
            shape = (self._max_rows[x.is_sampled], x.width)
            self._outputs[x] = torch.empty(shape, dtype=torch.float32)
        return self._outputs[x]

    @property
    def num_bytes(self) -> int:
        """What buffers take: known once the program is finished."""
        return self._workspace.nbytes + sum(each.nbytes for each in self._outputs.values())

    def finish(self, beside: Program | None = None) -> None:
        """Give buffers their memory; nothing may be recorded later.

        beside: a finished program on the same pool, in whose memory this one works; the two never
        run at once. Outputs are each one's own.
        Raises: RuntimeError if there is no native library.
        """
        num_bytes = {each: self._num_bytes(each) for each in self._instructions.buffers}
        own = {each: size for each, size in num_bytes.items() if each not in self._outputs}
        offsets, total = self._instructions.place(own)
        if beside is not None and beside._workspace.nbytes >= total + ALIGNMENT:
            self._workspace = beside._workspace
        else:
            self._workspace = torch.empty(total + ALIGNMENT, dtype=torch.uint8)
        start = -(-self._workspace.data_ptr() // ALIGNMENT) * ALIGNMENT
        self._instructions.point(
            {each: start + offset for each, offset in offsets.items()}
            | {each: tensor.data_ptr() for each, tensor in self._outputs.items()}
        )
        native = None if beside is None else beside._native
        self._native = NativeProgram(self._instructions, self._limits, self._pool, native)

    def run(self, arrays: StepArrays) -> None:
        """Compute a step.

        Raises: ValueError if it is larger than the program, or points outside of the model or the
        cache.
        """
        self._run(arrays, None)

    def time_operations(self, arrays: StepArrays) -> dict[str, int]:
        """Compute a step, and tell how many nanoseconds the instructions of each kind took."""
        taken = (ctypes.c_int64 * len(Instruction.__subclasses__()))()
        self._run(arrays, taken)
        return {kind.__name__: taken[kind.OPERATION] for kind in Instruction.__subclasses__()}

    def _run(self, arrays: StepArrays, nanoseconds: ctypes.Array[ctypes.c_int64] | None) -> None:
        if self._native is None:
            raise RuntimeError("the program is not finished")
        arrays.describe(self._step)
        self._check_sizes()
        if not self._native.run(self._step, nanoseconds):
            raise ValueError(
                f"a step points outside of the model or the cache, which have {self._limits}"
            )

    def _check_sizes(self) -> None:
        step = self._step
        most = (self._max_rows[False], self._max_seqs, self._max_rows[True])
        sizes = (step.num_tokens, step.num_seqs, step.num_sampled)
        if any(size > limit for size, limit in zip(sizes, most, strict=True)):
            raise ValueError(
                f"a step of {sizes[0]} tokens, {sizes[1]} sequences and {sizes[2]} samples is more "
                f"than the program takes: {most[0]}, {most[1]} and {most[2]}"
            )

    def _add(self, instruction: Instruction, **pointers: Buffer) -> None:
        self._add_at(instruction, {name: (buffer, 0) for name, buffer in pointers.items()})

    def _add_at(self, instruction: Instruction, pointers: Mapping[str, tuple[Buffer, int]]) -> None:
        if self._native is not None:
            raise RuntimeError("the program is finished")
        self._instructions.add(instruction, pointers)

    def _multiply(
        self,
        x: Buffer,
        matrix: PackedMatrix,
        bias: Tensor | None,
        out: Buffer,
        column: int,
        *,
        adds: bool = False,
    ) -> None:
        if x.width != matrix.num_inputs:
            raise ValueError(f"rows of {x.width} numbers for {matrix.num_inputs} inputs")
        self._kept.append(matrix)
        instruction = instructions.LinearProduct(
            x_stride=x.width,
            out_stride=out.width,
            adds=adds,
            input_form=self._input_form,
            matrix=ctypes.addressof(matrix.native),
            bias=None if bias is None else self._floats(bias),
        )
        self._add_at(instruction, {"x": (x, 0), "out": (out, column)})

    def _floats(self, tensor: Tensor) -> int:
        """The address of a tensor's numbers as float32, in order."""
        known = self._as_floats.get(id(tensor))
        if known is None:
            known = tensor.detach().to(torch.float32).contiguous()
            self._as_floats[id(tensor)] = known
            # While it is here, nothing else can have its id.
            self._kept.append(tensor)
        return known.data_ptr()

    def _cache(self, layer: KvLayer) -> KvCache:
        cache = KvCache.of(layer)
        self._kept.append(layer)
        self._limits.set_cache(cache.num_blocks, cache.block_size)
        return cache

    def _num_bytes(self, buffer: Buffer) -> int:
        return 4 * buffer.width * self._max_rows[buffer.is_sampled]
