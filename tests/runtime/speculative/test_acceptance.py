"""What is proposed changes no answer and no distribution, whoever proposes it."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
import torch

from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.sampling.draw import TorchDrawing, draw_tokens
from forebay_runtime.sampling.portable_choice import Ahead, PortableChoice
from forebay_runtime.speculative.acceptance import accept

V = 5
NUM_TOKENS = 3
NUM_SEEDS = 1_500
_TARGET = torch.randn(1 + V + V * V, V, generator=torch.Generator().manual_seed(1))
_DRAFT = _TARGET + 0.8 * torch.randn(*_TARGET.shape, generator=torch.Generator().manual_seed(2))
Accept = Callable[[Sequence[int], Sequence[int]], tuple[int, ...]]


def logits_after(table: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    """A model of V tokens that looks at the two before; there are at most two."""
    if not tokens:
        return table[0]
    return table[1 + tokens[0]] if len(tokens) == 1 else table[1 + V + tokens[0] * V + tokens[1]]


def fixed(request: Request, number: int) -> tuple[int, ...]:
    """A guess that knows nothing."""
    return (1, 3, 0)[len(request.output_token_ids) :][:number]


def drafted(request: Request, number: int) -> tuple[int, ...]:
    """What another model draws, with the chance that belongs to each place."""
    guess: list[int] = []
    while len(guess) < number:
        logits = logits_after(_DRAFT, [*request.output_token_ids, *guess])
        guess += draw_tokens(logits[None], [Ahead(request, len(guess))])
    return tuple(guess)


PROPOSERS = {"nothing": lambda request, number: (), "a fixed guess": fixed, "a draft": drafted}


def answer(seed: int, propose: Any, sampling: dict[str, Any], keep: Accept) -> tuple[int, ...]:
    """Three tokens, by steps that try what is proposed."""
    request = Request("", [0], SamplingParams(NUM_TOKENS, seed=seed, **sampling))
    choice = PortableChoice(frozenset(), TorchDrawing())
    output = request.output_token_ids
    while len(output) < NUM_TOKENS:
        proposed = propose(request, NUM_TOKENS - len(output) - 1)
        assumed = [proposed[:number] for number in range(1 + len(proposed))]
        rows = torch.stack([logits_after(_TARGET, [*output, *own]) for own in assumed])
        drawn = choice.choose(rows, [request] * len(assumed), assumed).token_ids
        output += keep(proposed, drawn)
    return tuple(output)


def expected_chances(temperature: float) -> dict[tuple[int, ...], float]:
    """What each answer's chance is, by the model alone."""
    chances: dict[tuple[int, ...], float] = {}
    for tokens in product(range(V), repeat=NUM_TOKENS):
        chance = 1.0
        for place, token_id in enumerate(tokens):
            scores = logits_after(_TARGET, tokens[:place]) / temperature
            chance *= float(scores.softmax(-1)[token_id])
        chances[tokens] = chance
    return chances


def surprise(counts: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]) -> float:
    """Chi-square in standard deviations above its mean; rare answers are counted together."""
    total = sum(counts.values())
    cells: list[tuple[float, float]] = []
    rare = [0.0, 0.0]
    for tokens, chance in chances.items():
        if total * chance >= 5:
            cells.append((counts[tokens], total * chance))
        else:
            rare = [rare[0] + counts[tokens], rare[1] + total * chance]
    cells.append((rare[0], rare[1]))
    statistic = sum((seen - meant) ** 2 / meant for seen, meant in cells if meant)
    freedom = len(cells) - 1
    return (statistic - freedom) / math.sqrt(2 * freedom)


def count(propose: Any, keep: Accept) -> Counter[tuple[int, ...]]:
    sampling = {"temperature": 0.8}
    return Counter(answer(seed, propose, sampling, keep) for seed in range(NUM_SEEDS))


