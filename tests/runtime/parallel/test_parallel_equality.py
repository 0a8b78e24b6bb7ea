"""Several ranks say what one process says, token by token, whatever the family and the spread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_play import Answer, load_engine, play, play_alone, tokens_of
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.request import Request, SamplingParams
from smollm2 import smollm2_path
from tiny_model import save_tiny

FLAGS: dict[str, Any] = {"max_num_seqs": 3, "max_num_batched_tokens": 16}
SIZES = {"hidden_size": 128, "num_attention_heads": 8, "num_key_value_heads": 2}
"""Two KV heads: over four ranks each is held twice. A vocabulary of 131 is padded to 256."""

MakeModel = Callable[..., Path]


@pytest.fixture(scope="module")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    made: dict[str, Path] = {}

    def make(family: str, **sizes: Any) -> Path:
        key = f"{family}{sizes}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp(family)
            save_tiny(made[key], family, **{**SIZES, **sizes})
        return made[key]

    return make


def requests(vocab_size: int = 131, num_tokens: int = 10) -> list[Request]:
    """One short, one that takes two steps to read, one that also wants its prompt scored."""
    kinds: list[tuple[int, dict[str, Any]]] = [
        (3, {}),
        (21, {}),
        (18, {"num_prompt_logprobs": 2}),
    ]
    return [
        Request(
            str(length),
            [(7 * place + length) % vocab_size for place in range(length)],
            SamplingParams(num_tokens, temperature=0, ignore_eos=True, num_logprobs=1, **wanted),
        )
        for length, wanted in kinds
    ]


def check_same(answers: dict[str, Answer], expected: dict[str, Answer]) -> None:
    for key, answer in expected.items():
        assert answers[key].token_ids == answer.token_ids
        logprobs = [step.logprob for step in answer.logprobs]
        assert [step.logprob for step in answers[key].logprobs] == pytest.approx(logprobs, abs=2e-4)


CASES = [
    pytest.param("llama", 2, 1, {}, id="dense"),
    pytest.param("llama", 4, 1, {"tie_word_embeddings": True}, id="KV-heads-held-twice-and-tied"),
    pytest.param("qwen2", 2, 1, {}, id="biases"),
    pytest.param("qwen3", 4, 1, {}, id="norms-of-heads"),
    pytest.param("gemma2", 2, 1, {}, id="softcap-and-window"),
    pytest.param("gemma3", 4, 1, {}, id="windows-and-two-ropes"),
    pytest.param("phi3", 2, 1, {}, id="fused-matrices"),
    pytest.param("mixtral", 2, 1, {}, id="mixture"),
    pytest.param("qwen2_moe", 4, 1, {}, id="mixture-with-a-shared-expert"),
    pytest.param("llama", 1, 3, {"num_hidden_layers": 4}, id="three-stages"),
    pytest.param("gemma3", 1, 2, {}, id="stages-that-differ-in-kinds-of-layers"),
    pytest.param("llama", 2, 2, {"tie_word_embeddings": True}, id="two-stages-of-two"),
]


@pytest.mark.parametrize(("family", "tp", "pp", "sizes"), CASES)
def test_greedy_answers_are_those_of_one_process(
    make_model: MakeModel,
    followers: Followers,
    family: str,
    tp: int,
    pp: int,
    sizes: dict[str, Any],
) -> None:
    path = make_model(family, **sizes)
    expected = play(load_engine(path, **FLAGS), requests())
    spread = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    check_same(play(load_engine(path, followers, **spread, **FLAGS), requests()), expected)


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2)], ids=["shards", "stages"])
def test_a_step_in_flight_carries_its_samples_to_every_rank(
    make_model: MakeModel, followers: Followers, tp: int, pp: int
) -> None:
    path = make_model("llama")
    expected = play(load_engine(path, **FLAGS), requests())
    spread = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    engine = load_engine(path, followers, async_scheduling=True, **spread, **FLAGS)
    check_same(play(engine, requests()), expected)


def test_bits_do_not_depend_on_company_where_the_order_of_ranks_is_kept(
    make_model: MakeModel, followers: Followers
) -> None:
    engine = load_engine(
        make_model("llama"), followers, tensor_parallel_size=4, batch_invariant=True, **FLAGS
    )
    alone = tokens_of(play_alone(engine, requests()))
    assert tokens_of(play(engine, requests())) == alone


def test_a_warm_engine_of_several_ranks_meets_nothing_cold_and_tells_the_largest_ranks_memory(
    make_model: MakeModel, followers: Followers
) -> None:
    engine = load_engine(
        make_model("llama"), followers, tensor_parallel_size=2, max_model_len=64, **FLAGS
    )
    engine.warm_up()
    play(engine, requests())
    assert engine.num_cold == 0
    terms = {term.name: term for term in engine.vram_terms}
    assert terms["weights"].measured_bytes == terms["weights"].planned_bytes
    assert terms["kv_cache"].measured_bytes == terms["kv_cache"].planned_bytes


@pytest.mark.component
def test_the_real_model_says_the_same_over_three_ranks(followers: Followers) -> None:
    """Nine heads, three KV heads and blocks of 32 numbers in GGUF, cut in three."""
    flags: dict[str, Any] = {"max_num_seqs": 3, "max_model_len": 64}
    expected = play(load_engine(smollm2_path(), **flags), requests(49_152, 6))
    engine = load_engine(smollm2_path(), followers, tensor_parallel_size=3, **flags)
    check_same(play(engine, requests(49_152, 6)), expected)
