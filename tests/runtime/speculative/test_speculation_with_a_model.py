"""An engine that proposes tokens answers as one that does not, token by token, whatever happens."""

import random
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from forebay_budget.speculative_config import SpeculativeConfig
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.engine import Engine
from forebay_runtime.request import Output, Request, SamplingParams, Speculated
from forebay_runtime.scheduling.speculation import Speculation
from tiny_model import build_tiny, save_tiny

V = 131
NGRAM = SpeculativeConfig("ngram", 5, prompt_lookup_min=1, prompt_lookup_max=3)
TIGHT: dict[str, Any] = {"kv_cache_memory_bytes": 26 * 8 * 1_536}
"""26 blocks of 8 tokens, where five requests of up to 130 would like more."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder)
    return folder


@pytest.fixture(scope="module")
def similar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is often, and not always, of the same mind."""
    folder = tmp_path_factory.mktemp("similar")
    model = build_tiny()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.01 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    return folder


def load(path: Path, asked: SpeculativeConfig | None, **flags: Any) -> Engine:
    """A warm engine that proposes whether or not that is worth it."""
    sizes = {"max_num_seqs": 5, "max_num_batched_tokens": 48, "block_size": 8}
    flags = {"device": "cpu", "dtype": "float32", "batch_invariant": True, **sizes, **flags}
    config = EngineConfig(path, speculative=asked, **flags)
    engine = build_engine(config)
    engine.warm_up()
    torch.set_num_threads(1)
    speculation, limits = engine.scheduler.speculation, engine.scheduler.limits
    if speculation is not None:
        rules = replace(speculation.rules, adapts=False)
        engine.scheduler.speculation = Speculation(speculation.proposer, rules, limits)
    return engine


def requests(seed: int, number: int, **sampling: Any) -> list[Request]:
    """Prompts that repeat themselves and begin alike."""
    chance = random.Random(seed)
    shared = [chance.randrange(V) for _ in range(20)]
    made = []
    for index in range(number):
        words = [[chance.randrange(V) for _ in range(3)] for _ in range(3)]
        prompt = shared[: chance.choice([0, 17, 20])]
        for _ in range(chance.randrange(1, 20)):
            prompt = prompt + chance.choice(words)
        wishes = SamplingParams(
            chance.randrange(1, 40), **{"seed": index, "ignore_eos": True, **sampling}
        )
        made.append(Request(str(index), prompt, wishes))
    return made


def play(engine: Engine, asked: Iterable[Request], seed: int = 0) -> dict[str, list[Output]]:
    """Every request's outputs, the requests arriving between steps at random."""
    chance = random.Random(seed)
    waiting, outputs = list(asked), defaultdict(list)
    while waiting or engine.has_work:
        while waiting and (not engine.has_work or chance.random() < 0.4):
            engine.add(waiting.pop(0))
        for output in engine.step():
            outputs[output.request_id].append(output)
        engine.scheduler.check_integrity()
    return outputs


def told(outputs: dict[str, list[Output]]) -> dict[str, tuple[Any, ...]]:
    """Tokens, logprobs and the end of each."""
    return {
        name: (
            [token_id for output in given for token_id in output.token_ids],
            [each for output in given for each in output.logprobs],
            given[-1].finish_reason,
            given[-1].stop_token_id,
        )
        for name, given in outputs.items()
    }


def counts_of(engine: Engine) -> Speculated:
    counts = engine.load_now().speculated
    assert counts is not None
    return counts


WISHES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {},
    "cool and filtered": {"temperature": 0.3, "top_k": 20, "top_p": 0.9, "min_p": 0.02},
    "penalised": {
        "temperature": 0,
        "repetition_penalty": 1.05,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.05,
    },
    "ending within what is kept": {
        "temperature": 0,
        "stop_token_ids": frozenset(range(0, V, 4)),
        "min_tokens": 3,
    },
    "banned words": {"temperature": 0, "bad_words": tuple((a, a + 1) for a in range(0, V - 1, 2))},
    "scored": {"temperature": 0, "num_logprobs": 2},
}


@pytest.mark.parametrize("wishes", WISHES.values(), ids=WISHES)
@pytest.mark.parametrize("method", ["ngram", "draft_model"])
def test_answers_are_those_of_an_engine_that_proposes_nothing(
    tiny: Path, similar: Path, method: str, wishes: dict[str, Any]
) -> None:
    asked = NGRAM if method == "ngram" else SpeculativeConfig("draft_model", 3, str(similar))
    plain, proposing = load(tiny, None), load(tiny, asked, **TIGHT)
    expected = told(play(plain, requests(1, 16, **wishes)))
    assert told(play(proposing, requests(1, 16, **wishes))) == expected
    # Once more, over what the first time left in the prefix cache.
    assert told(play(proposing, requests(1, 16, **wishes), seed=1)) == expected
    load_now = proposing.load_now()
    assert load_now.num_preemptions > 0 or "stop_token_ids" in wishes
    assert load_now.num_prefix_hits > 0
    assert proposing.num_cold == 0
    counts = counts_of(proposing)
    if "num_logprobs" in wishes:
        assert counts.num_drafts == 0, "what is scored is sampled one after another"
    else:
        assert 0 < counts.num_kept_tokens < counts.num_proposed_tokens


