"""What holds for every model and demand: caps, monotony, the least size, and advice that works."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_budget.inspection import Inspection, ModelConfig, WeightGroup
from forebay_budget.rounding import ROUNDED_BITS, unrounded_inputs
from forebay_budget.sizing import Demand, Fit, Misfit, size
from forebay_budget.terms import admissible_tensor_parallel_sizes, held_tokens

MIB = 1024**2
GIB = 1024**3


@st.composite
def inspections(draw: st.DrawFn) -> Inspection:
    """Models from 10 million to 100 billion parameters, of any legal proportions."""
    num_kv_heads = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 16]))
    num_heads = num_kv_heads * draw(st.integers(1, 8))
    head_dim = draw(st.sampled_from([16, 64, 96, 128]))
    hidden = draw(st.sampled_from([64, 576, 2048, 4096, 8192]))
    inner = draw(st.sampled_from([96, 1536, 5632, 11008, 14336, 28672, 29568]))
    num_layers = draw(st.integers(1, 80))
    vocab = draw(st.sampled_from([100, 32000, 49152, 151936]))
    is_tied = draw(st.booleans())
    context = draw(st.sampled_from([512, 2048, 8192, 131072]))
    config = ModelConfig(
        "LlamaForCausalLM", num_layers, hidden, num_heads, num_kv_heads, head_dim, inner, vocab,
        context, is_tied, draw(st.sampled_from(["bfloat16", "float32"])),
        draw(st.none() | st.sampled_from([1, 64, 4096])),
        *draw(st.sampled_from([(0, 0, 0, 0), (8, 2, inner, 0), (60, 4, 1408, 5632)])),
    )  # fmt: skip
    experts = config.num_experts * config.expert_intermediate_size
    inner_sizes = (experts or inner) + config.shared_intermediate_size
    layer = (2 * (num_heads + num_kv_heads) * head_dim + 3 * inner_sizes) * hidden
    counts = (
        ("sharded", num_layers * layer),
        ("replicated", (2 * num_layers + 1) * hidden),
        ("embedding", (1 if is_tied else 2) * vocab * hidden),
    )
    weights = tuple(WeightGroup(kind, "BF16", n, 2 * n) for kind, n in counts)  # type: ignore[arg-type]
    return Inspection(config, weights, "safetensors", "0" * 40)


def gpu_memories(inspection: Inspection) -> st.SearchStrategy[int]:
    """GPUs that hold from a sixth to three times the weights."""
    shares = st.sampled_from([1.2, 0.7, 0.3, 3.0, 0.15])
    return st.builds(
        lambda share, rest: int(inspection.weights_bytes * share) + 2 * GIB + rest,
        shares,
        st.integers(0, MIB),
    )


budgets = st.none() | st.integers(MIB, 200 * GIB)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Inspection, Demand]:
    """A model and a demand without contradictions."""
    inspection = draw(inspections())
    context = inspection.config.max_position_embeddings
    max_model_len = draw(st.none() | st.integers(1, context))
    is_gpu = draw(st.booleans())
    config = inspection.config
    possible = [form for form, bits in ROUNDED_BITS.items() if not unrounded_inputs(config, bits)]
    demand = Demand(
        device="GPU" if is_gpu else "CPU",
        gpu_memory_bytes=draw(gpu_memories(inspection)) if is_gpu else None,
        budget_bytes=draw(budgets),
        max_gpus_per_node=draw(st.sampled_from([8, 4, 2, 1, 3])),
        max_model_len=max_model_len,
        max_num_seqs=draw(st.none() | st.integers(1, 500)),
        mean_tokens=draw(st.none() | st.integers(1, max_model_len or context)),
        gpu_memory_utilization=draw(st.none() | st.decimals("0.1", "1", places=2))
        if is_gpu
        else None,
        kv_cache_dtype=draw(st.sampled_from(["auto", "fp8", "int8", "int4"])),
        quantization=draw(st.sampled_from(["None", *possible])),
    )
    share = demand.gpu_memory_utilization
    if share and share * (demand.gpu_memory_bytes or 0) > (demand.budget_bytes or 0):
        demand = replace(demand, budget_bytes=None)
    return inspection, demand


ask = settings(max_examples=100, deadline=None)


@ask
@given(cases())
def test_a_fit_never_takes_more_than_the_caps_allow(case: tuple[Inspection, Demand]) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Misfit):
        return
    total = answer.terms.total_bytes
    assert min(vars(answer.terms).values()) >= 0
    if demand.budget_bytes is not None:
        assert total * answer.tensor_parallel_size <= demand.budget_bytes
    if demand.gpu_memory_bytes is not None:
        share = demand.gpu_memory_utilization or Decimal("0.95")
        assert total <= demand.gpu_memory_bytes * share
        assert answer.tensor_parallel_size <= demand.max_gpus_per_node


@ask
@given(cases())
def test_the_utilisation_never_means_more_bytes_than_the_plan(
    case: tuple[Inspection, Demand],
) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Fit) and answer.gpu_memory_utilization is not None:
        share = Decimal(answer.gpu_memory_utilization)
        meant = int(share * (demand.gpu_memory_bytes or 0))
        assert meant <= answer.terms.total_bytes or share == Decimal("0.01")
        assert 0 < share <= 1


@ask
@given(cases())
def test_a_fits_cache_serves_what_was_asked(case: tuple[Inspection, Demand]) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Misfit):
        return
    longest, mean = (
        held_tokens(inspection.config, tokens, answer.max_num_batched_tokens)
        for tokens in (answer.max_model_len, answer.mean_tokens)
    )
    assert answer.kv_cache_tokens >= max(longest, answer.max_num_seqs * mean)
    assert answer.max_model_len == (demand.max_model_len or answer.max_model_len)
    assert answer.max_num_seqs == (demand.max_num_seqs or answer.max_num_seqs)
    assert answer.max_model_len <= inspection.config.max_position_embeddings
    assert answer.max_num_batched_tokens >= answer.max_num_seqs >= 1


@ask
@given(cases(), st.integers(0, 64 * GIB), st.integers(0, 64 * GIB))
def test_more_memory_never_fits_less(
    case: tuple[Inspection, Demand], more_gpu_bytes: int, more_budget_bytes: int
) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Misfit):
        return
    larger = replace(
        demand,
        gpu_memory_bytes=demand.gpu_memory_bytes and demand.gpu_memory_bytes + more_gpu_bytes,
        budget_bytes=demand.budget_bytes and demand.budget_bytes + more_budget_bytes,
    )
    other = size(inspection, larger)
    assert isinstance(other, Fit)
    assert other.tensor_parallel_size <= answer.tensor_parallel_size
    if other.tensor_parallel_size == answer.tensor_parallel_size:
        assert other.max_model_len >= answer.max_model_len


@ask
@given(cases())
def test_the_tensor_parallelism_is_the_least_that_fits(case: tuple[Inspection, Demand]) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Misfit) or demand.device == "CPU":
        return
    asked = replace(demand, max_model_len=answer.max_model_len)
    for tp in admissible_tensor_parallel_sizes(inspection.config, answer.quantization):
        if tp < answer.tensor_parallel_size:
            assert isinstance(size(inspection, replace(asked, tensor_parallel_size=tp)), Misfit)


@ask
@given(cases())
def test_what_a_misfit_calls_near_fits_when_tried(case: tuple[Inspection, Demand]) -> None:
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Fit):
        return
    assert answer.reason == "InsufficientMemory"
    assert answer.needed_bytes > answer.allowed_bytes
    assert answer.nearest
    for option in answer.nearest:
        changed = replace(demand, **dict(option.changes))  # type: ignore[arg-type]
        assert isinstance(size(inspection, changed), Fit), option


@ask
@given(cases())
def test_the_advice_is_not_more_than_is_needed(case: tuple[Inspection, Demand]) -> None:
    """A step less of a budget, or a step more of a length, does not fit."""
    inspection, demand = case
    answer = size(inspection, demand)
    if isinstance(answer, Fit):
        return
    single = [option.changes[0] for option in answer.nearest if len(option.changes) == 1]
    for field, value in single:
        if field == "max_model_len" and value + 272 <= (demand.max_model_len or 0):
            assert isinstance(size(inspection, replace(demand, max_model_len=value + 272)), Misfit)
        if field == "budget_bytes" and value > GIB:
            assert isinstance(size(inspection, replace(demand, budget_bytes=value - GIB)), Misfit)


def test_the_cases_are_of_every_kind() -> None:
    """The properties above would hold of nothing: both answers on both devices must occur."""
    seen = set()

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(cases())
    def look(case: tuple[Inspection, Demand]) -> None:
        answer = size(*case)
        seen.add((case[1].device, type(answer).__name__))
        if isinstance(answer, Fit) and answer.tensor_parallel_size > 1:
            seen.add(("GPU", "parallel"))

    look()
    assert seen == {
        ("GPU", "Fit"),
        ("GPU", "Misfit"),
        ("CPU", "Fit"),
        ("CPU", "Misfit"),
        ("GPU", "parallel"),
    }
