"""Tokenizers of three kinds, and what compiles for each of them."""

from collections.abc import Iterator

import pytest

from fake_engine import VOCAB_SIZE, build_byte_tokenizer
from forebay_budget.gguf import read_gguf_header
from forebay_runtime.text.gguf_tokenizer import build_gguf_tokenizer
from forebay_runtime.text.tokenizer import Tokenizer
from smollm2 import smollm2_path
from structure_bench import SENTENCEPIECE, Workbench, build_workbench


@pytest.fixture(scope="session")
def smollm2_tokenizer() -> Tokenizer:
    return build_gguf_tokenizer(read_gguf_header(smollm2_path()).metadata)


@pytest.fixture(scope="module")
def smollm2(smollm2_tokenizer: Tokenizer) -> Iterator[Workbench]:
    """49,152 tokens, and a model with some rows more."""
    yield from build_workbench(smollm2_tokenizer, 49_160)


@pytest.fixture(scope="module")
def bytewise() -> Iterator[Workbench]:
    """A token a byte."""
    yield from build_workbench(build_byte_tokenizer(), VOCAB_SIZE)


@pytest.fixture(scope="module")
def sentencepiece() -> Iterator[Workbench]:
    """Pieces with spaces in front, and bytes."""
    yield from build_workbench(build_gguf_tokenizer(SENTENCEPIECE), 275)


@pytest.fixture(scope="module", params=["smollm2", "bytewise", "sentencepiece"])
def workbench(request: pytest.FixtureRequest) -> Workbench:
    bench: Workbench = request.getfixturevalue(request.param)
    return bench
