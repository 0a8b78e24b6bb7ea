"""A mixture on the device is what each token's experts give, whatever the tokens have chosen."""

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from forebay_kernels import ops
from forebay_kernels.gpu.products.moe_align import moe_align, most_blocks
from forebay_kernels.portable.batch_invariant import batch_invariant
from forebay_kernels.quant_matrix import QuantMatrix, build_matrix, quantise

pytestmark = pytest.mark.interpreted

HIDDEN, INNER, NUM_EXPERTS, NUM_CHOSEN = 64, 96, 5, 2


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _choices(num_tokens: int, num_chosen: int = NUM_CHOSEN, seed: int = 0) -> Tensor:
    scores = _random(num_tokens, NUM_EXPERTS, seed=seed)
    return scores.topk(num_chosen, -1).indices


def _product(kind: str, num_outputs: int, num_inputs: int, seed: int) -> ops.Linear:
    weight = _random(num_outputs, num_inputs, seed=seed).half() / 8
    if kind == "dense":
        return ops.Linear(weight)
    return ops.QuantLinear(quantise(weight, int(kind[-1]), 32, symmetric=kind == "int8"))


def _weight(product: ops.Linear | ops.QuantLinear) -> Tensor:
    if isinstance(product, ops.QuantLinear):
        return product.matrix.dequantised(torch.float32)
    return product.weight.float()


def _expected(x: Tensor, weights: Tensor, experts: Tensor, parts: list[list[ops.Linear]]) -> Tensor:
    """Token by token. Shapes: x, out [T, h]; weights, experts [T, C]."""
    out = torch.zeros(x.shape)
    for token, row in enumerate(x.float()):
        for weight, expert in zip(weights[token], experts[token].tolist(), strict=True):
            inner = ops.silu_mul((_weight(parts[0][expert]) @ row).unsqueeze(0))
            out[token] += weight * (_weight(parts[1][expert]) @ inner[0])
    return out


@pytest.mark.parametrize(
    "experts",
    [
        pytest.param(_choices(7), id="spread"),
        pytest.param(torch.tensor([[3, 1]]), id="one-token"),
        pytest.param(torch.tensor([[2, 0]] * 40), id="all-to-the-same"),
        pytest.param(_choices(700), id="more-than-a-tile"),
    ],
)
@pytest.mark.parametrize("block_m", [16, 64])
def test_every_place_is_in_one_block_of_its_expert(experts: Tensor, block_m: int) -> None:
    places, expert_by_block = moe_align(experts, NUM_EXPERTS, block_m)
    assert len(expert_by_block) == most_blocks(experts.numel(), NUM_EXPERTS, block_m)
    found: dict[int, list[int]] = {}
    for block, expert in zip(places.tolist(), expert_by_block.tolist(), strict=True):
        own = [place for place in block if place >= 0]
        assert bool(own) == (expert >= 0)
        found.setdefault(expert, []).extend(own)
    flat = experts.flatten()
    for expert in range(NUM_EXPERTS):
        assert found.get(expert, []) == (flat == expert).nonzero().flatten().tolist()


@pytest.mark.parametrize("kind", ["dense", "int4", "int8"])
@pytest.mark.parametrize("num_tokens", [1, 9, 67])
def test_a_token_gets_what_its_experts_give(kind: str, num_tokens: int) -> None:
    parts = [
        [_product(kind, 2 * INNER, HIDDEN, seed) for seed in range(NUM_EXPERTS)],
        [_product(kind, HIDDEN, INNER, seed + 9) for seed in range(NUM_EXPERTS)],
    ]
    grouped = ops.group_experts(*parts, ops.silu_mul)
    assert grouped is not None
    x, experts = _random(num_tokens, HIDDEN).half(), _choices(num_tokens)
    weights = _random(num_tokens, NUM_CHOSEN, seed=4).softmax(-1)
    out = grouped(x, weights, experts)
    torch.testing.assert_close(
        out.float(), _expected(x, weights, experts, parts), atol=3e-2, rtol=3e-2
    )
    with batch_invariant(True):
        whole = grouped(x, weights, experts)
        assert torch.equal(grouped(x[:1], weights[:1], experts[:1]), whole[:1])


def test_what_no_kernel_takes_is_not_grouped() -> None:
    weight = _random(HIDDEN, HIDDEN)
    plain = [ops.Linear(weight)]
    with_bias = [ops.Linear(weight, weight[0])]
    base = quantise(weight, 4, 32, symmetric=True)
    ordered: QuantMatrix = build_matrix(
        base.codes(), base.scales, None, 4, 32, torch.arange(HIDDEN).flip(0)
    )
    for others in (with_bias, [ops.QuantLinear(ordered)], [object()]):
        assert ops.group_experts(plain, others, ops.silu_mul) is None
        assert ops.group_experts(others, plain, ops.silu_mul) is None


def test_experts_that_differ_are_refused() -> None:
    plain = [ops.Linear(_random(HIDDEN, HIDDEN)), ops.Linear(_random(HIDDEN, 2 * HIDDEN))]
    with pytest.raises(ValueError, match="differ in shape"):
        ops.group_experts(plain, plain, ops.silu_mul)
