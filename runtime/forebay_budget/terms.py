"""The memory arithmetic: what one GPU (or the CPU pod) needs for each term, in whole bytes.

What only a CPU has is told by cpu_terms.

Letters, as on the design page: L layers, h hidden, H heads, K KV heads, D head_dim, I intermediate,
V vocabulary, tp ranks, G inputs that share a scale. Every sum is rounded up. A layer without a
window beside others that have one makes every layer keep all tokens, so windows count only where
each layer has one.
"""

from dataclasses import dataclass, replace

from forebay_budget.inspection import PACKED_DTYPE, Inspection, ModelConfig
from forebay_budget.rounding import (
    GGML_GRIDS,
    ROUNDED_BITS,
    Grid,
    choose_grid,
    cut_steps,
    divides_groups,
    filling_elements,
    stored_grid,
)

MIB = 1024**2
GIB = 1024**3

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
KV_BITS = {
    **{name: 8 * num_bytes for name, num_bytes in DTYPE_BYTES.items()},
    "fp8": 8,
    "int8": 8,
    "int4": 4,
}
"""What a number takes in the KV cache, by the cache's dtype."""
KV_SCALE_BYTES = {"int8": 4, "int4": 4}
"""A float32 scale for each head of each token; fp8 and wider ones have none."""

MOST_PROPOSED_TOKENS = 64
"""Of a step of speculative decoding, over all requests: logits of more would take much memory, and
no machine that more requests keep busy has time for them."""

BLOCK_TOKENS = 16
"""The engine's KV blocks; a request takes whole ones."""

MOST_SHARDS = 8
"""Of tensor parallelism: it takes links that only the GPUs of one board have."""
CUDA_CONTEXT_BYTES = GIB // 2
GRAPHS_BYTES = GIB // 2
COMMUNICATION_BYTES = 15 * GIB // 100
COMMUNICATION_BYTES_PARALLEL = 6 * GIB // 10


@dataclass(frozen=True)
class Terms:
    """Where one GPU's memory (or the CPU pod's) goes."""

    weights_bytes: int
    kv_cache_bytes: int
    activation_bytes: int
    overhead_bytes: int
    draft_weights_bytes: int = 0
    draft_kv_cache_bytes: int = 0
    """Of a draft model, whose cache holds as many tokens; its activations come in turn."""

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.kv_cache_bytes
            + self.activation_bytes
            + self.overhead_bytes
            + self.draft_weights_bytes
            + self.draft_kv_cache_bytes
        )

    def with_draft(self, draft: "Terms") -> "Terms":
        """These of a model and, beside them, those of its draft model taken by itself."""
        return replace(
            self,
            activation_bytes=max(self.activation_bytes, draft.activation_bytes),
            draft_weights_bytes=draft.weights_bytes,
            draft_kv_cache_bytes=draft.kv_cache_bytes,
        )


def weights_bytes(
    inspection: Inspection,
    tp: int,
    dtype: str,
    quantization: str = "None",
    is_native: bool = False,
) -> int:
    """Bytes of one rank's weights as they are served: matrices as packed or rounded, all else in
    the dtype that runs, whatever dtype the files have.

    is_native: by a CPU's own kernels, for which a GGUF's quantised matrices stay codes, unless
    quantization rounds them anew, and scales are float16.
    """
    config, element = inspection.config, DTYPE_BYTES[dtype]
    coded = [
        group
        for group in inspection.weights
        if is_native
        and group.dtype in GGML_GRIDS
        # Embeddings are never rounded.
        and (group.kind == "embedding" or quantization not in ROUNDED_BITS)
    ]
    counts: dict[tuple[str, bool], int] = {}
    for group in inspection.weights:
        if group not in coded:
            key = group.kind, group.dtype == PACKED_DTYPE
            counts[key] = counts.get(key, 0) + group.num_elements
    rows = counts.get(("embedding", False), 0) // config.vocab_size
    padded = padded_vocabulary(config.vocab_size, tp) // tp
    total = counts.get(("replicated", False), 0) * element + rows * padded * element
    total += sum(
        GGML_GRIDS[group.dtype].num_bytes(_ceil(group.num_elements, tp), config.hidden_size)
        for group in coded
    )
    is_packed = ("sharded", True) in counts
    for packed in (True, False):
        sharded = _ceil(counts.get(("sharded", packed), 0), tp)
        if packed == is_packed:
            sharded += _copied_kv_elements(config, tp)
        if packed:
            grid = stored_grid(config)
            sharded += filling_elements(config, tp, sharded) + counts.get(("replicated", True), 0)
        else:
            grid = choose_grid(config, quantization, 2 if is_native else element)
        total += _matrix_bytes(config, sharded, element, grid)
    return total


def padded_vocabulary(vocab_size: int, tp: int) -> int:
    """Rows of an embedding over all ranks: as many on each, a multiple of 64."""
    return _ceil(vocab_size, 64 * tp) * 64 * tp


def own_vocabulary(vocab_size: int, tp: int) -> int:
    """Rows that one rank holds; a single one needs no padding."""
    return vocab_size if tp == 1 else padded_vocabulary(vocab_size, tp) // tp


