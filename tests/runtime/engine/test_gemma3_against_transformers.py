"""Gemma 3 says, greedily and in float32, what transformers says, token for token."""

from collections.abc import Iterator
from typing import Any

import pytest

from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.engine import Engine
from forebay_runtime.request import Request, SamplingParams
from forebay_runtime.text.tokenizer import Tokenizer
from forebay_runtime.text_parts import read_text_parts
from gemma3 import gemma3_path, load_gemma3
from greedy import best_tokens, greedy_answers

PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n",
    "<start_of_turn>user\nName a colour.<end_of_turn>\n<start_of_turn>model\n",
    "日本の首都は",
)
NUM_TOKENS = 12
LONG_TOKENS = 700
"""More than the window of 512, so that most layers see only a part of it."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return read_text_parts(gemma3_path())[0]


@pytest.fixture(scope="module")
def engine(tokenizer: Tokenizer) -> Iterator[Engine]:
    config = EngineConfig(
        gemma3_path(), device="cpu", dtype="float32", max_model_len=1024, max_num_seqs=5
    )
    yield build_engine(config, tokenizer.eos_token_ids)


@pytest.fixture(scope="module")
def oracle() -> Any:
    return load_gemma3()


def test_greedy_answers_are_transformers(tokenizer: Tokenizer, engine: Engine, oracle: Any) -> None:
    prompts = {prompt: tokenizer.encode(prompt) for prompt in PROMPTS}
    story = tokenizer.encode("".join(f"Day {day}: it rained. " for day in range(200)))
    prompts["long"] = story[:LONG_TOKENS]
    answers = greedy_answers(engine, prompts, NUM_TOKENS)
    expected = {name: best_tokens(oracle, prompts[name], answers[name]) for name in prompts}
    assert answers == expected


def test_a_turns_end_ends_an_answer(tokenizer: Tokenizer, engine: Engine) -> None:
    (end_of_turn,) = tokenizer.encode("<end_of_turn>", add_special_tokens=False)
    assert engine.eos_token_ids == tokenizer.eos_token_ids == {1, end_of_turn}
    assert tokenizer.token_bytes(end_of_turn) == b""
    # Certain to come: at that bias no other token is as good.
    sampling = SamplingParams(9, temperature=0, logit_bias=((end_of_turn, 1e4),))
    engine.add(Request("turn", tokenizer.encode("Hello"), sampling))
    outputs = []
    while engine.has_work:
        outputs += engine.step()
    assert [output.finish_reason for output in outputs] == ["stop"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("Hello  world", id="two-spaces"),
        pytest.param(" leading and trailing ", id="spaces-around"),
        pytest.param("a\n\n\tb\r\n", id="lines-and-tabs"),
        pytest.param("naïve 😀👨‍👩‍👧 日本語 \x07", id="beyond-ascii"),
        pytest.param("<b>bold</b> 12345", id="tags-and-digits"),
    ],
)
def test_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == f"<bos>{text}"


def test_known_texts_have_the_published_ids(tokenizer: Tokenizer) -> None:
    # As transformers' converter of the same file gives them, which takes half a minute.
    assert tokenizer.encode("The capital of France is") == [2, 818, 5279, 529, 7001, 563]
    text = "    return 1\n\n\nx <td> naïve 日本語 🫠"
    ids = [140, 2060, 236743, 236770, 109, 236781, 236743, 175, 120362, 33375, 238582, 236743]
    assert tokenizer.encode(text, add_special_tokens=False) == [*ids, 253547]
