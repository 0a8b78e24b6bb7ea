"""What an engine is started with: one frozen value, never changed after.

Called by the command line (which fills it) and by the engine (which reads it). Imports no torch, so
that flags are checked before anything slow is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from forebay_budget.rounding import QUANTIZATIONS
from forebay_budget.speculative_config import SpeculativeConfig
from forebay_runtime.number_formats import DTYPES, KV_CACHE_DTYPES

DEVICES = ("auto", "cpu", "cuda")
SCHEDULING_POLICIES = ("fcfs", "priority")
BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class StartError(ValueError):
    """The engine cannot start as asked; the message is one sentence that leads to the cause."""


@dataclass(frozen=True)
class EngineConfig:
    """The engine's flags, by vLLM's names.

    max_model_len: prompt and completion together; None means the longest that the model and the KV
    cache allow, whatever that is.
    kv_cache_memory_bytes: the KV cache's exact size; None means a default on a CPU, and on a GPU
    what gpu_memory_utilization leaves beside weights and activations.
    quantization: INT8 or INT4 rounds the layers' matrices as they are read; None and Auto serve the
    checkpoint as it is, quantised or not.
    kv_cache_dtype: what keys and values are kept in; auto is dtype, or on a CPU what
    forebay_budget.terms.cpu_kv_dtype says. dtype: on a CPU's own kernels, that of plain matrices;
    float32 also keeps products' inputs from being rounded.
    tensor_parallel_size: ranks, a GPU each, that share every layer; pipeline_parallel_size: groups
    of such ranks that share the layers out. rank_timeout_seconds: a rank that gives no sign of life
    for so long is lost.
    block_size: tokens in a KV block.
    scheduling_policy: whose turn it is: by arrival (fcfs), or by the requests' priority.
    enable_prefix_caching: prompts that begin alike share the KV blocks of what they share.
    long_prompt_tokens: prompts of more tokens are long, and of these only max_long_prompts are read
    at a time, so that others pass them; None means that none is long.
    async_scheduling: each step is launched while the one before it runs; None means on a GPU only.
    batch_invariant: a request's numbers are bit-equal whoever shares its batch, at some speed.
    speculative: how tokens are proposed that the model then tries several of in one step; None
    for one token a step.
    compile_cache_dir: where compiled kernels are kept for the next start, and for other pods; None:
    where Triton keeps them.
    enforce_eager: a GPU is told of each kernel of a decode step, instead of replaying a graph.
    """

    model_path: Path
    device: str = "auto"
    dtype: str = "auto"
    max_model_len: int | None = None
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 2048
    kv_cache_memory_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    rank_timeout_seconds: float = 30.0
    quantization: str = "None"
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    scheduling_policy: str = "fcfs"
    enable_prefix_caching: bool = True
    long_prompt_tokens: int | None = None
    max_long_prompts: int | None = None
    async_scheduling: bool | None = None
    batch_invariant: bool = False
    enforce_eager: bool = False
    compile_cache_dir: Path | None = None
    speculative: SpeculativeConfig | None = None

    @property
    def num_ranks(self) -> int:
        """Processes that share the model, a GPU each where it runs on GPUs."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def __post_init__(self) -> None:
        """Refuse what no model and no device could make right.

        Raises: StartError naming the flag, what was asked and what is possible.
        """
        self._check_choices()
        self._check_sizes()
        self._check_long_prompts()
        self._check_speculation()

    def _check_choices(self) -> None:
        for flag, value, possible in (
            ("--device", self.device, DEVICES),
            ("--dtype", self.dtype, DTYPES),
            ("--kv-cache-dtype", self.kv_cache_dtype, KV_CACHE_DTYPES),
            ("--quantization", self.quantization, QUANTIZATIONS),
            ("--scheduling-policy", self.scheduling_policy, SCHEDULING_POLICIES),
            ("--block-size", self.block_size, BLOCK_SIZES),
        ):
            if value not in possible:
                raise StartError(
                    f"{flag} {value} is not supported by this runtime; "
                    f"choose one of {', '.join(map(str, possible))}"
                )

    def _check_sizes(self) -> None:
        for flag, value in (
            ("--max-model-len", self.max_model_len),
            ("--max-num-seqs", self.max_num_seqs),
            ("--max-num-batched-tokens", self.max_num_batched_tokens),
            ("--kv-cache-memory-bytes", self.kv_cache_memory_bytes),
            ("--long-prompt-tokens", self.long_prompt_tokens),
            ("--max-long-prompts", self.max_long_prompts),
            ("--tensor-parallel-size", self.tensor_parallel_size),
            ("--pipeline-parallel-size", self.pipeline_parallel_size),
            ("--rank-timeout-seconds", self.rank_timeout_seconds),
        ):
            if value is not None and value < 1:
                raise StartError(f"{flag} {value} is too small; it must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise StartError(
                f"--max-num-batched-tokens {self.max_num_batched_tokens} is below --max-num-seqs "
                f"{self.max_num_seqs}, so not every running request would get a token each step; "
                "raise the former or lower the latter"
            )
        if not 0 < self.gpu_memory_utilization <= 1:
            raise StartError(
                f"--gpu-memory-utilization {self.gpu_memory_utilization} is outside (0, 1]"
            )

    def _check_long_prompts(self) -> None:
        if self.max_long_prompts is not None and self.long_prompt_tokens is None:
            raise StartError(
                f"--max-long-prompts {self.max_long_prompts} limits nothing without "
                "--long-prompt-tokens, which says from where on a prompt is long; set both"
            )
        if self.long_prompt_tokens is not None and self.max_long_prompts is None:
            raise StartError(
                f"--long-prompt-tokens {self.long_prompt_tokens} changes nothing without "
                "--max-long-prompts, which says how many long prompts are read at a time; set both"
            )

    def _check_speculation(self) -> None:
        if self.speculative is None:
            return
        if self.async_scheduling:
            raise StartError(
                "--async-scheduling launches a step before it is known how many proposed tokens "
                "the one before it keeps; leave it or --speculative-config out"
            )
        if self.speculative.method == "draft_model" and self.num_ranks > 1:
            raise StartError(
                "--speculative-config with a draft model needs --tensor-parallel-size and "
                "--pipeline-parallel-size 1; choose method ngram, which needs no second model"
            )
