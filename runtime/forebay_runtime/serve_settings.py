"""What `forebay serve` was asked for, as the two values that engine and server are started with.

Checks what can be checked before anything slow is imported.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.parsing.choice import choose_reasoning_parser, choose_tool_parser
from forebay_runtime.server.options import DEFAULT_TERMINATION_LOG, ServeOptions

CPU_BATCH_TOKENS = 512
"""On a CPU a step of more takes seconds, in which every stream stands still."""


def to_engine_config(parsed: argparse.Namespace) -> EngineConfig:
    """The engine's flags.

    Raises: StartError if they contradict each other.
    """
    num_batched_tokens = parsed.max_num_batched_tokens
    if num_batched_tokens is None:
        num_batched_tokens = max(_default_batch_tokens(parsed.device), parsed.max_num_seqs)
    return EngineConfig(
        model_path=Path(parsed.model),
        device=parsed.device,
        dtype=parsed.dtype,
        max_model_len=parsed.max_model_len,
        max_num_seqs=parsed.max_num_seqs,
        max_num_batched_tokens=num_batched_tokens,
        kv_cache_memory_bytes=parsed.kv_cache_memory_bytes,
        gpu_memory_utilization=parsed.gpu_memory_utilization,
        tensor_parallel_size=parsed.tensor_parallel_size,
        pipeline_parallel_size=parsed.pipeline_parallel_size,
        rank_timeout_seconds=parsed.rank_timeout_seconds,
        quantization=parsed.quantization,
        kv_cache_dtype=parsed.kv_cache_dtype,
        block_size=parsed.block_size,
        scheduling_policy=parsed.scheduling_policy,
        enable_prefix_caching=parsed.enable_prefix_caching,
        long_prompt_tokens=parsed.long_prompt_tokens,
        max_long_prompts=parsed.max_long_prompts,
        async_scheduling=parsed.async_scheduling,
        batch_invariant=parsed.batch_invariant,
        enforce_eager=parsed.enforce_eager,
        compile_cache_dir=_cache_dir(parsed.compile_cache_dir),
        speculative=parsed.speculative_config,
    )


def _cache_dir(given: Path | None) -> Path | None:
    named = os.environ.get("FOREBAY_CACHE_DIR", "")
    return given or (Path(named) if named else None)


def _default_batch_tokens(device: str) -> int:
    return EngineConfig.max_num_batched_tokens if may_have_gpu(device) else CPU_BATCH_TOKENS


def may_have_gpu(device: str) -> bool:
    """A guess that imports no torch: where no GPU can be opened, the model runs on the CPU."""
    return device == "cuda" or (device == "auto" and any(Path("/dev").glob("nvidia[0-9]*")))


def to_options(parsed: argparse.Namespace, started_at: float) -> ServeOptions:
    """The server's flags; started_at is time.monotonic() of the process's start.

    Raises: StartError if a parser or a template is not there.
    """
    _check_answer_flags(parsed)
    termination_log = os.environ.get("FOREBAY_TERMINATION_LOG")
    return ServeOptions(
        served_model_name=parsed.served_model_name or _name_of(parsed.model),
        started_at=started_at,
        host=parsed.host,
        port=parsed.port,
        allowed_origins=parsed.allowed_origins,
        seed=parsed.seed,
        max_num_seqs=parsed.max_num_seqs,
        max_num_queued_reqs=parsed.max_num_queued_reqs,
        max_num_queued_tokens=parsed.max_num_queued_tokens,
        max_request_seconds=parsed.max_request_seconds,
        stream_interval=parsed.stream_interval,
        max_logprobs=parsed.max_logprobs,
        chat_template=parsed.chat_template,
        tool_call_parser=parsed.tool_call_parser,
        reasoning_parser=parsed.reasoning_parser,
        shutdown_timeout=parsed.shutdown_timeout,
        lame_duck_seconds=parsed.lame_duck_seconds,
        termination_log=Path(termination_log) if termination_log else DEFAULT_TERMINATION_LOG,
    )


def _check_answer_flags(parsed: argparse.Namespace) -> None:
    try:
        choose_tool_parser(None, parsed.tool_call_parser)
        choose_reasoning_parser(None, parsed.reasoning_parser)
    except ValueError as exc:
        raise StartError(str(exc)) from exc
    if parsed.chat_template is not None and not parsed.chat_template.is_file():
        raise StartError(f"--chat-template {parsed.chat_template} is not a file")


def _name_of(model: str) -> str:
    if model.startswith("hf://"):
        return model.removeprefix("hf://").partition("@")[0]
    path = Path(model).resolve()
    name = path.stem if path.suffix.lower() == ".gguf" else path.name
    return name.encode(errors="replace").decode()  # a file's name need not be UTF-8
