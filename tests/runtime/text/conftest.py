"""What says how the real model's text is cut into tokens."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from smollm2 import smollm2_path


@pytest.fixture(scope="session")
def smollm2_oracle() -> Any:
    """The `transformers` tokenizer of the real model's file; it takes seconds to load."""
    path = smollm2_path()
    return AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
