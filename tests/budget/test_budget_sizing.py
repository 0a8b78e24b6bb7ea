"""Sizing by tables: each number here was worked out by hand from the design's formulas."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from forebay_budget.cpu_terms import (
    LOAD_BYTES_PER_ELEMENT,
    LOAD_BYTES_PER_PACKED_ELEMENT,
    cpu_process_bytes,
)
from forebay_budget.inspection import Inspection, ModelConfig, WeightGroup
from forebay_budget.sizing import Demand, Fit, Misfit, Nearest, size
from forebay_budget.terms import (
    kv_token_bytes,
    weights_bytes,
)

MIB = 1024**2
GIB = 1024**3


def build(config: ModelConfig) -> Inspection:
    """A checkpoint of a config, its weights counted as the design counts them."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = (2 * queries + 2 * keys + 3 * config.intermediate_size) * config.hidden_size
    embeddings = 1 if config.tie_word_embeddings else 2
    counts = {
        "embedding": embeddings * config.vocab_size * config.hidden_size,
        "replicated": (2 * config.num_layers + 1) * config.hidden_size,
        "sharded": config.num_layers * layer,
    }
    weights = [WeightGroup(kind, "BF16", n, 2 * n) for kind, n in counts.items()]  # type: ignore[arg-type]
    return Inspection(config, tuple(weights), "safetensors", "0" * 40)


SMOLLM2 = build(
    ModelConfig("LlamaForCausalLM", 30, 576, 9, 3, 64, 1536, 49152, 8192, True, "bfloat16")
)
LLAMA_13B = build(
    ModelConfig("LlamaForCausalLM", 40, 5120, 40, 8, 128, 13824, 32000, 4096, False, "bfloat16")
)
MULTI_QUERY = build(
    ModelConfig("LlamaForCausalLM", 32, 4096, 32, 2, 128, 11008, 32000, 4096, False, "bfloat16")
)
FOUR_16 = Demand("GPU", 16 * GIB, max_gpus_per_node=4, max_model_len=4096, max_num_seqs=8)


def fit(inspection: Inspection, demand: Demand) -> Fit:
    answer = size(inspection, demand)
    assert isinstance(answer, Fit), answer
    return answer


def misfit(inspection: Inspection, demand: Demand) -> Misfit:
    answer = size(inspection, demand)
    assert isinstance(answer, Misfit), answer
    return answer


def test_smollm2_has_its_known_size() -> None:
    assert SMOLLM2.num_parameters == 134_515_008
    assert weights_bytes(SMOLLM2, 1, "bfloat16") == 269_030_016
    assert weights_bytes(SMOLLM2, 1, "float32") == 538_060_032


