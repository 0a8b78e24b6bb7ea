"""A tokenizer, a compiler for it, and a walker through what it compiles, for tests."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from forebay_runtime.structured import Compiled, StructureCompiler, StructureSpec
from forebay_runtime.text.tokenizer import Tokenizer
from structure_walk import Walker

SENTENCEPIECE: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>"]
    + [f"<0x{byte:02X}>" for byte in range(256)]
    + ["▁", "▁a", "▁{", "a", "b", "é", '"', "{", "}", ":", '{"', "true", "ab", "[INST]"],
    "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 13 + [3],
    "tokenizer.ggml.scores": [0.0] * 273,
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
}
"""Pieces with spaces in front, and bytes: 273 tokens as GGUF metadata."""


@dataclass
class Workbench:
    """What a test of structures needs."""

    tokenizer: Tokenizer
    vocab_size: int
    walker: Walker
    compile: Callable[[StructureSpec], Compiled]

    @cached_property
    def single_bytes(self) -> dict[int, int]:
        """The token of each byte that has one."""
        texts = ((id_, self.tokenizer.token_bytes(id_)) for id_ in range(self.vocab_size))
        return {text[0]: id_ for id_, text in texts if len(text) == 1}

    def build(self, kind: Any, source: Any = "") -> Compiled:
        """Compile one.

        Raises: StructureError.
        """
        return self.compile(StructureSpec(kind, source))


def build_workbench(tokenizer: Tokenizer, vocab_size: int) -> Iterator[Workbench]:
    """A fixture's body."""
    compiler = StructureCompiler(tokenizer, tokenizer.eos_token_ids, vocab_size)
    walker = Walker(tokenizer, tokenizer.eos_token_ids, vocab_size)
    with asyncio.Runner() as runner:
        yield Workbench(
            tokenizer, vocab_size, walker, lambda spec: runner.run(compiler.compile(spec))
        )
        compiler.close()
