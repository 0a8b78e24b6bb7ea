"""A process that compiles a model's kernels as a pod's start does; prints how many it compiled.

Arguments: the model's folder, the folder of what was compiled.
"""

import sys
from pathlib import Path

import torch

from forebay_kernels.gpu.compiling.compilation_count import watch_compilations
from forebay_runtime.config import EngineConfig
from forebay_runtime.loading.description import describe_model
from forebay_runtime.models.placement import Placement
from forebay_runtime.start.kernel_preparation import compile_kernels
from unlaunched_kernels import kernels_unlaunched


def main(model: str, compiled: str) -> None:
    config = EngineConfig(Path(model), compile_cache_dir=Path(compiled))
    placement = Placement(torch.bfloat16, torch.device("cpu"))
    with kernels_unlaunched():
        compile_kernels(config, describe_model(config.model_path), placement)
    print(watch_compilations().num_compiled)


if __name__ == "__main__":
    main(*sys.argv[1:])