def test_13_billion_bf16_parameters_on_16_gib_gpus_take_two_with_every_term_as_worked_out() -> None:
    answer = fit(LLAMA_13B, FOUR_16)

    assert LLAMA_13B.weights_bytes == 2 * (40 * 275_251_200 + 81 * 5120 + 2 * 32000 * 5120)
    sharded = 40 * (5120 * (2 * 5120 + 2 * 1024) + 3 * 13824 * 5120)
    assert answer.tensor_parallel_size == 2
    assert answer.terms.weights_bytes == 2 * (sharded // 2 + 81 * 5120 + 2 * 32000 // 2 * 5120)
    assert answer.terms.activation_bytes == 2048 * (3 * 6912 + (20 + 2 * 4) * 128 + 3 * 5120) * 2
    assert answer.terms.overhead_bytes == GIB // 2 + 6 * GIB // 10 + GIB // 2
    assert answer.terms.total_bytes == 16 * GIB * 95 // 100
    assert answer.gpu_memory_utilization == "0.95"
    assert (
        answer.kv_cache_tokens == answer.terms.kv_cache_bytes // (2 * 40 * 4 * 128 * 2) // 16 * 16
    )
    assert (answer.max_model_len, answer.max_num_seqs, answer.mean_tokens) == (4096, 8, 1024)
    assert answer.budget_bytes == -(-2 * answer.terms.total_bytes // MIB) * MIB


def test_13_billion_parameters_with_a_budget_of_20_gib_do_not_fit_and_26_would() -> None:
    answer = misfit(LLAMA_13B, replace(FOUR_16, budget_bytes=20 * GIB))

    assert answer.reason == "InsufficientMemory"
    need = 8192 * 2 * 40 * 4 * 128 * 2
    terms = fit(LLAMA_13B, FOUR_16).terms
    assert answer.needed_bytes == 2 * (terms.total_bytes - terms.kv_cache_bytes + need)
    assert answer.allowed_bytes == 20 * GIB
    assert answer.nearest == (Nearest((("budget_bytes", 26 * GIB),)),)
    assert answer.message == (
        "The model needs 25.9 GiB on 2 GPUs (21.1 GiB for its weights, the rest to serve 8 "
        "requests of 1,024 tokens at once), but vram.budget allows 20.0 GiB; it would fit with "
        "vram.budget 26Gi."
    )


@pytest.mark.parametrize(
    ("inspection", "tp", "dtype", "quantization", "num_bytes"),
    [
        pytest.param(
            SMOLLM2,
            3,
            "bfloat16",
            "None",
            2 * (106_168_320 // 3 + 35_136 + 16384 * 576),
            id="a third of what divides, all of the norms",
        ),
        pytest.param(
            build(replace(SMOLLM2.config, vocab_size=100)),
            3,
            "bfloat16",
            "None",
            2 * (106_168_320 // 3 + 35_136 + 64 * 576),
            id="a vocabulary padded to 64 rows on each rank",
        ),
        pytest.param(
            MULTI_QUERY,
            4,
            "bfloat16",
            "None",
            2 * (32 * 4096 * (2 * 1024 + 2 * 128 + 3 * 2752) + 65 * 4096 + 2 * 8000 * 4096),
            id="beyond K ranks each holds a whole KV head",
        ),
        pytest.param(
            SMOLLM2,
            1,
            "bfloat16",
            "INT8",
            106_168_320 * (64 + 2) // 64 + 2 * (35_136 + 49152 * 576),
            id="eight bits and a scale for each 64, as 576 has no 128s; embeddings left alone",
        ),
        pytest.param(
            SMOLLM2,
            1,
            "bfloat16",
            "INT4",
            106_168_320 * (32 + 3) // 64 + 2 * (35_136 + 49152 * 576),
            id="four bits, with a zero point beside each scale",
        ),
        pytest.param(
            LLAMA_13B,
            1,
            "float32",
            "INT4",
            11_010_048_000 * (64 + 5) // 128 + 4 * (81 * 5120 + 2 * 32000 * 5120),
            id="scales are of the dtype that runs",
        ),
    ],
)
def test_a_ranks_weights_are_counted(
    inspection: Inspection, tp: int, dtype: str, quantization: str, num_bytes: int
) -> None:
    assert weights_bytes(inspection, tp, dtype, quantization) == num_bytes


def as_gguf(*dtypes: str) -> Inspection:
    """SmolLM2 with a matrix's elements in each of the dtypes, the first of them the embedding's."""
    sizes = ("embedding", 49152 * 576), ("sharded", 106_168_320 - 3_000 * 256), ("sharded", 768_000)
    groups = [
        WeightGroup(kind, dtype, num_elements, 0)  # type: ignore[arg-type]
        for (kind, num_elements), dtype in zip(sizes, dtypes, strict=True)
    ]
    norms = WeightGroup("replicated", "F32", 35_136, 4 * 35_136)
    return replace(SMOLLM2, weights=(*groups, norms), format="gguf")


@pytest.mark.parametrize(
    ("dtypes", "quantization", "bits"),
    [
        pytest.param(("Q8_0", "Q4_1", "Q4_1"), "None", (8.5, 5, 5), id="scales, and minima"),
        pytest.param(("Q6_K", "Q4_K", "Q6_K"), "None", (7, 5, 7), id="scales multiplied out"),
        pytest.param(("Q2_K", "Q3_K", "Q5_K"), "None", (4, 4, 6), id="planes of bits"),
        pytest.param(("F16", "Q5_0", "BF16"), "None", (32, 5.5, 32), id="floats among them"),
        pytest.param(
            ("Q8_0", "Q4_1", "Q4_1"), "INT8", (8.5, 8.25, 8.25), id="rounded anew where asked"
        ),
    ],
)
def test_a_cpus_own_kernels_keep_a_ggufs_codes(
    dtypes: tuple[str, ...], quantization: str, bits: tuple[float, ...]
) -> None:
    inspection = as_gguf(*dtypes)
    counts = [group.num_elements for group in inspection.weights[:3]]
    expected = sum(n * each / 8 for n, each in zip(counts, bits, strict=True)) + 4 * 35_136

    assert weights_bytes(inspection, 1, "float32", quantization, is_native=True) == expected
    assert weights_bytes(inspection, 1, "float32") == 538_060_032


@pytest.mark.parametrize(
    ("tp", "kv_dtype", "num_bytes"),
    [
        pytest.param(1, "bfloat16", 2 * 32 * 2 * 128 * 2, id="all heads"),
        pytest.param(2, "bfloat16", 2 * 32 * 1 * 128 * 2, id="one head each"),
        pytest.param(8, "bfloat16", 2 * 32 * 1 * 128 * 2, id="more ranks than heads buy nothing"),
        pytest.param(1, "fp8", 2 * 32 * 2 * 128, id="fp8"),
        pytest.param(1, "int8", 2 * 32 * 2 * (128 + 4), id="int8, with a scale a head and token"),
        pytest.param(1, "int4", 2 * 32 * 2 * (64 + 4), id="int4, two numbers a byte"),
        pytest.param(1, "float32", 2 * 32 * 2 * 128 * 4, id="float32"),
    ],
)
def test_a_tokens_kv_bytes_are_counted(tp: int, kv_dtype: str, num_bytes: int) -> None:
    assert kv_token_bytes(MULTI_QUERY.config, tp, kv_dtype) == num_bytes


GPU_24 = Demand("GPU", 24 * GIB)


@pytest.mark.parametrize(
    ("inspection", "demand", "expected"),
    [
        pytest.param(
            SMOLLM2,
            GPU_24,
            {
                "tensor_parallel_size": 1,
                "max_model_len": 8192,
                "max_num_seqs": 256,
                "max_num_batched_tokens": 2048,
                "dtype": "bfloat16",
            },
            id="all is derived",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, tensor_parallel_size=3),
            {"tensor_parallel_size": 3},
            id="a tensor parallelism that was asked for",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, gpu_memory_utilization=Decimal("0.5")),
            {"gpu_memory_utilization": "0.50", "budget_bytes": 12 * GIB},
            id="a utilisation that was asked for",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, budget_bytes=6 * GIB),
            {"gpu_memory_utilization": "0.25", "budget_bytes": 6 * GIB},
            id="a budget caps the utilisation",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, budget_bytes=48 * GIB),
            {"gpu_memory_utilization": "0.95", "budget_bytes": 48 * GIB},
            id="a budget beyond the GPU does not",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, max_num_seqs=3000, mean_tokens=64),
            {"max_num_seqs": 3000, "max_num_batched_tokens": 3000, "mean_tokens": 64},
            id="a step holds a token of each request",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, max_num_batched_tokens=100),
            {"max_num_seqs": 100, "max_num_batched_tokens": 100},
            id="no more requests than a step has tokens",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, dtype="float32", kv_cache_dtype="INT4"),
            {"dtype": "float32", "kv_cache_dtype": "int4"},
            id="number formats that were asked for",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, dtype="Auto", quantization="Auto", kv_cache_dtype="Auto"),
            {"dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "quantization": "None"},
            id="the API object's spelling of auto",
        ),
        pytest.param(
            LLAMA_13B,
            Demand("GPU", 24 * GIB),
            {"tensor_parallel_size": 2, "max_model_len": 4096},
            id="another GPU rather than a shorter context than is usual",
        ),
        pytest.param(
            LLAMA_13B,
            Demand("GPU", 24 * GIB, max_gpus_per_node=1),
            {"tensor_parallel_size": 1, "max_model_len": 1792},
            id="a shorter context where there is no other GPU",
        ),
        pytest.param(
            build(replace(SMOLLM2.config, max_position_embeddings=1_000_000)),
            GPU_24,
            {"max_model_len": 32_768},
            id="a context of a million tokens only where it is asked for",
        ),
        pytest.param(
            LLAMA_13B,
            Demand("GPU", 24 * GIB, quantization="INT4"),
            {"tensor_parallel_size": 1, "quantization": "INT4"},
            id="quantised it fits one",
        ),
    ],
)
def test_a_plan_follows_the_demand(
    inspection: Inspection, demand: Demand, expected: dict[str, Any]
) -> None:
    answer = fit(inspection, demand)

    assert {field: getattr(answer, field) for field in expected} == expected


