"""A plan's sentences, as somebody reads them who asked for a model and nothing else."""

from dataclasses import replace
from decimal import Decimal

import pytest

from forebay_budget.inspection import Inspection
from forebay_budget.sizing import Demand, Misfit, size
from observed_builder import LLAMA_13B, SMOLLM2

GIB = 1024**3
LONG = replace(LLAMA_13B, config=replace(LLAMA_13B.config, max_position_embeddings=131_072))


def explain(inspection: Inspection, demand: Demand) -> str:
    answer = size(inspection, demand)
    return answer.message if isinstance(answer, Misfit) else answer.explanation


def gpus(memory_gib: int, count: int = 8, **asked: object) -> Demand:
    return Demand("GPU", memory_gib * GIB, max_gpus_per_node=count, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("inspection", "demand", "sentences"),
    [
        (
            LLAMA_13B,
            gpus(80),
            "One GPU of 80.0 GiB is enough. It gives 76.0 GiB (95%, the rest is kept free): 21.1 "
            "GiB of weights in bfloat16, 53.5 GiB of KV cache, 250 MiB of activations and 1.1 GiB "
            "of CUDA's own. The cache holds 350,528 tokens: 85 requests of 4,096 tokens, the "
            "longest allowed, or 342 of 1,024, the mean planned for (at most 256 at a time).",
        ),
        (
            LLAMA_13B,
            gpus(16, max_num_seqs=8),
            "2 GPUs of 16.0 GiB, because one GPU would have to give 23.8 GiB, where 15.2 GiB may "
            "be used. Each gives 15.2 GiB (95%, the rest is kept free): 10.6 GiB of weights in "
            "bfloat16, 2.9 GiB of KV cache, 155 MiB of activations and 1.6 GiB of CUDA's own.",
        ),
        (
            LLAMA_13B,
            gpus(80, tensor_parallel_size=2, gpu_memory_utilization=Decimal("0.50")),
            "2 GPUs of 80.0 GiB, as engine.tensorParallelSize asks. Each gives 40.0 GiB (50%, as "
            "engine.gpuMemoryUtilization says):",
        ),
        (
            LLAMA_13B,
            gpus(80, budget_bytes=40 * GIB),
            "It gives 40.0 GiB (all that vram.budget 40.0 GiB allows):",
        ),
        (
            LONG,
            gpus(80),
            "or 42 of 8,192, the mean planned for. The model's own limit is 131,072 tokens; "
            "engine.maxModelLen asks for more.",
        ),
        (
            LONG,
            gpus(24, 1),
            "one request of 1,792 tokens, the longest allowed, or 4 of 448, the mean planned for. "
            "The model's own limit of 131,072 tokens does not fit.",
        ),
        (
            SMOLLM2,
            Demand("CPU", budget_bytes=2 * GIB),
            "A pod on CPUs that takes 2.0 GiB of the 2.0 GiB that vram.budget allows: 80 MiB of "
            "weights as stored, in Q4_1,",
        ),
        (
            SMOLLM2,
            Demand("CPU"),
            "A pod on CPUs with 1.2 GiB of memory, which is what it needs: 80 MiB of weights as "
            "stored, in Q4_1,",
        ),
        (
            SMOLLM2,
            Demand("CPU", dtype="float16"),
            "of memory, which is what it needs: 257 MiB of weights in float16,",
        ),
        (
            SMOLLM2,
            Demand("CPU", max_model_len=512, max_num_seqs=1),
            "The cache holds 512 tokens: one request of 512 tokens, the longest allowed, or 4 of "
            "128, the mean planned for (at most one at a time).",
        ),
    ],
    ids=[
        "one GPU",
        "why not fewer",
        "as many as asked, used as far as asked",
        "a budget below the GPU",
        "a context that is longer than the default",
        "a context that is cut to what fits",
        "a CPU with a budget",
        "a CPU without one",
        "a CPU that torch computes on",
        "one request at a time",
    ],
)
def test_a_plan_says_what_was_chosen_why_and_what_it_can_hold(
    inspection: Inspection, demand: Demand, sentences: str
) -> None:
    assert sentences in explain(inspection, demand)
