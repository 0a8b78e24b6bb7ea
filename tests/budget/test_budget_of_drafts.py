"""What proposing tokens takes: a draft model's weights and cache, and logits of what is tried."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forebay_budget.checkpoint import inspect_model
from forebay_budget.cli import main
from forebay_budget.demand import Demand
from forebay_budget.inspection import Inspection
from forebay_budget.sizing import Fit, Misfit, size
from forebay_budget.speculative_config import SpeculativeConfig, parse_speculative_config
from forebay_budget.terms import (
    GIB,
    most_proposed_tokens,
    sampler_bytes_per_seq,
    weights_bytes,
)
from model_files import TINY_LLAMA, write_hf_model

SERVED = TINY_LLAMA | {
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
DRAFT = SERVED | {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 2}
ON_GPU = Demand("GPU", gpu_memory_bytes=8 * GIB)
ON_CPU = Demand("CPU", budget_bytes=4 * GIB)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    served, draft = tmp_path_factory.mktemp("served"), tmp_path_factory.mktemp("draft")
    write_hf_model(served, SERVED)
    write_hf_model(draft, DRAFT)
    return served, draft


@pytest.fixture(scope="module")
def models(folders: tuple[Path, Path]) -> tuple[Inspection, Inspection]:
    return inspect_model(str(folders[0])), inspect_model(str(folders[1]))


@pytest.mark.parametrize("demand", [ON_GPU, ON_CPU], ids=["gpu", "cpu"])
def test_a_draft_models_weights_and_cache_are_terms(
    models: tuple[Inspection, Inspection], demand: Demand
) -> None:
    served, draft = models
    plain = size(served, demand)
    fit = size(served, replace(demand, num_speculative_tokens=4, draft=draft))
    assert isinstance(plain, Fit) and isinstance(fit, Fit)
    terms = fit.terms
    dtype = "float32" if demand.device == "CPU" else draft.config.dtype
    assert terms.draft_weights_bytes == weights_bytes(draft, 1, dtype)
    # As many tokens in both caches.
    per_token = terms.kv_cache_bytes / terms.draft_kv_cache_bytes
    numbers = [c.num_layers * c.num_kv_heads * c.head_dim for c in (served.config, draft.config)]
    assert per_token == pytest.approx(numbers[0] / numbers[1], rel=1e-3)
    assert terms.kv_cache_bytes <= plain.terms.kv_cache_bytes
    if demand.device == "GPU":
        # The cap is used but for what is less than a token.
        unused_bytes = plain.terms.total_bytes - terms.total_bytes
        assert 0 <= unused_bytes < terms.draft_kv_cache_bytes / fit.kv_cache_tokens
    assert "draft model's weights" in fit.explanation


def test_logits_of_what_is_tried_are_counted(models: tuple[Inspection, Inspection]) -> None:
    served, _ = models
    # A step tries no more than it has tokens.
    for num_tokens, num_tried in ((512, 64), (270, 14), (256, 0)):
        demand = replace(ON_GPU, max_num_seqs=256, max_num_batched_tokens=num_tokens)
        plain, fit = size(served, demand), size(served, replace(demand, num_speculative_tokens=5))
        assert isinstance(plain, Fit) and isinstance(fit, Fit)
        more_bytes = fit.terms.activation_bytes - plain.terms.activation_bytes
        assert more_bytes == num_tried * sampler_bytes_per_seq(served.config)
    assert most_proposed_tokens(2, 5) == 10


def test_a_draft_model_of_another_vocabulary_cannot_be_meant(
    models: tuple[Inspection, Inspection],
) -> None:
    served, draft = models
    other = replace(draft, config=replace(draft.config, vocab_size=32001))
    answer = size(served, replace(ON_GPU, num_speculative_tokens=4, draft=other))
    assert isinstance(answer, Misfit) and answer.reason == "InvalidField"
    assert "engine.speculative.model" in answer.message
    assert "32001 tokens and the model one of 32000" in answer.message


def test_a_draft_model_beside_several_gpus_cannot_be_meant(
    models: tuple[Inspection, Inspection],
) -> None:
    served, draft = models
    demand = replace(ON_GPU, num_speculative_tokens=4, draft=draft, tensor_parallel_size=2)
    answer = size(served, demand)
    assert isinstance(answer, Misfit)
    assert "engine.tensorParallelSize" in answer.message


def test_the_command_takes_the_flag_of_serve(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    served, draft = map(str, folders)
    asked = {"method": "draft_model", "model": draft, "num_speculative_tokens": 4}
    flags = ["--gpu-memory", "8Gi", "--speculative-config", json.dumps(asked)]
    assert main(["budget", served, *flags, "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["draftWeightsBytes"] > 0
    assert document["draftKvCacheBytes"] > 0
    assert main(["budget", served, *flags]) == 0
    assert "draft weights" in capsys.readouterr().out


def test_a_draft_model_that_is_none_is_said(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = '{"model": "/nowhere", "num_speculative_tokens": 4}'
    flags = ["--gpu-memory", "8Gi", "--speculative-config", asked]
    assert main(["budget", str(folders[0]), *flags]) == 2
    assert "/nowhere" in capsys.readouterr().err


READ: dict[str, tuple[dict[str, Any], SpeculativeConfig]] = {
    "n-grams": (
        {
            "method": "ngram",
            "num_speculative_tokens": 5,
            "prompt_lookup_min": 2,
            "prompt_lookup_max": 4,
        },
        SpeculativeConfig("ngram", 5, None, 2, 4),
    ),
    "n-grams by vLLM's defaults": (
        {"method": "ngram", "num_speculative_tokens": 3},
        SpeculativeConfig("ngram", 3, None, 5, 5),
    ),
    "one bound stands for both": (
        {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4},
        SpeculativeConfig("ngram", 3, None, 4, 4),
    ),
    "vLLM's older spelling": (
        {"model": "[ngram]", "num_speculative_tokens": 3, "prompt_lookup_min": 2},
        SpeculativeConfig("ngram", 3, None, 2, 2),
    ),
    "a draft model": (
        {"method": "draft_model", "model": "hf://a/b", "num_speculative_tokens": 4},
        SpeculativeConfig("draft_model", 4, "hf://a/b"),
    ),
    "a model says the method": (
        {"model": "/m", "num_speculative_tokens": 4, "quantization": "int8"},
        SpeculativeConfig("draft_model", 4, "/m", quantization="INT8"),
    ),
    "null is as absent": (
        {"method": "ngram", "model": None, "num_speculative_tokens": 1},
        SpeculativeConfig("ngram", 1),
    ),
}


@pytest.mark.parametrize(("written", "meant"), READ.values(), ids=READ)
def test_it_reads(written: dict[str, Any], meant: SpeculativeConfig) -> None:
    assert parse_speculative_config(json.dumps(written)) == meant


REFUSED = {
    "no JSON": ("ngram", "no JSON object"),
    "a list": ("[]", "no JSON object"),
    "an unknown field": ('{"method": "ngram", "top": 1}', "no field 'top'; possible are method"),
    "an unknown method": ('{"method": "eagle", "model": "x"}', "ngram or draft_model"),
    "no method": ('{"num_speculative_tokens": 2}', "method is missing"),
    "no number": ('{"method": "ngram"}', "num_speculative_tokens is missing"),
    "an unknown quantization": (
        '{"model": "x", "num_speculative_tokens": 2, "quantization": "int9"}',
        "quantization is 'int9'; it can be None, Auto, INT8",
    ),
    "zero": ('{"method": "ngram", "num_speculative_tokens": 0}', "from 1 to 16"),
    "too many": ('{"method": "ngram", "num_speculative_tokens": 99}', "from 1 to 16"),
    "true": ('{"method": "ngram", "num_speculative_tokens": true}', "a whole number"),
    "no draft": ('{"method": "draft_model", "num_speculative_tokens": 2}', "model is missing"),
    "a draft for n-grams": (
        '{"method": "ngram", "model": "x", "num_speculative_tokens": 2}',
        "takes no model",
    ),
    "bounds the wrong way round": (
        '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_min": 4,'
        ' "prompt_lookup_max": 3}',
        "is above",
    ),
    "n-grams of a draft": (
        '{"model": "x", "num_speculative_tokens": 2, "prompt_lookup_max": 3}',
        "takes no prompt_lookup_max",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_what_it_cannot_mean_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_speculative_config(text)