@pytest.mark.parametrize("propose", PROPOSERS.values(), ids=PROPOSERS)
def test_answers_are_distributed_as_the_model_says(propose: Any) -> None:
    assert surprise(count(propose, accept), expected_chances(0.8)) < 3


def keep_all(proposed: Sequence[int], sampled: Sequence[int]) -> tuple[int, ...]:
    return (*proposed, sampled[-1])


def keep_one_more(proposed: Sequence[int], sampled: Sequence[int]) -> tuple[int, ...]:
    """As if the first row past a wrong guess still counted."""
    kept = accept(proposed, sampled)
    return tuple(sampled[: min(len(sampled), len(kept) + 1)])


def keep_the_likely(proposed: Sequence[int], sampled: Sequence[int]) -> tuple[int, ...]:
    """As if a guess were good enough when the sample is its neighbour."""
    near = [p if abs(p - s) <= 1 else s for p, s in zip(proposed, sampled, strict=False)]
    kept = len(accept(proposed, [*near, sampled[-1]]))
    return (*proposed[: kept - 1], ([*near, sampled[-1]])[kept - 1])


WRONG_RULES = {
    "all is kept": keep_all,
    "one too many is kept": keep_one_more,
    "what is near is kept": keep_the_likely,
}


@pytest.mark.parametrize("keep", WRONG_RULES.values(), ids=WRONG_RULES)
def test_a_wrong_rule_would_be_found_out(keep: Accept) -> None:
    assert surprise(count(fixed, keep), expected_chances(0.8)) > 10


SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "plain": {},
    "top_k": {"top_k": 3},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "all filters": {"temperature": 1.3, "top_k": 4, "top_p": 0.9, "min_p": 0.05},
    "penalties": {
        "presence_penalty": 1.5,
        "frequency_penalty": 1.0,
        "repetition_penalty": 1.8,
    },
    "min_tokens": {"min_tokens": 2, "stop_token_ids": frozenset({1, 2})},
    "bad words": {"bad_words": ((1, 3), (0,), (3, 0, 2))},
    "a bias": {"logit_bias": ((3, 2.0), (1, -3.0))},
    "allowed tokens": {"allowed_token_ids": frozenset({0, 1, 3})},
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_seed_gives_the_same_answer_whatever_is_proposed(sampling: dict[str, Any]) -> None:
    for seed in range(120):
        alone = answer(seed, PROPOSERS["nothing"], sampling, accept)
        for propose in (fixed, drafted):
            assert answer(seed, propose, sampling, accept) == alone


def test_a_draft_that_draws_with_the_same_chance_is_kept_more_often_than_its_best_token() -> None:
    """Which is why the draft model draws, and does not take its best token."""

    def best(request: Request, number: int) -> tuple[int, ...]:
        return (int(logits_after(_DRAFT, request.output_token_ids).argmax()),)[:number]

    def num_kept(propose: Any) -> int:
        kept = 0
        for seed in range(1_000):
            request = Request("", [0], SamplingParams(NUM_TOKENS, seed=seed))
            [guess] = propose(request, 1)
            kept += draw_tokens(_TARGET[:1], [request]) == [guess]
        return kept

    assert num_kept(drafted) > 1.2 * num_kept(best)


CASES = {
    "nothing proposed": ((), (4,), (4,)),
    "all kept and one more": ((1, 2), (1, 2, 3), (1, 2, 3)),
    "the first differs": ((1, 2), (0, 2, 3), (0,)),
    "the second differs": ((1, 2), (1, 1, 3), (1, 1)),
    "agreement after a difference": ((1, 2, 3), (1, 0, 3, 4), (1, 0)),
}


@pytest.mark.parametrize(("proposed", "sampled", "kept"), CASES.values(), ids=CASES)
def test_the_samples_up_to_the_first_that_differs_count(
    proposed: tuple[int, ...], sampled: tuple[int, ...], kept: tuple[int, ...]
) -> None:
    assert accept(proposed, sampled) == kept
