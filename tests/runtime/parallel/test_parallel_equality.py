"""Several ranks say what one process says, token by token, whatever the family and the spread."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_play import load_engine, play, play_alone, tokens_of
from forebay_budget.speculative_config import SpeculativeConfig
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.request import Request, SamplingParams
from parallel_play import FLAGS, check_same, check_spread, requests
from smollm2 import smollm2_path
from tiny_model import FAMILIES

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
    make_model: Callable[..., Path],
    followers: Followers,
    family: str,
    tp: int,
    pp: int,
    sizes: dict[str, Any],
) -> None:
    check_spread(make_model(family, **sizes), followers, tp, pp)


@pytest.mark.long
@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (4, 1), (1, 2), (2, 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_says_the_same_however_it_is_spread(
    make_model: Callable[..., Path], followers: Followers, family: str, tp: int, pp: int
) -> None:
    check_spread(make_model(family), followers, tp, pp)


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2)], ids=["shards", "stages"])
def test_a_step_in_flight_carries_its_samples_to_every_rank(
    make_model: Callable[..., Path], followers: Followers, tp: int, pp: int
) -> None:
    check_spread(make_model("llama"), followers, tp, pp, async_scheduling=True)


def test_bits_do_not_depend_on_company_where_the_order_of_ranks_is_kept(
    make_model: Callable[..., Path], followers: Followers
) -> None:
    engine = load_engine(
        make_model("llama"), followers, tensor_parallel_size=4, batch_invariant=True, **FLAGS
    )
    alone = tokens_of(play_alone(engine, requests()))
    assert tokens_of(play(engine, requests())) == alone


def test_a_warm_engine_of_several_ranks_meets_nothing_cold_and_tells_the_largest_ranks_memory(
    make_model: Callable[..., Path], followers: Followers
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


@pytest.mark.parametrize(("tp", "pp"), [(2, 1), (1, 2)], ids=["shards", "stages"])
def test_tokens_proposed_from_the_text_are_tried_on_all_ranks(
    make_model: Callable[..., Path], followers: Followers, tp: int, pp: int
) -> None:
    """Each prompt repeats itself; nothing is scored, as what is scored gets no proposals."""

    def asked() -> list[Request]:
        sampling = SamplingParams(24, temperature=0, ignore_eos=True)
        return [Request(str(n), [5 + n, 9, 2, 7] * 5, sampling) for n in range(3)]

    path, spread = make_model("llama"), {"tensor_parallel_size": tp, "pipeline_parallel_size": pp}
    proposing = SpeculativeConfig("ngram", 3, prompt_lookup_min=1, prompt_lookup_max=3)
    flags = {**FLAGS, "max_num_batched_tokens": 32}
    expected = play(load_engine(path, **flags), asked())
    engine = load_engine(path, followers, speculative=proposing, **spread, **flags)
    check_same(play(engine, asked()), expected)
    counts = engine.load_now().speculated
    assert counts is not None and counts.num_proposed_tokens > 0
