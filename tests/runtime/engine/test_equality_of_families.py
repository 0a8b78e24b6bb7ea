"""With --batch-invariant a request's numbers are bit-equal, whatever happens around it."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_play import Answer, load_engine, play, play_alone, tokens_of
from forebay_runtime.request import Pooling, Request, SamplingParams
from tiny_model import FAMILIES

FLAGS: dict[str, Any] = {
    "batch_invariant": True,
    "enable_prefix_caching": False,
    "max_num_seqs": 6,
    "max_model_len": 128,
    "block_size": 16,
}
POOLINGS: tuple[Pooling, ...] = ("mean", "last")
SEEDED: dict[str, Any] = {
    "temperature": 0.9,
    "top_p": 0.95,
    "min_p": 0.01,
    "repetition_penalty": 1.2,
}


def build_requests(**sampling: Any) -> list[Request]:
    """Prompts of several lengths, two of which begin alike; their logprobs show every bit."""
    chance = random.Random(7)
    lengths = (1, 17, 37, 35, 50)
    prompts = [[chance.randrange(3, 131) for _ in range(length)] for length in lengths]
    prompts[3][:32] = prompts[2][:32]
    sampling = {"temperature": 0, **sampling}
    return [
        Request(
            f"{length} tokens",
            prompt,
            SamplingParams(10, ignore_eos=True, num_logprobs=3, seed=4, **sampling),
        )
        for length, prompt in zip(lengths, prompts, strict=True)
    ]


def alone(path: Path, **sampling: Any) -> dict[str, Answer]:
    return play_alone(load_engine(path, **FLAGS), build_requests(**sampling))


def together(path: Path, flags: dict[str, Any], **sampling: Any) -> dict[str, Answer]:
    return play(load_engine(path, **{**FLAGS, **flags}), build_requests(**sampling))


def prefix_cached(path: Path, **sampling: Any) -> dict[str, Answer]:
    engine = load_engine(path, **{**FLAGS, "enable_prefix_caching": True})
    play(engine, build_requests(**sampling))
    answers = play(engine, build_requests(**sampling))
    assert engine.load_now().num_prefix_hits > 0
    return answers


def preempted(path: Path, **sampling: Any) -> dict[str, Answer]:
    runner: Any = load_engine(path, **FLAGS).runner
    token_bytes = runner.cache_bytes // (runner.num_blocks * runner.block_size)
    engine = load_engine(
        path, **{**FLAGS, "block_size": 4, "kv_cache_memory_bytes": 128 * token_bytes}
    )
    answers = play(engine, build_requests(**sampling))
    assert engine.load_now().num_preemptions > 0
    return answers


CIRCUMSTANCES = [
    pytest.param(lambda path, **s: together(path, {}, **s), id="in-company"),
    pytest.param(
        lambda path, **s: together(path, {"max_num_batched_tokens": 7}, **s), id="chunks-of-7"
    ),
    pytest.param(lambda path, **s: together(path, {"block_size": 64}, **s), id="blocks-of-64"),
    pytest.param(prefix_cached, id="prefix-cached"),
    pytest.param(preempted, id="preempted"),
]


KINDS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "seeded": SEEDED}


@pytest.fixture(scope="module")
def answers_alone(saved: Callable[[str], Path]) -> dict[str, dict[str, Any]]:
    """By the kind of sampling, what each request gets that nothing disturbs."""
    return {kind: tokens_of(alone(saved("llama"), **sampling)) for kind, sampling in KINDS.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("circumstances", CIRCUMSTANCES)
def test_circumstances_change_no_bit(
    saved: Callable[[str], Path],
    answers_alone: dict[str, dict[str, Any]],
    circumstances: Callable[..., dict[str, Answer]],
    kind: str,
) -> None:
    assert tokens_of(circumstances(saved("llama"), **KINDS[kind])) == answers_alone[kind]


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "llama"])
def test_circumstances_change_no_bit_in_the_other_families(
    saved: Callable[[str], Path], family: str
) -> None:
    path = saved(family)
    expected = tokens_of(alone(path))
    assert tokens_of(together(path, {"max_num_batched_tokens": 7, "block_size": 64})) == expected
    assert tokens_of(prefix_cached(path)) == expected
    assert tokens_of(preempted(path)) == expected


def test_chunks_change_no_bit_of_prompt_logprobs_and_embeddings(
    saved: Callable[[str], Path],
) -> None:
    answers = []
    for num_batched_tokens in (512, 7):
        engine = load_engine(
            saved("llama"), **{**FLAGS, "max_num_batched_tokens": num_batched_tokens}
        )
        scored = build_requests(num_prompt_logprobs=2)
        pooled = [
            Request(f"{pooling} {number}", each.prompt_token_ids, each.sampling, pooling=pooling)
            for number, each in enumerate(build_requests())
            for pooling in POOLINGS
        ]
        ends = play(engine, [*scored, *pooled])
        answers.append(
            {
                key: (answer.first and answer.first.prompt_logprobs, answer.last.embedding)
                for key, answer in ends.items()
                if answer.last is not None
            }
        )
    whole, cut = answers
    assert whole == cut
