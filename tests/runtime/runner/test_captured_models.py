"""Which models' decode steps are captured, and by what, told without a GPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

pytest.importorskip("triton")

import packed_models
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.runner.decode_graphs import CudaRecorder
from forebay_runtime.start.rank_assembly import is_captured
from recorded_launches import recorded_launches
from tiny_model import save_tiny


def _is_captured(device: str = "cuda", *, waits_for_device: bool = False, **flags: Any) -> bool:
    model: Any = SimpleNamespace(
        placement=SimpleNamespace(device=torch.device(device)), waits_for_device=waits_for_device
    )
    return is_captured(EngineConfig(Path("model"), **flags), model)


def test_decode_steps_are_captured_where_a_graph_can_hold_them() -> None:
    assert _is_captured()
    assert not _is_captured("cpu")
    assert not _is_captured(enforce_eager=True)
    assert not _is_captured(pipeline_parallel_size=2)
    assert not _is_captured(waits_for_device=True)


@pytest.mark.parametrize(
    ("family", "method", "waits"),
    [
        pytest.param("mixtral", "gptq", False, id="experts that are one operation"),
        pytest.param("mixtral", "gptq-reordered", True, id="experts with orders of their own"),
        pytest.param("mixtral", "w8a8", True, id="experts whose inputs are rounded"),
        pytest.param("llama", "gptq-reordered", False, id="no mixture"),
    ],
)
def test_a_mixture_that_no_kernel_takes_asks_the_device_who_chose_which_expert(
    family: str, method: str, waits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    methods = {**packed_models.METHODS, "w8a8": packed_models.W8A8}
    save_tiny(tmp_path / "plain", family, num_hidden_layers=1)
    packed_models.save_packed(tmp_path / "plain", tmp_path / "packed", methods[method])
    with recorded_launches(monkeypatch):
        engine = build_engine(
            EngineConfig(tmp_path / "packed", device="cpu", dtype="bfloat16", max_model_len=32)
        )
    assert engine.runner.model.waits_for_device == waits  # type: ignore[attr-defined]


def test_all_captures_of_a_process_share_a_stream() -> None:
    """So that a library's workspace for it, which the trial met, is not allocated once more."""
    streams = mock.patch("torch.cuda.Stream", side_effect=lambda index: object())
    with streams, mock.patch("torch.cuda.current_device", return_value=97):
        assert CudaRecorder()._stream is CudaRecorder()._stream
