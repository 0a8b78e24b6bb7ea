"""A GPU's kernels before its first step: where they are kept, and that all are compiled."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Sequence

import torch

from forebay_kernels.choice import is_interpreted, uses_triton
from forebay_kernels.gpu.architecture import architecture_of
from forebay_kernels.gpu.model_shape import KvKind, ModelShape
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.description import Description
from forebay_runtime.models.placement import Placement
from forebay_runtime.start.compile_cache import CacheKey, use_compile_cache, use_passing_cache
from forebay_runtime.start.kernel_shape import Serving, kernel_shapes

logger = logging.getLogger(__name__)

_KV_KINDS: dict[str, KvKind] = {"fp8": "fp8", "int8": "int8", "int4": "int4"}


def compile_kernels(config: EngineConfig, described: Description, placement: Placement) -> None:
    """Have all kernels that the model reaches compiled; nothing where the device has none.

    What the cache has from an earlier start, or from another pod or rank, is taken from there.
    Raises: StartError if Triton lacks what it launches by.
    """
    if not uses_triton(placement.device) or is_interpreted():
        return
    from forebay_kernels.gpu.compiling.inventory import identity, variants_of
    from forebay_kernels.gpu.compiling.preparation import NoDriver, prepare

    shapes = reached_shapes(config, described, placement)
    folder = use_compile_cache(config.compile_cache_dir, _cache_key(shapes, placement.device))
    reached = {identity(each): each for shape in shapes for each in variants_of(shape)}
    variants = tuple(reached.values())
    try:
        try:
            prepared = prepare(variants)
        except OSError as error:
            folder = use_passing_cache(config.compile_cache_dir or folder, error)
            prepared = prepare(variants)
    except NoDriver as error:
        raise StartError(f"{error}; use the GPU image, or install them") from error
    logger.info(
        "Compiled kernels variants=%d compiled=%d architecture=%s launched_as=%s folder=%s",
        prepared.num_variants,
        prepared.num_compiled,
        shapes[0].architecture.name,
        shapes[0].architecture.generation,
        folder,
    )


def reached_shapes(
    config: EngineConfig, described: Description, placement: Placement
) -> tuple[ModelShape, ...]:
    """All that the model's kernels depend on, once for each way that its matrices are kept."""
    serving = Serving(
        placement.dtype_name,
        _KV_KINDS.get(placement.kv_cache_dtype, "plain"),
        config.block_size,
        config.quantization,
        config.tensor_parallel_size,
        config.batch_invariant,
    )
    return kernel_shapes(described.blueprint, serving, architecture_of(placement.device))


def _cache_key(shapes: Sequence[ModelShape], device: torch.device) -> CacheKey:
    import triton

    name = "CPU" if device.type != "cuda" else torch.cuda.get_device_name(device)
    versions = {
        "forebay": _own_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }
    return CacheKey(f"{name}_{shapes[0].architecture.name}", versions, repr(shapes))


def _own_version() -> str:
    try:
        return importlib.metadata.version("forebay")
    except importlib.metadata.PackageNotFoundError:
        return "source"
