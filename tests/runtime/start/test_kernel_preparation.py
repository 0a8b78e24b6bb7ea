"""What a start compiles is what serving launches: Triton counts, for a GPU that is not there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

import triton
from triton.runtime import driver

import unlaunched_kernels
from engine_play import play
from forebay_kernels.gpu import rms_norm
from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.compiling.compilation_count import CompilationCount, watch_compilations
from forebay_kernels.gpu.compiling.preparation import prepare
from forebay_kernels.gpu.compiling.shipped_shapes import smollm2_135m
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from forebay_runtime.loading.description import describe_model
from forebay_runtime.models.placement import Placement
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.start.kernel_preparation import compile_kernels
from tiny_model import save_tiny
from unlaunched_kernels import forget_kernels, kernels_unlaunched


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompilationCount]:
    """What is compiled for a GPU that is not there, of which nothing was compiled before."""
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    forget_kernels()
    with kernels_unlaunched():
        yield watch_compilations()


def _start(folder: Path, **flags: Any) -> Engine:
    torch.set_num_threads(1)
    config = EngineConfig(
        folder,
        device="cpu",
        dtype="bfloat16",
        max_num_seqs=3,
        max_num_batched_tokens=24,
        max_model_len=40,
        compile_cache_dir=folder / "compiled",
        **flags,
    )
    return build_engine(config)


def _compile(folder: Path, cache: Path) -> None:
    config = EngineConfig(folder, compile_cache_dir=cache)
    placement = Placement(torch.bfloat16, torch.device("cpu"))
    compile_kernels(config, describe_model(folder), placement)


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        pytest.param("gemma2", {}, id="windows and caps"),
        pytest.param("llama", {"quantization": "INT4", "kv_cache_dtype": "int8"}, id="few bits"),
    ],
)
def test_what_serving_launches_was_compiled_at_the_start(
    family: str, flags: dict[str, Any], tmp_path: Path, count: CompilationCount
) -> None:
    save_tiny(tmp_path, family)
    engine = _start(tmp_path, **flags)
    num_compiled, num_met = count.num_compiled, count.num_met
    engine.warm_up()
    play(
        engine,
        [
            Request(str(size), [1] * size, SamplingParams(4, temperature=0, ignore_eos=True))
            for size in (1, 7, 16, 17, 30)
        ],
    )
    assert num_compiled > 0
    assert (count.num_compiled, count.num_met, engine.num_cold) == (num_compiled, num_met, 0)


def test_what_a_launch_meets_after_warm_up_is_cold(tmp_path: Path, count: CompilationCount) -> None:
    save_tiny(tmp_path)
    engine = _start(tmp_path)
    engine.warm_up()
    assert engine.num_cold == 0
    forget_kernels()
    play(engine, [Request("late", [1], SamplingParams(1, temperature=0))])
    assert engine.num_cold > 0


def test_a_second_start_compiles_nothing(tmp_path: Path, count: CompilationCount) -> None:
    save_tiny(tmp_path)
    _compile(tmp_path, tmp_path / "compiled")
    num_compiled, num_cached = count.num_compiled, count.num_cached
    forget_kernels()
    _compile(tmp_path, tmp_path / "compiled")
    assert count.num_compiled == num_compiled > 0
    assert count.num_cached > num_cached


def test_a_volume_that_fills_up_is_done_without(
    tmp_path: Path, count: CompilationCount, caplog: pytest.LogCaptureFixture
) -> None:
    save_tiny(tmp_path)
    done = mock.Mock(side_effect=[OSError(28, "No space left on device"), mock.Mock()])
    patched = mock.patch("forebay_kernels.gpu.compiling.preparation.prepare", done)
    with patched, mock.patch("tempfile.tempdir", str(tmp_path)):
        _compile(tmp_path, tmp_path / "compiled")
    assert done.call_count == 2
    assert "error=No space left on device" in caplog.text


class _FullVolume(triton.AsyncCompileMode):
    """A try that ends as Triton 3.6 ends it, which never notes that it is over."""

    def __exit__(self, *raised: object) -> None:
        raise OSError(28, "No space left on device")


def test_a_try_that_failed_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path, count: CompilationCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    some = list(rms_norm.variants(smollm2_135m(SM_90)))[:1]
    with (
        mock.patch.object(triton, "AsyncCompileMode", _FullVolume),
        pytest.raises(OSError, match="No space left"),
    ):
        prepare(some)
    assert prepare(some).num_variants == 1


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(RuntimeError("Failed to find C compiler."), id="no compiler"),
        pytest.param(subprocess.CalledProcessError(1, ["gcc"]), id="no headers of Python"),
        pytest.param(FileNotFoundError(2, "No such file", "/opt/cc"), id="CC names none"),
        pytest.param(AssertionError("libcuda.so cannot found!"), id="no driver"),
    ],
)
def test_a_host_without_what_triton_launches_by_is_told_in_one_sentence(
    tmp_path: Path, count: CompilationCount, monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    save_tiny(tmp_path)
    monkeypatch.setattr(driver.active, "get_current_device", mock.Mock(side_effect=problem))
    with pytest.raises(StartError, match="needs a C compiler") as raised:
        _compile(tmp_path, tmp_path / "compiled")
    assert "\n" not in str(raised.value)


@pytest.mark.long
def test_several_pods_may_start_on_one_volume_at_once(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model")
    script = Path(unlaunched_kernels.__file__).parent / "started_pod.py"
    start = [sys.executable, str(script), str(tmp_path / "model"), str(tmp_path / "compiled")]
    pods = [subprocess.Popen(start, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    compiled = [int(pod.communicate()[0]) for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0]
    assert max(compiled) > 0
    last = subprocess.run(start, stdout=subprocess.PIPE, text=True, check=True)
    assert int(last.stdout) == 0
