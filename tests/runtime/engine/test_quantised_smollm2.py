"""A real model, rounded while it is read: it still answers, and takes what was planned."""

from typing import Any

import pytest

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.text_parts import read_text_parts
from greedy import greedy_answers
from smollm2 import smollm2_path

QUESTION = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
FLAGS: dict[str, Any] = {"max_num_seqs": 2, "max_num_batched_tokens": 64, "max_model_len": 512}


@pytest.mark.parametrize(
    ("quantization", "kv_cache_dtype", "weights_share"),
    [
        pytest.param("INT8", "int8", 0.42, id="bytes"),
        pytest.param("INT4", "fp8", 0.33, id="four-bits-and-an-fp8-cache"),
    ],
)
def test_it_knows_a_capital_by_weights_and_a_cache_of_the_planned_size(
    quantization: str, kv_cache_dtype: str, weights_share: float
) -> None:
    config = EngineConfig(
        smollm2_path(),
        device="cpu",
        quantization=quantization,
        kv_cache_dtype=kv_cache_dtype,
        kv_cache_memory_bytes=32 * 1024**2,
        **FLAGS,
    )
    tokenizer = read_text_parts(smollm2_path())[0]
    engine = build_engine(config)
    engine.warm_up()

    prompt = tokenizer.encode(QUESTION.format("What is the capital of France?"))
    answer = greedy_answers(engine, {"capital": prompt}, 8)["capital"]
    assert "Paris" in tokenizer.decode(answer)
    terms = {term.name: term for term in engine.vram_terms}
    for name in ("weights", "kv_cache"):
        assert terms[name].measured_bytes == pytest.approx(terms[name].planned_bytes, rel=0.05)
    # In float32 the weights take 538,060,032 bytes; the embedding's 113 million stay.
    assert terms["weights"].measured_bytes < weights_share * 538_060_032
