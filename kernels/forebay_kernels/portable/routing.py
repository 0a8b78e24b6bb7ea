"""Which experts of a mixture see which tokens."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor


def choose_experts(
    scores: Tensor, num_chosen: int, *, is_normalised: bool
) -> tuple[Tensor, Tensor]:
    """The best experts of each token and their weights, by softmax over all of them.

    is_normalised: the weights of the chosen add up to one.
    Shapes: scores [T, E]; out: weights [T, num_chosen] float32, experts [T, num_chosen] int64.
    Source: Shazeer et al. 2017 (mixture of experts) §2.1; Jiang et al. 2024 (Mixtral) §2.1.
    """
    weights, experts = scores.float().softmax(-1).topk(num_chosen, -1)
    if is_normalised:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, experts


def group_by_expert(experts: Tensor, num_experts: int) -> Iterator[tuple[int, Tensor]]:
    """Each expert that was chosen, ascending, with the places [n] in experts.flatten() that chose
    it; place // num_chosen is the token.

    Shapes: experts [T, num_chosen].
    """
    flat = experts.flatten()
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=num_experts).tolist()
    for expert, places in enumerate(order.split(counts)):
        if len(places):
            yield expert, places
