"""The real server over the kernels that a GPU runs, which Triton interprets."""

from pathlib import Path

import httpx
import pytest

from fake_engine import build_byte_tokenizer
from greedy import best_tokens
from served_model import FLAGS, SERVE, save_served_model
from server_process import running

pytestmark = [pytest.mark.component, pytest.mark.long]


def test_a_server_answers_by_the_gpus_kernels_and_nothing_is_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oracle = save_served_model(tmp_path)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("FOREBAY_KERNELS", "triton")
    limits = ["--max-model-len", "48", "--max-num-seqs", "2", "--max-num-batched-tokens", "8"]
    with running([*SERVE, str(tmp_path), *FLAGS, *limits], tmp_path / "log") as server:
        server.wait_ready()
        prompt = build_byte_tokenizer().encode("a reservoir")
        asked = {"model": "m", "prompt": prompt, "max_tokens": 6, "temperature": 0}
        answered = httpx.post(
            f"{server.url}/v1/completions",
            json={**asked, "ignore_eos": True, "return_token_ids": True},
            timeout=300,
        ).json()
        metrics = server.get("/metrics").text
    [choice] = answered["choices"]
    answer = choice["token_ids"]
    assert answer == best_tokens(oracle, prompt, answer)
    assert len(answer) == 6
    assert 'forebay:cold_total{model_name="m"} 0.0' in metrics
    assert 'forebay:startup_seconds{model_name="m",phase="shapes"}' in metrics
