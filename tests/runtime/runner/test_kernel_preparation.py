"""What is compiled first is what is launched later: counted by Triton, for a GPU not there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.compilation_count import CompilationCount, watch_compilations
from forebay_kernels.gpu.inventory import variants_of
from forebay_kernels.gpu.preparation import prepare
from forebay_runtime import warmup
from forebay_runtime.assembly import build_engine
from forebay_runtime.compile_cache import CacheKey, use_compile_cache
from forebay_runtime.config import EngineConfig
from forebay_runtime.kernel_shape import Serving, kernel_shapes
from forebay_runtime.loading.description import describe_model
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.runner import ModelRunner
from forebay_runtime.sampling.sampler import Sampler
from forebay_runtime.scheduling.batch import Batch, Chunk
from tiny_model import save_tiny
from unlaunched_kernels import forget_kernels, kernels_unlaunched

_KEY = CacheKey("None", {"triton": "any"}, "any")


@pytest.fixture
def count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilationCount]:
    """A GPU that is not there, with a cache that nothing is in, and what is compiled for it."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    use_compile_cache(tmp_path / "compiled", _KEY)
    forget_kernels()
    with kernels_unlaunched():
        yield watch_compilations()


def _load(folder: Path) -> ModelRunner:
    torch.set_num_threads(1)
    flags = {"max_num_seqs": 5, "max_num_batched_tokens": 64, "max_model_len": 64}
    engine = build_engine(EngineConfig(folder, device="cpu", dtype="bfloat16", **flags))
    assert isinstance(engine.runner, ModelRunner)
    return engine.runner


def _prepare(folder: Path) -> int:
    [shape] = kernel_shapes(describe_model(folder).blueprint, Serving("bfloat16"), SM_90)
    return prepare(variants_of(shape)).num_compiled


def _batch(*lengths: tuple[int, int]) -> Batch:
    """Chunks of so many tokens behind so many that were computed before."""
    requests = [
        Request(str(i), [1] * sum(pair), SamplingParams(1)) for i, pair in enumerate(lengths)
    ]
    pairs = zip(requests, lengths, strict=True)
    return Batch(tuple(Chunk.of(request, start, num) for request, (start, num) in pairs))


def test_a_model_launches_nothing_that_was_not_compiled_before(
    tmp_path: Path, count: CompilationCount
) -> None:
    save_tiny(tmp_path, "gemma2")
    runner = _load(tmp_path)
    assert _prepare(tmp_path) > 0
    num_compiled, num_met = count.num_compiled, count.num_met
    warmup.run_largest(runner, Sampler())
    for batch in (
        _batch((6, 1)),
        _batch((62, 1), (3, 1), (0, 1)),
        _batch((9, 1), (17, 16), (0, 7)),
    ):
        runner.run(batch)
    assert (count.num_compiled, count.num_met) == (num_compiled, num_met)


def test_a_second_start_compiles_nothing(tmp_path: Path, count: CompilationCount) -> None:
    save_tiny(tmp_path)
    num_variants = _prepare(tmp_path)
    forget_kernels()
    num_cached = count.num_cached
    assert _prepare(tmp_path) == 0
    assert count.num_cached == num_cached + num_variants > num_cached


def test_what_a_launch_meets_after_warm_up_is_cold(tmp_path: Path, count: CompilationCount) -> None:
    save_tiny(tmp_path)
    runner = _load(tmp_path)
    batch = _batch((6, 1))
    runner.run(batch)
    runner.shapes.end_warm_up()
    runner.run(batch)
    assert runner.num_cold == 0
    forget_kernels()
    runner.run(batch)
    assert runner.num_cold > 0


@pytest.mark.long
def test_several_pods_may_start_on_one_volume_at_once(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    paths = [str(tmp_path / "model"), str(tmp_path / "compiled")]
    lib = Path(sys.modules[kernels_unlaunched.__module__].__file__ or "").parent
    start = [sys.executable, str(lib / "started_pod.py"), *paths]
    pods = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    compiled = [int(pod.communicate()[0]) for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0]
    assert max(compiled) > 0
    last = subprocess.run(start, stdout=subprocess.PIPE, text=True, check=True)
    assert int(last.stdout) == 0
