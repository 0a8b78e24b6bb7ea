"""What a CPU's kernels round inputs to costs little, and only where nobody asked for float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine_play import play
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.text_parts import read_text_parts
from native_play import torchs_operators
from smollm2 import smollm2_path
from tiny_model import save_tiny

PROMPT = [(7 * place + 3) % 131 for place in range(61)]


def load(path: Path, dtype: str, **flags: Any) -> Any:
    flags = {"max_model_len": 256, "max_num_seqs": 2, "kv_cache_dtype": "float32", **flags}
    engine = build_engine(EngineConfig(path, device="cpu", dtype=dtype, **flags))
    torch.set_num_threads(1)
    return engine


def scores(engine: Any, prompt: list[int]) -> list[float]:
    """The logprob of each of the prompt's tokens but the first."""
    sampling = SamplingParams(max_tokens=0, num_prompt_logprobs=0)
    answer = play(engine, [Request("scored", prompt, sampling)])["scored"]
    if answer.first is None or answer.first.prompt_logprobs is None:
        raise AssertionError("the prompt was not scored")
    return [scored.logprob for scored in answer.first.prompt_logprobs if scored is not None]


@pytest.mark.parametrize("quantization", ["INT8", "INT4"])
def test_float32_rounds_no_inputs(tmp_path: Path, quantization: str) -> None:
    save_tiny(tmp_path)
    exact = scores(load(tmp_path, "float32", quantization=quantization), PROMPT)
    with torchs_operators():
        expected = scores(load(tmp_path, "float32", quantization=quantization), PROMPT)
    # Scales are kept in float16.
    assert exact == pytest.approx(expected, abs=2e-2)
    rounded = scores(load(tmp_path, "auto", quantization=quantization), PROMPT)
    assert rounded != pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_unquantised_model_is_served_as_precisely_as_it_came(tmp_path: Path, dtype: str) -> None:
    model = save_tiny(tmp_path / "plain")
    model.to(getattr(torch, dtype)).save_pretrained(tmp_path / "stored")
    exact = scores(load(tmp_path / "stored", "float32"), PROMPT)
    served = scores(load(tmp_path / "stored", "auto"), PROMPT)
    assert served == pytest.approx(exact, abs=1e-4 if dtype == "float32" else 0.3)


def test_a_real_models_perplexity_stays() -> None:
    """A model in bytes, pages of text: within half a percent."""
    tokenizer = read_text_parts(smollm2_path())[0]
    docs = Path(__file__).parents[3] / "docs"
    pages = [(docs / f"{name}.md").read_text() for name in ("rollouts", "failure-modes", "gpu")]
    means = []
    for dtype in ("float32", "auto"):
        engine = load(smollm2_path(), dtype, quantization="INT8", max_model_len=512)
        told = [score for page in pages for score in scores(engine, tokenizer.encode(page)[:500])]
        means.append(sum(told) / len(told))
    exact, rounded = means
    assert rounded == pytest.approx(exact, abs=0.005)
