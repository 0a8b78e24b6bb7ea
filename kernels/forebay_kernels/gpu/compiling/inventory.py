"""All compilations that a model reaches, and those of all models that are shipped for.

Warm-up compiles `variants_of` a model; tests and the kernels' report compile `shipped`. A module
of this package that has `variants` is in here by that alone, so that none is forgotten.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

from forebay_kernels import gpu
from forebay_kernels.gpu.architecture import Architecture
from forebay_kernels.gpu.compiling.shipped_shapes import shipped_shapes
from forebay_kernels.gpu.model_shape import ModelShape
from forebay_kernels.gpu.variant import Variant


def variants_of(shape: ModelShape, architecture: Architecture | None = None) -> tuple[Variant, ...]:
    """Every compilation that a model of this shape reaches, none twice.

    architecture: instead of the shape's own.
    """
    if architecture is not None:
        shape = replace(shape, architecture=architecture)
    return _distinct(variant for module in kernel_modules() for variant in module.variants(shape))


def shipped(architecture: Architecture) -> tuple[Variant, ...]:
    """Every compilation of the shapes that are shipped for, none twice."""
    return _distinct(
        variant for shape in shipped_shapes(architecture) for variant in variants_of(shape)
    )


@cache
def kernel_modules() -> tuple[ModuleType, ...]:
    """The modules of this package that have kernels."""
    names = [info.name for info in pkgutil.walk_packages(gpu.__path__, f"{gpu.__name__}.")]
    modules = [import_module(name) for name in names]
    return tuple(module for module in modules if hasattr(module, "variants"))


def identity(variant: Variant) -> tuple[Any, ...]:
    """What tells one compilation from another; a name and sizes do not."""
    return (
        variant.kernel.__module__,
        variant.kernel.__name__,
        tuple(sorted(variant.signature.items())),
        tuple(sorted((name, repr(value)) for name, value in variant.constants.items())),
        variant.aligned,
        variant.launch.num_warps,
        variant.launch.num_stages,
    )


def _distinct(variants: Iterable[Variant]) -> tuple[Variant, ...]:
    by_identity: dict[tuple[Any, ...], Variant] = {}
    for variant in variants:
        by_identity.setdefault(identity(variant), variant)
    return tuple(by_identity.values())
