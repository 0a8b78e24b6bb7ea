"""The flags of `forebay serve`: by vLLM's names where vLLM has them, each explained.

Declared here; `serve_settings` turns what was given into what engine and server are started with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from forebay_budget.flag_numbers import number
from forebay_budget.rounding import QUANTIZATIONS, to_quantization
from forebay_budget.speculative_config import SpeculativeConfig, parse_speculative_config
from forebay_runtime.config import (
    BLOCK_SIZES,
    DEVICES,
    SCHEDULING_POLICIES,
    EngineConfig,
)
from forebay_runtime.number_formats import (
    DTYPES,
    KV_CACHE_DTYPES,
    to_kv_cache_dtype,
)
from forebay_runtime.serve_settings import CPU_BATCH_TOKENS
from forebay_runtime.server.options import ServeOptions

_LONGEST = ("auto", "-1")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL and every flag."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .gguf file, a folder with config.json and .safetensors files, a folder that holds "
        "one of these, or hf://org/name@revision",
    )
    _add_server_flags(parser)
    _add_engine_flags(parser)
    _add_parallel_flags(parser)
    _add_memory_flags(parser)
    _add_scheduling_flags(parser)
    _add_answer_flags(parser)
    _add_limit_flags(parser)


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="0.0.0.0", help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=number(int, 0, 65535), default=8000, help="port to listen on (%(default)s)"
    )
    group.add_argument(
        "--served-model-name",
        type=_text,
        metavar="NAME",
        help="name that clients ask for (the hub's name, or the file's or folder's)",
    )
    group.add_argument(
        "--allowed-origins",
        type=_texts,
        default=ServeOptions.allowed_origins,
        metavar="JSON",
        help="where pages come from whose scripts may ask, as '[\"https://chat.example\"]'; "
        "'[\"*\"]' is from anywhere (nowhere)",
    )


def _add_engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="what the model runs on; auto is a GPU where there is one (%(default)s)",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="what weights and activations are computed in; auto is the checkpoint's on a GPU, and "
        "on a CPU what its kernels are best with; float32 asks these to round nothing",
    )
    group.add_argument(
        "--max-model-len",
        type=_length,
        metavar="TOKENS",
        help="prompt and answer together; auto or -1 is as many as the model and the memory allow "
        "(auto)",
    )
    group.add_argument(
        "--quantization",
        type=to_quantization,
        choices=QUANTIZATIONS,
        default="None",
        metavar="METHOD",
        help="INT8 or INT4 rounds the layers' weights while they are read; None and Auto serve the "
        "checkpoint as it is, awq, gptq or compressed-tensors if it is that (%(default)s)",
    )
    group.add_argument(
        "--batch-invariant",
        action="store_true",
        help="give each request bit-equal numbers whoever shares its batch, so that the same seed "
        "gives the same answer: at some speed, but on a CPU's own kernels, which always do",
    )
    group.add_argument(
        "--enforce-eager",
        action="store_true",
        help="launch each kernel of a decode step, instead of replaying CUDA graphs: slower, with "
        "a shorter start and some memory saved",
    )
    group.add_argument(
        "--compile-cache-dir",
        type=Path,
        metavar="FOLDER",
        help="where a GPU's compiled kernels are kept, so that the next start, and other pods, "
        "find them ($FOREBAY_CACHE_DIR, or Triton's own folder)",
    )
    group.add_argument(
        "--seed",
        type=number(int, 0),
        metavar="N",
        help="where the seeds of requests without one come from, so that the same requests in the "
        "same order are answered alike (chance)",
    )


def _add_parallel_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("parallelism")
    group.add_argument(
        "--tensor-parallel-size",
        type=number(int, 1),
        default=EngineConfig.tensor_parallel_size,
        metavar="N",
        help="GPUs that share every layer of the model (%(default)s)",
    )
    group.add_argument(
        "--pipeline-parallel-size",
        type=number(int, 1),
        default=EngineConfig.pipeline_parallel_size,
        metavar="N",
        help="groups of so many GPUs over which the layers are shared out, for models that no "
        "tensor parallelism fits (%(default)s)",
    )
    group.add_argument(
        "--rank-timeout-seconds",
        type=number(float, 1),
        default=EngineConfig.rank_timeout_seconds,
        metavar="SECONDS",
        help="a rank that gives no sign of life for so long ends the server (%(default)g)",
    )


def _add_memory_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("memory")
    group.add_argument(
        "--gpu-memory-utilization",
        type=number(float, 0, 1),
        default=EngineConfig.gpu_memory_utilization,
        metavar="SHARE",
        help="share of the GPU's memory to use (%(default)s)",
    )
    group.add_argument(
        "--kv-cache-memory-bytes",
        type=number(int, 1),
        metavar="BYTES",
        help="the KV cache's exact size (what utilisation leaves)",
    )
    group.add_argument(
        "--kv-cache-dtype",
        type=to_kv_cache_dtype,
        choices=KV_CACHE_DTYPES,
        default="auto",
        help="what keys and values are kept in; auto is --dtype, and on a CPU float16 where that "
        "is auto too and the checkpoint is not in float32; fp8, int8 and int4 hold two to four "
        "times as many tokens (%(default)s)",
    )
    group.add_argument(
        "--block-size",
        type=number(int, 1),
        choices=BLOCK_SIZES,
        default=EngineConfig.block_size,
        metavar="TOKENS",
        help="tokens in a block of the KV cache, the unit in which requests take and share it: a "
        "power of two up to 256 (%(default)s)",
    )
    group.add_argument(
        "--enable-prefix-caching",
        action=argparse.BooleanOptionalAction,
        default=EngineConfig.enable_prefix_caching,
        help="let prompts that begin alike share what was computed for that beginning (on)",
    )


def _add_scheduling_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("scheduling")
    group.add_argument(
        "--max-num-seqs",
        type=number(int, 1),
        default=EngineConfig.max_num_seqs,
        metavar="N",
        help="requests in one batch (%(default)s)",
    )
    group.add_argument(
        "--max-num-batched-tokens",
        type=number(int, 1),
        metavar="TOKENS",
        help="tokens computed in one step; longer prompts are read in parts, between which running "
        f"answers go on ({EngineConfig.max_num_batched_tokens}, {CPU_BATCH_TOKENS} on a CPU)",
    )
    group.add_argument(
        "--scheduling-policy",
        choices=SCHEDULING_POLICIES,
        default=EngineConfig.scheduling_policy,
        help="who runs first: who came first, or whose priority is the smallest number "
        "(%(default)s)",
    )
    group.add_argument(
        "--long-prompt-tokens",
        type=number(int, 1),
        metavar="TOKENS",
        help="prompts of more tokens are long ones, for --max-long-prompts (none is)",
    )
    group.add_argument(
        "--max-long-prompts",
        type=number(int, 1),
        metavar="N",
        help="long prompts that are read at a time; shorter ones pass those that wait (no limit)",
    )
    group.add_argument(
        "--speculative-config",
        type=_speculation,
        metavar="JSON",
        help="propose tokens and try several of them in one step, with the answers of without it: "
        '\'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2, '
        '"prompt_lookup_max": 4}\' looks for them in the text so far, \'{"method": "draft_model", '
        '"model": MODEL, "num_speculative_tokens": 4}\' asks a smaller model of the same '
        "vocabulary (none)",
    )
    group.add_argument(
        "--async-scheduling",
        action=argparse.BooleanOptionalAction,
        default=EngineConfig.async_scheduling,
        help="schedule and launch each step while the one before it runs, so that the device never "
        "waits for the host (on a GPU, unless tokens are proposed; on a CPU both are the same "
        "processors)",
    )


def _add_answer_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--chat-template",
        type=Path,
        metavar="FILE",
        help="a Jinja file that turns chats into prompts (the model's own)",
    )
    group.add_argument(
        "--tool-call-parser",
        metavar="NAME",
        help="how the model writes tool calls: hermes, llama3_json or mistral (what its chat "
        "template shows)",
    )
    group.add_argument(
        "--enable-auto-tool-choice",
        action="store_true",
        help="taken for vLLM's sake: models that know tools may always choose them",
    )
    group.add_argument(
        "--reasoning-parser",
        metavar="NAME",
        help="how the model marks what it thinks before it answers: think, which deepseek_r1 and "
        "qwen3 mean too (what its chat template shows)",
    )
    group.add_argument(
        "--max-logprobs",
        type=number(int, 0),
        default=ServeOptions.max_logprobs,
        metavar="N",
        help="logprobs that a request may ask for at each token (%(default)s)",
    )
    group.add_argument(
        "--stream-interval",
        type=number(int, 1),
        default=ServeOptions.stream_interval,
        metavar="TOKENS",
        help="tokens sent in one event of a stream; more cost fewer events, and the first token is "
        "sent at once in any case (%(default)s)",
    )


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-num-queued-reqs",
        type=number(int, 0),
        metavar="N",
        help="requests that may wait; more are answered 429 (no limit)",
    )
    group.add_argument(
        "--max-num-queued-tokens",
        type=number(int, 1),
        metavar="TOKENS",
        help="prompt tokens that may wait to be read; more are answered 429 (no limit)",
    )
    group.add_argument(
        "--max-request-seconds",
        type=number(float, 0.001),
        metavar="SECONDS",
        help="a request that is not done by then ends with a timeout error, whether it waits or "
        "runs; its own timeout may be shorter (no limit)",
    )
    group.add_argument(
        "--shutdown-timeout",
        type=number(float, 0),
        default=ServeOptions.shutdown_timeout,
        metavar="SECONDS",
        help="what answers in progress get to end after the lame duck (%(default)g)",
    )
    group.add_argument(
        "--lame-duck-seconds",
        type=number(float, 0),
        default=ServeOptions.lame_duck_seconds,
        metavar="SECONDS",
        help="how long newcomers are served after SIGTERM (%(default)g)",
    )


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("the name is not UTF-8, as answers are") from None
    return text


def _texts(text: str) -> tuple[str, ...]:
    try:
        texts = json.loads(text)
    except (ValueError, RecursionError):
        texts = None
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON list of strings")
    return tuple(texts)


def _speculation(text: str) -> SpeculativeConfig:
    try:
        return parse_speculative_config(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _length(text: str) -> float | None:
    return None if text in _LONGEST else number(int, 1)(text)
