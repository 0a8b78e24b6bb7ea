"""The kernel that draws keeps exactly what the reference keeps, and a seed gives a CPU's token."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from forebay_kernels import reference
from forebay_kernels.outcome import BROKEN, DRAWN, NOTHING_LEFT
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling import draw as portable
from forebay_runtime.sampling.draw import draw_tokens

pytestmark = pytest.mark.interpreted

KINDS = {
    "plain": {},
    "min_p": {"min_p": 0.05},
    "top_k": {"top_k": 20},
    "top_p": {"top_p": 0.9},
    "both": {"top_k": 50, "top_p": 0.8},
    "all-three": {"top_k": 40, "top_p": 0.95, "min_p": 0.02},
    "nearly-all": {"top_p": 0.9999},
    "hot": {"temperature": 3.0, "top_p": 0.9},
    "cold": {"temperature": 0.01, "top_k": 5},
    "more-than-there-are": {"top_k": 10**10},
    "greedy": {"temperature": 0},
}


def draw_on_device(
    logits: torch.Tensor,
    sampling: Sequence[SamplingParams],
    keys: Sequence[int],
    sources: Sequence[int] | None = None,
    edited: torch.Tensor | None = None,
) -> list[list[int]]:
    from forebay_kernels.gpu.sampling.draw import Wishes, draw

    def floats(values: Sequence[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32)

    absent = [-1] * len(logits)
    wishes = Wishes(
        torch.tensor(absent if sources is None else sources, dtype=torch.int32),
        floats([each.temperature for each in sampling]),
        torch.tensor([min(each.top_k, 2**31 - 1) for each in sampling], dtype=torch.int32),
        floats([each.top_p for each in sampling]),
        floats([each.min_p for each in sampling]),
        torch.tensor(keys),
        torch.tensor(absent, dtype=torch.int32),
    )
    counts = torch.zeros(1, logits.shape[1], dtype=torch.int16)
    return draw(logits, logits if edited is None else edited, wishes, counts).tolist()


def check_agreement(num_rows: int, vocab_size: int, kind: str) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(num_rows, vocab_size, generator=generator) * 2.5
    sampling = [SamplingParams(max_tokens=1, seed=seed, **KINDS[kind]) for seed in range(num_rows)]
    keys = [Request("", [0], each).draw() for each in sampling]
    token_ids, outcomes = draw_on_device(logits, sampling, keys)
    assert outcomes == [DRAWN] * num_rows
    if kind == "greedy":
        assert token_ids == logits.argmax(-1).tolist()
    else:
        assert token_ids == draw_tokens(logits, [Request("", [0], each) for each in sampling])


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_token_that_a_cpu_gives(kind: str) -> None:
    check_agreement(6, 1000, kind)


@pytest.mark.parametrize("kind", ["plain", "both"])
def test_a_large_vocabulary(kind: str) -> None:
    check_agreement(2, 49_152, kind)


def test_thousands_of_races_end_as_on_a_cpu_and_as_often_as_chances_say() -> None:
    from race_kernel import winners

    num_keys, chances = 8192, torch.tensor([0.4, 0.3, 0.15, 0.1, 0.04, 0.01])
    keys = torch.from_numpy(np.random.default_rng(0).integers(0, 2**63, num_keys))
    out = torch.zeros(num_keys, dtype=torch.int32)
    winners[(1,)](chances, keys, out, len(chances), num_keys)
    names = torch.arange(len(chances))
    expected = portable._race(chances.expand(num_keys, -1), names, keys.unsqueeze(1)).squeeze(1)
    assert torch.equal(out.long(), expected)
    counts = torch.bincount(expected, minlength=len(chances))
    chi_square = ((counts - num_keys * chances) ** 2 / (num_keys * chances)).sum()
    # Five degrees of freedom: beyond it once in a thousand times, were it not always the same.
    assert chi_square < 20.5


TIES = {
    "top_k-cuts-equals": {"top_k": 5},
    "top_p-cuts-equals": {"top_p": 0.6},
    "both-cut-equals": {"top_k": 6, "top_p": 0.7},
    "top_p-ends-above-the-equals": {"top_k": 4, "top_p": 0.35},
}


@pytest.mark.parametrize("filters", TIES.values(), ids=TIES.keys())
def test_of_equals_the_lower_ids_are_kept(filters: dict[str, float]) -> None:
    """Scores in few bits are often equal, most of all where it matters who is the last."""
    scores = torch.tensor([1.0, 3.0, 1.0, 2.0, 2.0, 1.0, 2.0, 2.0, 0.0, 2.0])
    is_kept = reference.kept_tokens(scores, **{"top_k": 0, "top_p": 1.0, "min_p": 0.0, **filters})
    sampling = SamplingParams(max_tokens=1, temperature=9.0, **filters)
    keys = np.random.default_rng(1).integers(0, 2**63, 24).tolist()
    token_ids, _ = draw_on_device(9 * scores.expand(24, -1), [sampling] * 24, keys)
    assert set(token_ids) == set(is_kept.nonzero().flatten().tolist())


def test_a_row_without_a_number_says_so_and_no_other_row_does() -> None:
    logits = torch.zeros(5, 300)
    logits[1, 70] = float("nan")
    logits[2, 299] = float("inf")
    logits[3] = float("-inf")
    edited = torch.full((1, 300), float("-inf"))
    sampling = [SamplingParams(max_tokens=1, top_k=3)] * 5
    _, outcomes = draw_on_device(logits, sampling, [1] * 5, [-1, -1, -1, -1, 0], edited)
    assert outcomes == [DRAWN, BROKEN, BROKEN, BROKEN, NOTHING_LEFT]


def test_a_rows_token_depends_on_the_row_alone() -> None:
    logits = torch.randn(4, 500) * 3
    sampling = [
        SamplingParams(max_tokens=1),
        SamplingParams(max_tokens=1, top_k=7),
        SamplingParams(max_tokens=1, temperature=0),
        SamplingParams(max_tokens=1, top_p=0.5),
    ]
    whole, _ = draw_on_device(logits, sampling, [5, 6, 7, 8])
    for row in range(4):
        one = slice(row, row + 1)
        assert draw_on_device(logits[one], sampling[one], [5, 6, 7, 8][one])[0] == [whole[row]]