def test_requests_are_derived_from_the_memory_that_is_left() -> None:
    answer = fit(SMOLLM2, replace(GPU_24, budget_bytes=3 * GIB))

    token = 2 * 30 * 3 * 64 * 2
    assert answer.max_num_seqs == answer.terms.kv_cache_bytes // (2048 * token) < 256


def test_more_ranks_than_kv_heads_are_used_where_the_weights_need_the_room() -> None:
    """At two ranks the weights and overhead alone take 7.3 of the 6.65 GiB that may be used."""
    demand = Demand("GPU", 7 * GIB, max_model_len=4096, max_num_seqs=1)

    assert fit(MULTI_QUERY, demand).tensor_parallel_size == 4


@pytest.mark.parametrize(
    ("inspection", "demand", "nearest", "sentence"),
    [
        pytest.param(
            LLAMA_13B,
            replace(FOUR_16, max_gpus_per_node=1),
            ["max_gpus_per_node", "gpu_memory_bytes"],
            "The model needs 23.8 GiB on one GPU (21.1 GiB for its weights, the rest to serve 8 "
            "requests of 1,024 tokens at once), but 15.2 GiB may be used there (95% of 16.0 GiB); "
            "it would fit with 2 GPUs on one node, or GPUs of 26.0 GiB.",
            id="more GPUs, or larger ones",
        ),
        pytest.param(
            LLAMA_13B,
            replace(FOUR_16, tensor_parallel_size=1),
            ["tensor_parallel_size", "gpu_memory_bytes"],
            "it would fit with engine.tensorParallelSize 2, or GPUs of 26.0 GiB.",
            id="the tensor parallelism that was asked for is too small",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, gpu_memory_utilization=Decimal("0.05")),
            ["gpu_memory_utilization", "gpu_memory_bytes"],
            "but 1.2 GiB may be used there (5% of 24.0 GiB); it would fit with "
            "engine.gpuMemoryUtilization 0.07, or GPUs of 30.0 GiB.",
            id="the utilisation is too small",
        ),
        pytest.param(
            SMOLLM2,
            replace(GPU_24, budget_bytes=2 * GIB, max_num_seqs=64, max_model_len=8192),
            ["max_num_seqs", "max_model_len", "budget_bytes"],
            "it would fit with engine.maxNumSeqs 13, or engine.maxModelLen 1536, or "
            "vram.budget 4352Mi.",
            id="fewer requests, shorter ones, or a larger budget",
        ),
        pytest.param(
            LLAMA_13B,
            replace(FOUR_16, max_gpus_per_node=1, budget_bytes=20 * GIB),
            ["gpu_memory_bytes+budget_bytes"],
            "it would fit with GPUs of 26.0 GiB and vram.budget 24Gi.",
            id="no single change is enough",
        ),
    ],
)
def test_a_misfit_names_what_would_fit_and_which_field_to_change(
    inspection: Inspection, demand: Demand, nearest: list[str], sentence: str
) -> None:
    answer = misfit(inspection, demand)

    assert ["+".join(f for f, _ in option.changes) for option in answer.nearest] == nearest
    assert answer.message.endswith(sentence)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"gpu_memory_bytes": None}, "The memory of a GPU is not known; set vram.gpuMemory."),
        (
            {"max_model_len": 8193},
            "engine.maxModelLen is 8193, but the model's context ends at 8192 tokens; set at most "
            "8192.",
        ),
        (
            {"mean_tokens": 10**6},
            "mean tokens is 1000000, but the model's context ends at 8192 tokens; set at most "
            "8192.",
        ),
        (
            {"mean_tokens": 100, "max_model_len": 50},
            "mean tokens (100) may not be more than engine.maxModelLen (50).",
        ),
        (
            {"max_num_seqs": 100, "max_num_batched_tokens": 50},
            "engine.maxNumSeqs (100) may not be more than engine.maxNumBatchedTokens (50).",
        ),
        (
            {"tensor_parallel_size": 2},
            "engine.tensorParallelSize is 2, but the model (9 heads, 3 KV heads, "
            "intermediate size 1536) divides evenly only over 1 or 3 GPUs.",
        ),
        (
            {"tensor_parallel_size": 3, "max_gpus_per_node": 2},
            "engine.tensorParallelSize is 3, but a node has 2 GPUs at most; set 1.",
        ),
        (
            {"gpu_memory_utilization": Decimal("0.90"), "budget_bytes": 20 * GIB},
            "engine.gpuMemoryUtilization 0.90 takes 21.6 GiB of one GPU of 24.0 GiB, but "
            "vram.budget allows 20.0 GiB; leave one of the two out, or set "
            "engine.gpuMemoryUtilization to 0.83 or less.",
        ),
        (
            {
                "gpu_memory_utilization": Decimal("0.5"),
                "budget_bytes": 20 * GIB,
                "tensor_parallel_size": 3,
            },
            "engine.gpuMemoryUtilization 0.5 takes 36.0 GiB of 3 GPUs of 24.0 GiB, but vram.budget "
            "allows 20.0 GiB; leave one of the two out, or set engine.gpuMemoryUtilization to 0.27 "
            "or less.",
        ),
        (
            {"gpu_memory_utilization": Decimal("1.2")},
            "engine.gpuMemoryUtilization is 1.2; it must be above 0 and at most 1.",
        ),
        ({"max_num_seqs": 0}, "engine.maxNumSeqs is 0; it must be at least 1."),
        (
            {"dtype": "int7"},
            "engine.dtype is 'int7'; it must be one of auto, float32, bfloat16, float16.",
        ),
        (
            {"quantization": "INT2"},
            "model.quantization is 'INT2'; it must be one of Auto, None, INT8, INT4.",
        ),
        (
            {"device": "CPU", "tensor_parallel_size": 2},
            "engine.tensorParallelSize is for GPUs, but device is CPU; remove it.",
        ),
        (
            {"device": "CPU", "gpu_memory_utilization": Decimal(1)},
            "engine.gpuMemoryUtilization is for GPUs, but device is CPU; remove it.",
        ),
    ],
)
def test_a_field_that_cannot_be_meant_is_named(change: dict[str, Any], sentence: str) -> None:
    answer = misfit(SMOLLM2, replace(GPU_24, **change))

    assert answer.reason == "InvalidField"
    assert answer.message == sentence


