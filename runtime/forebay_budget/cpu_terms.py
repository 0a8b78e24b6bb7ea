"""What the memory of a CPU pod has that a GPU's has not; letters and rounding as in `terms`.

A CPU's own kernels run a step as one program over buffers of its own; what is no program (a mixture
of experts, rounded activations, or another way of computing) goes by torch's operators, which need
working memory.
"""

from forebay_budget.inspection import ModelConfig
from forebay_budget.terms import MIB, batch_bytes, kv_token_bytes, sampler_bytes_per_seq

CPU_PROCESS_BYTES = 640 * MIB
"""The interpreter with torch and the server.

Measured on x86-64 (torch 2.15, its CUDA build, 2 threads), resident beside weights, cache and
activations after 96 requests, 32 at a time, with scores and structured output, both processes:
679 MiB for SmolLM2-135M (49,152 tokens), of which 270 are mapped libraries. What a vocabulary adds
is counted apart.
"""
CPU_TORCH_BYTES = 128 * MIB
"""What torch keeps for its operators where these run the model."""
CPU_BYTES_PER_TOKEN_ID = 2_048
"""A vocabulary's tokenizer, and its tries for structured output in the server and in the process
that tries structures: SmolLM2 and Gemma 3 270M differ by 1.8 KiB a token."""
LOAD_BYTES_PER_ELEMENT = 8
"""What loading holds beside the weights for each element of the largest product: a second copy in
float32 while it is rounded, or brought into the layout that torch is fastest with, and as much
again."""
LOAD_BYTES_PER_PACKED_ELEMENT = 4
"""The same where a CPU's own kernels take numbers as they are: what was read, until it is packed.
Codes of a GGUF take a byte, another while matrices are put together, and the file's own."""
CPU_GATHERED_COPIES = 2
"""Attention on a CPU gathers one layer's keys and values; sequences that share a call are padded
to the longest, at most twice as long as the shortest."""
CPU_MASK_BYTES = 8
"""For each pair of a step's token and a key: a boolean and a float32, and room for the sum."""


def cpu_kv_dtype(config: ModelConfig, dtype: str) -> str:
    """What keys and values are kept in on a CPU by default; dtype as it was asked, perhaps auto.

    A CPU computes in float32 and reads the cache in any format: float16 halves what attention
    reads, and rounds far less than weights of 16 bits or fewer did.
    """
    if dtype != "auto":
        return dtype
    return "float32" if config.dtype == "float32" else "float16"


def is_native(dtype: str) -> bool:
    """Do a CPU's own kernels run a model whose dtype was asked like this? None keeps float16."""
    return dtype != "float16"


def is_program(config: ModelConfig, dtype: str) -> bool:
    """Is a step of a model that one process holds a program of these kernels?"""
    return is_native(dtype) and not config.num_experts and not config.quantizes_activations


def program_bytes(config: ModelConfig, max_num_batched_tokens: int, max_num_seqs: int) -> int:
    """Bytes of a program's buffers, which stay, and of what the sampler makes of its logits."""
    buffers = batch_bytes(config, 1, "float32", max_num_batched_tokens)
    return buffers + max_num_seqs * sampler_bytes_per_seq(config)


def cpu_overhead_bytes(
    config: ModelConfig, working_bytes: int, *, is_native: bool, is_rounded: bool
) -> int:
    """Bytes of a CPU pod beside weights, cache and activations.

    That is the process, and loading's peak as far as it is above what cache and activations
    (working_bytes) take later. is_rounded: by quantization, while weights are read.
    """
    loading = _load_bytes(config, is_native, is_rounded)
    return cpu_process_bytes(config, is_native) + max(0, loading - working_bytes)


def _load_bytes(config: ModelConfig, is_native: bool, is_rounded: bool) -> int:
    heads = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
    inner = max(config.intermediate_size, config.expert_intermediate_size)
    is_packed = is_native and not is_rounded
    each = LOAD_BYTES_PER_PACKED_ELEMENT if is_packed else LOAD_BYTES_PER_ELEMENT
    # Embeddings are never rounded; torch reads a tied one into its place, and leaves it as it is.
    of_vocabulary = LOAD_BYTES_PER_PACKED_ELEMENT if is_native else LOAD_BYTES_PER_ELEMENT
    if config.tie_word_embeddings and not is_native:
        of_vocabulary = 0
    return config.hidden_size * max(config.vocab_size * of_vocabulary, max(2 * inner, heads) * each)


def cpu_process_bytes(config: ModelConfig, is_native: bool) -> int:
    """Bytes of a CPU pod's processes that no tensor of ours holds."""
    process = CPU_PROCESS_BYTES + config.vocab_size * CPU_BYTES_PER_TOKEN_ID
    return process if is_native else process + CPU_TORCH_BYTES


def cpu_attention_token_bytes(
    config: ModelConfig, dtype: str, kv_dtype: str, max_num_batched_tokens: int
) -> int:
    """Working memory of attention for each cached token: what is gathered, and the mask's row.

    What is gathered in another dtype is widened, values while the widened keys are held.
    The mask is as long as one request; counted for each cached token, it is never too little.
    """
    gathered = kv_token_bytes(config, 1, kv_dtype)
    if kv_dtype != dtype:
        gathered += kv_token_bytes(config, 1, dtype) * 3 // 2
    per_layer = -(-CPU_GATHERED_COPIES * gathered // config.num_layers)
    return per_layer + max_num_batched_tokens * CPU_MASK_BYTES
