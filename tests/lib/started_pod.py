"""A process that compiles a model's kernels as a pod's start does; prints how many it compiled.

Arguments: the model's folder, the folder of what was compiled.
"""

import sys
from pathlib import Path

from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.inventory import variants_of
from forebay_kernels.gpu.preparation import prepare
from forebay_runtime.compile_cache import CacheKey, use_compile_cache
from forebay_runtime.kernel_shape import Serving, kernel_shapes
from forebay_runtime.loading.description import describe_model
from unlaunched_kernels import kernels_unlaunched


def main(model: str, compiled: str) -> None:
    [shape] = kernel_shapes(describe_model(Path(model)).blueprint, Serving("bfloat16"), SM_90)
    use_compile_cache(Path(compiled), CacheKey("None", {"triton": "any"}, repr(shape)))
    with kernels_unlaunched():
        print(prepare(variants_of(shape)).num_compiled)


if __name__ == "__main__":
    main(*sys.argv[1:])
