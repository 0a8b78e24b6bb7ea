"""Captured decode steps on a real GPU; without one none of this is run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from greedy import greedy_answers
from tiny_model import save_tiny

pytestmark = pytest.mark.gpu

_PROMPTS = {str(size): list(range(3, 3 + size)) for size in (1, 5, 16, 17, 40)}


def _warm(folder: Path, **flags: Any) -> Engine:
    config = EngineConfig(folder, device="cuda", dtype="float32", max_num_seqs=5, **flags)
    engine = build_engine(config)
    engine.warm_up()
    return engine


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2", "qwen3_moe"])
def test_captured_steps_answer_as_launched_ones_and_nothing_is_cold(
    family: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, family)
    flags = {"kv_cache_memory_bytes": 64 * 1024**2}
    captured, launched = _warm(tmp_path, **flags), _warm(tmp_path, enforce_eager=True, **flags)
    answers = greedy_answers(captured, _PROMPTS, 20)
    assert answers == greedy_answers(launched, _PROMPTS, 20)
    assert captured.num_cold == 0


def test_what_is_in_use_stays_within_the_promise(tmp_path: Path) -> None:
    save_tiny(tmp_path)
    engine = _warm(tmp_path, gpu_memory_utilization=0.5)
    greedy_answers(engine, _PROMPTS, 20)
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    assert total_bytes - free_bytes <= 0.5 * total_bytes
    assert {part.name for part in engine.overhead_parts} == {"context", "communication", "graphs"}
