"""What compiles grammars for a token a byte."""

from collections.abc import Iterator

import pytest

from fake_engine import VOCAB_SIZE, build_byte_tokenizer
from structure_bench import Workbench, build_workbench


@pytest.fixture(scope="module")
def workbench() -> Iterator[Workbench]:
    yield from build_workbench(build_byte_tokenizer(), VOCAB_SIZE)