def test_a_cpu_pod_without_a_budget_gets_the_memory_that_the_need_takes() -> None:
    answer = fit(SMOLLM2, Demand("CPU", max_model_len=2048, max_num_seqs=4))

    assert answer.terms.weights_bytes == 538_060_032
    assert answer.terms.kv_cache_bytes == 2048 * 2 * 30 * 3 * 64 * 2
    assert answer.terms.activation_bytes == (
        512 * (3 * 1536 + (9 + 6) * 64 + 3 * 576) * 4 + 4 * 49152 * 2 * 4
    )
    working = answer.terms.kv_cache_bytes + answer.terms.activation_bytes
    loading = 49152 * 576 * LOAD_BYTES_PER_PACKED_ELEMENT - working
    assert (
        answer.terms.overhead_bytes == cpu_process_bytes(SMOLLM2.config, is_native=True) + loading
    )
    assert answer.terms.total_bytes <= answer.budget_bytes < answer.terms.total_bytes + MIB
    assert (answer.tensor_parallel_size, answer.gpu_memory_utilization) == (1, None)
    assert "gpuMemoryUtilization" not in answer.to_plan()


MIXTURE = replace(SMOLLM2.config, num_experts=4, num_experts_per_token=2)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        pytest.param(SMOLLM2.config, "float16", id="no kernel keeps float16"),
        pytest.param(MIXTURE, "auto", id="a mixture is no program"),
    ],
)
def test_torchs_operators_need_working_memory_for_every_cached_token(
    config: ModelConfig, dtype: str
) -> None:
    demand = Demand("CPU", dtype=dtype, max_model_len=2048, max_num_seqs=4)
    terms = fit(build(config), demand).terms
    longer = fit(build(config), replace(demand, max_model_len=4096)).terms

    token = 2 * 30 * 3 * 64 * 2
    # What attention gathers of a layer is widened to float32, values while keys are held.
    gathered = 2 * token if dtype == "float16" else 2 * (token + 3 * token)
    assert longer.kv_cache_bytes - terms.kv_cache_bytes == 2048 * token
    assert longer.activation_bytes - terms.activation_bytes == 2048 * (gathered // 30 + 512 * 8)


@pytest.mark.parametrize(
    ("demand", "loading"),
    [
        pytest.param(Demand("CPU"), 49152 * LOAD_BYTES_PER_PACKED_ELEMENT, id="until it is packed"),
        pytest.param(
            Demand("CPU", dtype="float16"),
            49152 * LOAD_BYTES_PER_ELEMENT,
            id="in another layout for torch, which takes a second copy",
        ),
    ],
)
def test_a_cpu_pod_has_room_for_loading_where_that_takes_more_than_serving(
    demand: Demand, loading: int
) -> None:
    untied = build(replace(SMOLLM2.config, tie_word_embeddings=False))
    terms = fit(untied, replace(demand, max_model_len=16, max_num_seqs=1)).terms

    serving = terms.kv_cache_bytes + terms.activation_bytes
    assert serving < loading * 576
    process = cpu_process_bytes(untied.config, demand.dtype == "auto")
    assert terms.total_bytes == terms.weights_bytes + process + loading * 576


def test_a_larger_vocabulary_takes_more_of_a_cpu_pod() -> None:
    """Its tokenizer, and its tries for structured output in two processes."""
    large = replace(SMOLLM2.config, vocab_size=262_144)
    difference = cpu_process_bytes(large, True) - cpu_process_bytes(SMOLLM2.config, True)
    assert difference == (262_144 - 49_152) * 2_048


def test_a_cpu_pods_cache_is_no_larger_than_its_requests_can_fill() -> None:
    answer = fit(SMOLLM2, Demand("CPU", budget_bytes=64 * GIB, max_model_len=2048, max_num_seqs=4))

    assert answer.kv_cache_tokens == 4 * 2048
    assert answer.budget_bytes == 64 * GIB


def test_a_cpu_pod_that_is_too_small_names_the_budget() -> None:
    answer = misfit(SMOLLM2, Demand("CPU", budget_bytes=GIB, max_model_len=512, max_num_seqs=1))

    assert answer.message == (
        "The model needs 1.3 GiB (513 MiB for its weights, the rest to serve a request of 512 "
        "tokens), but vram.budget allows 1.0 GiB; it would fit with "
        "vram.budget 1408Mi."
    )


def test_the_plan_has_the_keys_of_the_status() -> None:
    plan = fit(SMOLLM2, replace(GPU_24, max_num_seqs=64)).to_plan()

    assert plan.pop("explanation") == (
        "One GPU of 24.0 GiB is enough. It gives 22.8 GiB (95%, the rest is kept free): 257 MiB of "
        "weights in bfloat16, 21.4 GiB of KV cache, 28 MiB of activations and 1.1 GiB of CUDA's "
        "own. The cache holds 995,984 tokens: 121 requests of 8,192 tokens, the longest allowed, "
        "or 486 of 2,048, the mean planned for (at most 64 at a time)."
    )
    assert plan == {
        "tensorParallelSize": 1,
        "gpuMemoryUtilization": "0.95",
        "maxModelLen": 8192,
        "maxNumSeqs": 64,
        "maxNumBatchedTokens": 2048,
        "dtype": "bfloat16",
        "kvCacheDtype": "bfloat16",
        "kvCacheTokens": 995_984,
        "budget": "23348Mi",
        "weights": "257Mi",
        "kvCache": "21885Mi",
        "activation": "29184Ki",
        "overhead": "1178Mi",
    }
