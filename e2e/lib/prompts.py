"""Requests whose right answer is known: `prompts.json`, which transformers_oracle.py wrote.

Every path is what transformers generates greedily in float32, and the two best logits are never
closer than `LEAST_GAP` along it, so that no rounding (which differs with the requests that share a
batch) can flip a token: an answer that differs is wrong, whoever else was served.
"""

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

LEAST_GAP = 1e-3
_DATA = Path(__file__).with_name("prompts.json")

Endpoint = Literal["chat", "completion"]


@dataclass(frozen=True)
class GreedyPath:
    """One prompt (for `chat`: the one user message) and the greedy path from it."""

    endpoint: Endpoint
    prompt: str
    pieces: tuple[str, ...]
    """The text that each token adds."""
    smallest_gap: float

    def text(self, num_tokens: int) -> str:
        """Return the right answer to this prompt with `max_tokens` of `num_tokens`."""
        if not 0 < num_tokens <= len(self.pieces):
            raise ValueError(f"{num_tokens} tokens were asked, {len(self.pieces)} are known")
        return "".join(self.pieces[:num_tokens])


@cache
def greedy_paths() -> tuple[GreedyPath, ...]:
    """Return every stored path, chat and completion prompts in turn."""
    return tuple(
        GreedyPath(**entry | {"pieces": tuple(entry["pieces"])})
        for entry in json.loads(_DATA.read_text())
    )


def write_paths(paths: list[GreedyPath]) -> None:
    """Replace the stored paths."""
    _DATA.write_text(json.dumps([asdict(path) for path in paths], indent=1) + "\n")
