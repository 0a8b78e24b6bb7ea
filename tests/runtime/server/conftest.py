"""What several tests of the server share."""

from collections.abc import Iterator
from typing import Any

import pytest
from transformers import AutoTokenizer

from server_process import ServerProcess, fake_server
from smollm2 import smollm2_path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server around the fake engine for whatever leaves it as it was; it takes 256 tokens."""
    with fake_server(tmp_path_factory.mktemp("server"), {"max_model_len": 256}) as server:
        server.wait_ready()
        yield server


@pytest.fixture(scope="session")
def smollm2_oracle() -> Any:
    """The `transformers` tokenizer of the real model's file; it takes seconds to load."""
    path = smollm2_path()
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
