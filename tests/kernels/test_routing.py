"""Tokens reach the experts that score best for them, each place once, whatever the routing."""

import pytest
import torch

from forebay_kernels.portable.routing import choose_experts, group_by_expert


@pytest.mark.parametrize("is_normalised", [True, False], ids=["normalised", "plain"])
def test_the_best_experts_are_chosen_by_softmax_over_all(is_normalised: bool) -> None:
    scores = torch.tensor([[0.0, 2.0, 1.0, -1.0], [3.0, 0.0, 0.0, 2.9]])
    weights, experts = choose_experts(scores, 2, is_normalised=is_normalised)
    assert experts.tolist() == [[1, 2], [0, 3]]
    shares = scores.softmax(-1).gather(1, experts)
    expected = shares / shares.sum(-1, keepdim=True) if is_normalised else shares
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize(
    "experts",
    [
        pytest.param([[0, 3], [3, 1], [0, 2]], id="spread"),
        pytest.param([[2, 0], [2, 0], [2, 0]], id="all-to-the-same"),
        pytest.param([[3, 1]], id="one-token"),
    ],
)
def test_every_place_is_in_the_group_of_its_expert_once(experts: list[list[int]]) -> None:
    chosen = torch.tensor(experts)
    groups = {expert: places.tolist() for expert, places in group_by_expert(chosen, 4)}
    assert list(groups) == sorted(set(chosen.flatten().tolist()))
    assert sorted(sum(groups.values(), [])) == list(range(chosen.numel()))
    for expert, places in groups.items():
        assert (chosen.flatten()[places] == expert).all()
