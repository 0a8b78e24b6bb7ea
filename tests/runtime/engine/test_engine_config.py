"""Flags that no model could make right are refused before anything is read."""

from pathlib import Path

import pytest

from forebay_runtime.config import EngineConfig, StartError


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        pytest.param({"device": "tpu"}, "--device tpu is not supported", id="device"),
        pytest.param({"dtype": "int4"}, "--dtype int4 is not supported", id="dtype"),
        pytest.param({"quantization": "INT3"}, "--quantization INT3 is not supported", id="quant"),
        pytest.param(
            {"kv_cache_dtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2 is not", id="kv-dtype"
        ),
        pytest.param({"tensor_parallel_size": 0}, "--tensor-parallel-size 0 is too small", id="tp"),
        pytest.param({"pipeline_parallel_size": 0}, "--pipeline-parallel-size 0 is too", id="pp"),
        pytest.param({"max_model_len": 0}, "--max-model-len 0 is too small", id="length"),
        pytest.param({"max_num_seqs": 0}, "--max-num-seqs 0 is too small", id="seqs"),
        pytest.param({"kv_cache_memory_bytes": 0}, "--kv-cache-memory-bytes 0 is too", id="kv"),
        pytest.param({"gpu_memory_utilization": 1.5}, "1.5 is outside", id="utilisation"),
        pytest.param(
            {"max_num_batched_tokens": 4, "max_num_seqs": 8},
            "--max-num-batched-tokens 4 is below --max-num-seqs 8",
            id="fewer-tokens-than-requests",
        ),
        pytest.param(
            {"scheduling_policy": "lifo"},
            "--scheduling-policy lifo is not supported by this runtime; choose one of fcfs, prio",
            id="policy",
        ),
        pytest.param({"block_size": 24}, "--block-size 24 is not .*16, 32", id="block-size"),
        pytest.param({"block_size": 0}, "--block-size 0 is not", id="no-block-size"),
        pytest.param({"long_prompt_tokens": 0}, "--long-prompt-tokens 0 is too small", id="long"),
        pytest.param(
            {"long_prompt_tokens": 9, "max_long_prompts": 0},
            "--max-long-prompts 0 is too small",
            id="no-long-prompts",
        ),
        pytest.param(
            {"max_long_prompts": 2},
            "--max-long-prompts 2 limits nothing without --long-prompt-tokens",
            id="how-many-of-what",
        ),
        pytest.param(
            {"long_prompt_tokens": 9},
            "--long-prompt-tokens 9 changes nothing without --max-long-prompts",
            id="long-prompts-without-a-limit",
        ),
    ],
)
def test_a_flag_is_refused_in_one_sentence_that_names_it(
    flags: dict[str, object], sentence: str
) -> None:
    with pytest.raises(StartError, match=sentence):
        EngineConfig(Path("model"), **flags)  # type: ignore[arg-type]