def test_a_draft_model_that_is_the_model_is_always_right(tiny: Path) -> None:
    """Also after preemptions, over prefixes that others computed, and behind a step's budget."""
    engine = load(tiny, SpeculativeConfig("draft_model", 3, str(tiny)), **TIGHT)
    for seed in range(3):
        play(engine, requests(1, 16), seed)
    counts = counts_of(engine)
    assert engine.load_now().num_preemptions > 0
    assert counts.num_kept_tokens == counts.num_proposed_tokens > 100


def test_fewer_steps_are_run_where_guesses_are_kept(tiny: Path) -> None:
    [plain] = requests(1, 1, temperature=0)
    asked = SpeculativeConfig("draft_model", 3, str(tiny))
    engine = load(tiny, asked, max_num_batched_tokens=128)
    engine.add(Request("", plain.prompt_token_ids, SamplingParams(33, 0, ignore_eos=True)))
    sizes = []
    while engine.has_work:
        sizes += [len(output.token_ids) for output in engine.step()]
    # The prompt gives one; then each step its own and three more.
    assert [size for size in sizes if size] == [1] + [4] * 8


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param({"max_num_batched_tokens": 8}, id="steps-with-little-left"),
        pytest.param({"max_num_batched_tokens": 5}, id="steps-with-nothing-left"),
        pytest.param({"max_model_len": 6}, id="texts-shorter-than-a-guess"),
        pytest.param({"dtype": "float16", "max_num_batched_tokens": 8}, id="torch"),
    ],
)
@pytest.mark.parametrize("is_draft", [False, True], ids=["ngram", "draft"])
def test_it_starts_and_answers_alike_where_no_step_holds_all_guesses(
    tiny: Path, is_draft: bool, flags: dict[str, Any]
) -> None:
    asked = SpeculativeConfig("ngram", 16, None, 1, 2)
    if is_draft:
        asked = SpeculativeConfig("draft_model", 16, str(tiny))

    def answer(speculative: SpeculativeConfig | None) -> dict[str, tuple[Any, ...]]:
        greedy = SamplingParams(4, temperature=0)
        prompts = [Request(str(index), [3, 4], greedy) for index in range(5)]
        return told(play(load(tiny, speculative, **flags), prompts))

    assert answer(asked) == answer(None)


def test_numbers_of_the_start_count_the_draft_model(tiny: Path, similar: Path) -> None:
    config = EngineConfig(
        tiny,
        device="cpu",
        dtype="float32",
        max_model_len=64,
        speculative=SpeculativeConfig("draft_model", 3, str(similar)),
    )
    engine = build_engine(config)
    engine.warm_up()
    terms = {term.name: term for term in engine.vram_terms}
    for name in ("weights", "kv_cache"):
        # It is a model of the same sizes.
        assert replace(terms[f"draft_{name}"], name=name) == terms[name]


def test_a_draft_model_of_another_vocabulary_is_refused(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    save_tiny(other, vocab_size=140)
    with pytest.raises(StartError, match="140 tokens and the model one of 131"):
        load(tiny, SpeculativeConfig("draft_model", 3, str(other)))


def test_what_a_draft_model_cannot_be_read_as_is_told_of_it(tiny: Path) -> None:
    asked = SpeculativeConfig("draft_model", 3, str(tiny), quantization="awq")
    with pytest.raises(StartError, match="--speculative-config, the draft model .*tiny.*: --quant"):
        load(tiny, asked)


def test_a_draft_model_that_sees_what_a_window_lets_go_is_refused(
    tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    windowed = tmp_path_factory.mktemp("windowed")
    save_tiny(windowed, "mistral", sliding_window=16)
    with pytest.raises(StartError, match="attends to all tokens where the model keeps"):
        load(windowed, SpeculativeConfig("draft_model", 3, str(tiny)))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param({"async_scheduling": True}, "--async-scheduling", id="async"),
        pytest.param({"tensor_parallel_size": 2}, "method ngram", id="ranks"),
    ],
)
def test_what_excludes_each_other_is_refused(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError, match=message):
        EngineConfig(Path("x"), speculative=SpeculativeConfig("draft_model", 3, "y"), **flags)