def kv_token_bytes(config: ModelConfig, tp: int, kv_dtype: str) -> int:
    """Bytes that one token takes in one rank's KV cache: keys and values of every layer."""
    head_bytes = _ceil(config.head_dim * KV_BITS[kv_dtype], 8) + KV_SCALE_BYTES.get(kv_dtype, 0)
    return 2 * config.num_layers * _kv_heads(config, tp) * head_bytes


def activation_bytes(
    config: ModelConfig, tp: int, dtype: str, max_num_batched_tokens: int, max_num_sampled: int
) -> int:
    """Bytes of one layer's intermediates, or of the sampler's logits where those are more.

    max_num_sampled: requests of a step, and tokens that are proposed for them.
    """
    return max(
        batch_bytes(config, tp, dtype, max_num_batched_tokens),
        max_num_sampled * sampler_bytes_per_seq(config),
    )


def batch_bytes(config: ModelConfig, tp: int, dtype: str, max_num_batched_tokens: int) -> int:
    """Bytes of a layer's intermediates for one step's tokens."""
    heads = _ceil(config.num_heads, tp) + 2 * _kv_heads(config, tp)
    width = _inner_width(config, tp) + heads * config.head_dim + 3 * config.hidden_size
    return max_num_batched_tokens * width * DTYPE_BYTES[dtype]


def _inner_width(config: ModelConfig, tp: int) -> int:
    """Numbers a token takes within an MLP: gate, up and their product.

    A mixture adds what its experts take in and give out; experts take turns, and at worst all
    tokens choose the same.
    """
    sizes = (
        config.intermediate_size,
        config.expert_intermediate_size,
        config.shared_intermediate_size,
    )
    inner = 3 * _ceil(max(sizes), tp)
    return inner + 3 * config.hidden_size if config.num_experts else inner


def held_tokens(config: ModelConfig, num_tokens: int, num_step_tokens: int) -> int:
    """Tokens of cache that a request of num_tokens takes at most, in whole blocks.

    Where every layer has a window, what lies behind it is let go: it holds the window, what one
    step adds to it, and the block that the window begins in.
    """
    held = whole_blocks(num_tokens)
    if config.window is None:
        return held
    return min(held, whole_blocks(config.window - 1 + num_step_tokens) + BLOCK_TOKENS)


def whole_blocks(num_tokens: int) -> int:
    """Tokens of the blocks that so many tokens take."""
    return _ceil(num_tokens, BLOCK_TOKENS) * BLOCK_TOKENS


def sampler_bytes_per_seq(config: ModelConfig) -> int:
    """Bytes of one request's logits and their sorted copy, in float32 over the whole vocabulary."""
    return 2 * config.vocab_size * 4


def most_proposed_tokens(max_num_seqs: int, num_speculative_tokens: int) -> int:
    """The most tokens that a step tries, over all requests."""
    most = max(MOST_PROPOSED_TOKENS, num_speculative_tokens)
    return min(max_num_seqs * num_speculative_tokens, most)


def gpu_overhead_bytes(tp: int) -> int:
    """Bytes of one GPU that no tensor of ours holds: context, communication, captured graphs."""
    communication = COMMUNICATION_BYTES_PARALLEL if tp > 1 else COMMUNICATION_BYTES
    return CUDA_CONTEXT_BYTES + communication + GRAPHS_BYTES


def admissible_tensor_parallel_sizes(config: ModelConfig, quantization: str) -> list[int]:
    """The sizes from 1 to 8 that divide the model evenly; the vocabulary is padded instead."""
    return [tp for tp in range(1, MOST_SHARDS + 1) if _divides(config, tp, quantization)]


def describe_divided(config: ModelConfig, quantization: str) -> str:
    """What of a model tensor parallelism has to divide, to follow the model in brackets."""
    numbers = (
        ("{} heads", config.num_heads),
        ("{} KV heads", config.num_kv_heads),
        ("intermediate size {}", config.intermediate_size),
        ("experts of {}", config.expert_intermediate_size),
        ("a shared expert of {}", config.shared_intermediate_size),
    )
    words = [text.format(number) for text, number in numbers if number]
    if steps := cut_steps(config, quantization):
        groups = " or ".join(map(str, steps))
        words.append(f"weights that are quantised in groups of {groups}, which stay whole")
    return ", ".join(words)


def _divides(config: ModelConfig, tp: int, quantization: str) -> bool:
    inner_sizes = (
        config.intermediate_size,
        config.expert_intermediate_size,
        config.shared_intermediate_size,
    )
    if config.num_heads % tp or any(size % tp for size in inner_sizes):
        return False
    if config.num_kv_heads % tp and tp % config.num_kv_heads:
        return False
    return divides_groups(config, tp, quantization)


def _kv_heads(config: ModelConfig, tp: int) -> int:
    """KV heads of one rank: beyond K ranks they are copied, so more ranks buy no KV memory."""
    return max(1, _ceil(config.num_kv_heads, tp))


def _copied_kv_elements(config: ModelConfig, tp: int) -> int:
    """Elements of key and value matrices that a rank holds beyond its even share of them."""
    row = config.head_dim * config.hidden_size
    held, share = _kv_heads(config, tp) * row, config.num_kv_heads * row // tp
    return 2 * config.num_layers * (held - share)


def _matrix_bytes(
    config: ModelConfig, num_elements: int, element_bytes: int, grid: Grid | None
) -> int:
    if grid is None:
        return num_elements * element_bytes
    return grid.num_bytes(num_elements, config.hidden_size)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
