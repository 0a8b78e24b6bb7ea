"""Which device and number formats a model gets: by the flags, and by what the checkpoint is."""

from __future__ import annotations

import torch

from forebay_budget.cpu_terms import cpu_kv_dtype
from forebay_budget.demand import faults_of_formats
from forebay_budget.rounding import ROUNDED_BITS
from forebay_budget.terms import DTYPE_BYTES
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.description import Description
from forebay_runtime.models.placement import Placement
from forebay_runtime.start.native_choice import choose_native
from forebay_runtime.start.refusals import check_gpus

_FLAGS = {"quantization": "--quantization", "kv_cache_dtype": "--kv-cache-dtype"}


def choose_placement(config: EngineConfig, described: Description, rank: int = 0) -> Placement:
    """A GPU where there is one, of several the rank's, and the checkpoint's dtype; on a CPU its own
    kernels where it has them, which compute in float32, as torch's operators do by default.

    Raises: StartError if what was asked is not there, or not to be had of this model.
    """
    has_gpu = torch.cuda.is_available()
    kind = config.device if config.device != "auto" else "cuda" if has_gpu else "cpu"
    if kind == "cuda" and not has_gpu:
        raise StartError(_explain_no_gpu())
    if kind == "cuda" and torch.version.hip is not None:
        raise StartError(
            "This torch is for AMD's GPUs, which the kernels are not made for; use a torch with "
            "CUDA and an NVIDIA GPU, or choose --device cpu"
        )
    native = choose_native(config, described) if kind == "cpu" else None
    name = config.dtype
    if native is not None or (kind == "cpu" and name == "auto"):
        name = "float32"
    elif name == "auto":
        name = described.inspection.config.dtype
    kv_cache_dtype = config.kv_cache_dtype
    if kv_cache_dtype == "auto":
        sizes = described.inspection.config
        kv_cache_dtype = cpu_kv_dtype(sizes, config.dtype) if kind == "cpu" else name
    _check_formats(config, described, kv_cache_dtype)
    if kind == "cuda" and kv_cache_dtype in DTYPE_BYTES and kv_cache_dtype != name:
        raise StartError(
            f"--kv-cache-dtype {kv_cache_dtype} differs from the model's {name}, which a GPU's "
            "attention does not mix; choose auto, fp8, int8 or int4"
        )
    device = torch.device(kind)
    if kind == "cuda" and config.num_ranks > 1:
        check_gpus(config.num_ranks, torch.cuda.device_count())
        device = torch.device(kind, rank)
    rounded_bits = _rounded_bits(config, described)
    return Placement(getattr(torch, name), device, rounded_bits, kv_cache_dtype, native)


def _check_formats(config: EngineConfig, described: Description, kv_cache_dtype: str) -> None:
    packing, asked = described.blueprint.packing, config.quantization
    if asked in ("awq", "gptq", "compressed-tensors") and (
        packing is None or packing.method != asked
    ):
        stored = described.inspection.quantization or "not quantised"
        raise StartError(
            f"--quantization {asked} asks for a checkpoint of that kind, but this one is {stored}; "
            "choose Auto, which takes it as it is"
        )
    sizes = described.inspection.config
    for fault in faults_of_formats(sizes, _FLAGS, asked, kv_cache_dtype):
        raise StartError(fault.removesuffix("."))


def _rounded_bits(config: EngineConfig, described: Description) -> int | None:
    """None for a checkpoint that is quantised already."""
    is_packed = described.blueprint.packing is not None
    return None if is_packed else ROUNDED_BITS.get(config.quantization)


def _explain_no_gpu() -> str:
    """A pod says it as its last words, to people who did not write its command line."""
    if torch.version.cuda is None:
        return (
            "--device cuda was asked, but this torch was built without CUDA; use an image or a "
            "torch with CUDA, or choose --device cpu"
        )
    return (
        "--device cuda was asked, but torch sees no GPU; start it where the driver and a GPU are "
        "visible (a container needs the GPU's runtime class), or choose --device cpu"
    )
