"""Whether a CPU runs a model by kernels of its own, and in which number formats."""

from __future__ import annotations

import logging

import torch

from forebay_kernels.choice import uses_triton
from forebay_kernels.cpu.library import isa_in_use, native
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.usable_cpus import usable_cpus
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.description import Description
from forebay_runtime.models.placement import NativeForm

logger = logging.getLogger(__name__)

_BFLOAT16_ISAS = ("avx512_bf16",)
"""The sets of instructions that multiply bfloat16; others would widen it in each product."""


def choose_native(config: EngineConfig, described: Description) -> NativeForm | None:
    """How the CPU's kernels run a model; None where torch's operators do.

    Plain matrices stay as they came where the processor multiplies that, else they become float32.
    Raises: StartError if FOREBAY_CPU_ISA or FOREBAY_KERNELS asks for what is not here.
    """
    try:
        library, is_interpreted = native(), uses_triton(torch.device("cpu"))
    except ValueError as error:
        raise StartError(str(error)) from error
    # Whoever has Triton's on a CPU wants to see these.
    if library is None or is_interpreted:
        return None
    if config.dtype == "float16":
        logger.info(
            "Recorded no steps, torch's operators run them: the CPU's own kernels compute nothing "
            "in float16"
        )
        return None
    name = config.dtype
    if name == "auto":
        is_quick = isa_in_use(library) in _BFLOAT16_ISAS
        name = "bfloat16" if is_quick and _is_bfloat16(described) else "float32"
    num_threads = max(1, usable_cpus() // config.num_ranks)
    input_form = InputForm.EXACT if config.dtype == "float32" else InputForm.ROUNDED
    return NativeForm(getattr(torch, name), input_form, num_threads)


def _is_bfloat16(described: Description) -> bool:
    """Are plain matrices stored in it? Of a quantised GGUF the dtype is only a guess."""
    inspection = described.inspection
    is_known = inspection.format != "gguf" or inspection.quantization is None
    return is_known and inspection.config.dtype == "bfloat16"
