"""What requests ask for beyond tokens, from a tiny model: scores, embeddings, their own errors."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine_play import load_engine, play, play_with_errors, tokens_of
from forebay_runtime.request import Request, SamplingParams
from tiny_model import build_tiny, reference_logits

PROMPT = [(7 * place + 3) % 131 for place in range(37)]
FLAGS: dict[str, Any] = {"max_num_seqs": 5, "max_model_len": 128, "block_size": 8}
CHUNKS = pytest.mark.parametrize("num_batched_tokens", [512, 7], ids=["whole", "chunks-of-7"])


def request(name: str = "a", prompt: list[int] = PROMPT, **asked: Any) -> Request:
    pooling = asked.pop("pooling", None)
    sampling = SamplingParams(**{"max_tokens": 3, "temperature": 0, "ignore_eos": True, **asked})
    return Request(name, list(prompt), sampling, pooling=pooling)


@CHUNKS
@pytest.mark.parametrize("max_tokens", [0, 3])
def test_prompt_logprobs_are_transformers(
    tiny: Path, num_batched_tokens: int, max_tokens: int
) -> None:
    engine = load_engine(tiny, max_num_batched_tokens=num_batched_tokens, **FLAGS)
    asked = request(max_tokens=max_tokens, num_prompt_logprobs=2)
    # Twice, as what the first leaves in the prefix cache must not be taken for scored.
    play(engine, [asked])
    answer = play(engine, [request(max_tokens=max_tokens, num_prompt_logprobs=2)])["a"]
    assert answer.first is not None and answer.first.prompt_logprobs is not None
    first, *scored = answer.first.prompt_logprobs
    assert first is None
    expected = reference_logits(build_tiny(), PROMPT).log_softmax(-1)
    for position, scores in enumerate(scored, start=1):
        row = expected[position - 1]
        assert scores is not None
        assert scores.token_id == PROMPT[position]
        assert scores.logprob == pytest.approx(float(row[PROMPT[position]]), abs=1e-4)
        assert scores.rank == int((row > row[PROMPT[position]]).sum()) + 1
        assert [token_id for token_id, _ in scores.top] == row.topk(2).indices.tolist()
    assert len(scored) == len(PROMPT) - 1


@CHUNKS
@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_embeddings_are_transformers_hidden_states_at_unit_length(
    tiny: Path, num_batched_tokens: int, pooling: str
) -> None:
    engine = load_engine(tiny, max_num_batched_tokens=num_batched_tokens, **FLAGS)
    asked = [
        request("embedded", max_tokens=0, pooling=pooling),
        request("other", PROMPT[:9], max_tokens=8),
    ]
    answer = play(engine, asked)["embedded"]
    with torch.no_grad():
        hidden = build_tiny().model(torch.tensor([PROMPT])).last_hidden_state[0]
    pooled = hidden.mean(0) if pooling == "mean" else hidden[-1]
    assert answer.last is not None and answer.last.embedding is not None
    torch.testing.assert_close(
        torch.tensor(answer.last.embedding), pooled / pooled.norm(), atol=1e-5, rtol=1e-4
    )
    assert answer.token_ids == []


def test_a_warm_engine_meets_nothing_cold_whatever_is_asked(tiny: Path) -> None:
    engine = load_engine(tiny, max_num_batched_tokens=48, **FLAGS)
    engine.warm_up()
    asked: list[dict[str, Any]] = [
        {"temperature": 1, "min_p": 0.1, "top_k": 40, "top_p": 0.9},
        {"presence_penalty": 1.0, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
        {"logit_bias": ((5, 2.0),), "bad_words": ((3, 4),), "min_tokens": 2},
        {"allowed_token_ids": frozenset(range(9)), "num_logprobs": 5},
        {"num_prompt_logprobs": 3, "max_tokens": 0},
        {"num_prompt_logprobs": 0, "num_logprobs": 0},
        {"pooling": "mean", "max_tokens": 0},
        {"pooling": "last", "max_tokens": 0},
    ]
    chance = random.Random(1)
    for count in range(3):
        prompts = [PROMPT * 3, PROMPT[: chance.randrange(1, 30)], PROMPT[:5]]
        play(
            engine,
            [
                request(f"{count} {number} {length}", prompt, **each)
                for number, each in enumerate(asked)
                for length, prompt in enumerate(prompts)
            ],
        )
    assert engine.num_cold == 0


@pytest.fixture(scope="module")
def breaking(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A model that computes NaN where a prompt has a certain token."""
    folder, token_id = tmp_path_factory.mktemp("breaking"), 77
    shutil.copy(tiny / "config.json", folder)
    weights = load_file(tiny / "model.safetensors")
    weights["model.embed_tokens.weight"][token_id] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder, token_id


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_what_is_no_number_stays_with_its_request(
    breaking: tuple[Path, int], batch_invariant: bool
) -> None:
    path, token_id = breaking
    engine = load_engine(
        path,
        max_num_batched_tokens=16,
        batch_invariant=batch_invariant,
        enable_prefix_caching=False,
        # 1,536 bytes a token: blocks are soon used again.
        kv_cache_memory_bytes=160 * 1_536,
        **FLAGS,
    )
    prompt = [token for token in PROMPT if token != token_id]

    def good_ones() -> list[Request]:
        return [request(f"good {number}", prompt[: 9 + 5 * number]) for number in range(3)]

    expected = tokens_of(play(engine, good_ones()))
    # Enough of them that every block was theirs.
    bad = [request(f"bad {n}", [token_id] * 16, num_logprobs=1) for n in range(20)]
    bad.append(request("scored", [1, 2, token_id], max_tokens=0, num_prompt_logprobs=0))
    bad.append(request("embedded", [1, 2, token_id], max_tokens=0, pooling="mean"))
    for asked in (bad, bad[:3]):
        answers = play_with_errors(engine, [*asked, *good_ones()])
        for broken in asked:
            last = answers.pop(broken.request_id).last
            assert last is not None and last.finish_reason == "error"
            assert last.error is not None and "NaN" in last.error
        assert tokens_of(answers) == expected
    assert engine.load_now().kv_cache_usage == 0


def test_a_seed_gives_the_same_answer_whoever_shares_the_batch(tiny: Path) -> None:
    engine = load_engine(tiny, batch_invariant=True, **FLAGS)
    asked = {"temperature": 1.0, "seed": 9, "max_tokens": 12, "frequency_penalty": 0.3}
    alone = play(engine, [request("asked", **asked)])["asked"]
    others = [request(f"other {n}", PROMPT[n:], temperature=1, seed=n) for n in range(6)]
    together = play(engine, [*others[:3], request("asked", **asked), *others[3:]])["asked"]
    assert together.token_ids == alone.token_ids
    assert play(engine, [request("asked", **{**asked, "seed": 8})])["asked"] != alone
