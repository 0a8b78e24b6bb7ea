"""How long a request may be, and how many KV blocks there are.

Pure arithmetic for assembly, which measures and builds. Where --max-model-len is not given, it is
the longest that fits, whatever that is; where it is given and does not fit, that is said. Imports
no torch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from forebay_budget.terms import most_proposed_tokens
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.scheduling.batch import Limits
from forebay_runtime.scheduling.blocks import num_blocks_in_window
from forebay_runtime.start.refusals import check_length

_MEAN_SHARE = 4
"""A request is taken to hold a quarter of what it may on average, as forebay_budget does."""


@dataclass(frozen=True)
class BlockShape:
    """A model's KV blocks: tokens and bytes in each, and the window where every layer has one."""

    num_tokens: int
    num_bytes: int
    window: int | None = None
    draft_bytes: int = 0
    """What the draft model's block of the same id takes beside it."""

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold num_tokens."""
        return -(-num_tokens // self.num_tokens)

    def num_blocks_at_once(self, num_tokens: int, num_step_tokens: int = 1) -> int:
        """The most blocks that a request of num_tokens holds at a time, in steps of so many."""
        num_blocks = self.num_blocks_for(num_tokens)
        if self.window is None:
            return num_blocks
        return min(num_blocks, num_blocks_in_window(self.window, num_step_tokens, self.num_tokens))

    def longest_in(self, num_blocks: int, most_tokens: int) -> int:
        """The longest request up to most_tokens that num_blocks hold."""
        if self.num_blocks_at_once(most_tokens) <= num_blocks:
            return most_tokens
        return min(most_tokens, num_blocks * self.num_tokens)


def choose_limits(config: EngineConfig, num_positions: int, shape: BlockShape) -> Limits:
    """The limits that flags and the model's positions allow; the memory may allow less.

    Raises: StartError if --max-model-len is more than the model or --kv-cache-memory-bytes allows,
    or if that holds nothing.
    """
    asked = config.max_model_len
    check_length(asked, num_positions)
    limits = Limits(
        config.max_num_seqs,
        config.max_num_batched_tokens,
        asked or num_positions,
        _most_proposed(config),
    )
    if config.kv_cache_memory_bytes is None:
        return limits
    num_blocks = config.kv_cache_memory_bytes // shape.num_bytes
    longest = shape.longest_in(num_blocks, limits.max_model_len)
    # A request of one token could not get an answer.
    least = asked or max(2, shape.num_tokens)
    if longest < least:
        raise StartError(
            f"--kv-cache-memory-bytes {config.kv_cache_memory_bytes} holds "
            f"{num_blocks * shape.num_tokens} tokens, too few for one request of {least}; raise it "
            f"to {shape.num_blocks_at_once(least) * shape.num_bytes} or lower --max-model-len"
        )
    return replace(limits, max_model_len=longest)


def _most_proposed(config: EngineConfig) -> int:
    """The most tokens that a step tries, over all requests."""
    if config.speculative is None:
        return 0
    return most_proposed_tokens(config.max_num_seqs, config.speculative.num_speculative_tokens)


def choose_num_blocks(limits: Limits, shape: BlockShape) -> int:
    """A CPU's default cache: one whole request, or for each a quarter of what it may hold."""
    num_blocks = shape.num_blocks_at_once(limits.max_model_len, limits.max_num_batched_tokens)
    return max(num_blocks, -(-num_blocks * limits.max_num_seqs // _MEAN_SHARE))


def fit_limits(config: EngineConfig, limits: Limits, num_blocks: int, shape: BlockShape) -> Limits:
    """The limits over a cache of num_blocks; what was not asked for gives way.

    Raises: StartError if --max-model-len is given and does not fit, or if next to nothing does.
    """
    longest = shape.longest_in(num_blocks, limits.max_model_len)
    if longest < (config.max_model_len or 2):
        raise StartError(
            f"The memory left holds {num_blocks * shape.num_tokens} tokens in its KV cache, too "
            f"few for one request of {config.max_model_len or 2}; raise --gpu-memory-utilization, "
            "give the process more memory, or lower --max-num-seqs, --max-num-batched-tokens or "
            "--max-model-len"
        )
    return replace(limits, max_model_len=longest)
