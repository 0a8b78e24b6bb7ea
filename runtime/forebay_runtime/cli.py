"""The `forebay` command: serve a model, size one, or look into one.

`budget` and `inspect` belong to forebay_budget and run on the standard library alone; what `serve`
needs is imported only when it is asked for, and torch only when the flags were found good.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from forebay_runtime.config import DEVICES, DTYPES, EngineConfig, StartError
from forebay_runtime.server.options import DEFAULT_TERMINATION_LOG, ServeOptions

_BUDGET_COMMANDS = {
    "budget": "show how a model's memory splits, and on what it would fit",
    "inspect": "read a model's headers without loading its weights",
}
_SERVE_EPILOG = """\
SIGTERM drains: newcomers are served for --lame-duck-seconds more, then get 503, and what is in
progress is finished within --shutdown-timeout. A second signal ends the process at once.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    started_at = time.monotonic()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0] in _BUDGET_COMMANDS:
        from forebay_budget.cli import main as budget_main

        return budget_main(arguments)
    parsed = _build_parser().parse_args(arguments)
    if parsed.command != "serve":
        _build_parser().print_help()
        return 2
    return _serve(parsed, started_at)


class _Parser(argparse.ArgumentParser):
    """One sentence about what was wrong, instead of a screenful of usage before it."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        message = message.removeprefix("argument ")
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="forebay", description="Serve large language models, sized and drained.")
    version = importlib.metadata.version("forebay")
    parser.add_argument("--version", action="version", version=f"forebay {version}")
    commands = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for name, text in _BUDGET_COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    serve = commands.add_parser(
        "serve",
        help="serve a model over OpenAI's API",
        description="Serve a model over OpenAI's API.",
        epilog=_SERVE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_server_flags(serve)
    _add_engine_flags(serve)
    _add_limit_flags(serve)
    return parser


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a .gguf file, a folder with config.json and .safetensors files, a folder that holds "
        "one of these, or hf://org/name@revision",
    )
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="0.0.0.0", help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=_number(int, 0, 65535), default=8000, help="port to listen on (%(default)s)"
    )
    group.add_argument(
        "--served-model-name",
        type=_text,
        metavar="NAME",
        help="name that clients ask for (the hub's name, or the file's or folder's)",
    )


def _add_engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument("--device", choices=DEVICES, default="auto", help="(%(default)s)")
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="what weights and activations are computed in; auto is the checkpoint's on a GPU, "
        "float32 on a CPU",
    )
    group.add_argument(
        "--max-model-len",
        type=_number(int, 1),
        metavar="TOKENS",
        help="prompt and answer together (as many as the model and the memory allow)",
    )
    group.add_argument(
        "--max-num-seqs",
        type=_number(int, 1),
        default=EngineConfig.max_num_seqs,
        metavar="N",
        help="requests in one batch (%(default)s)",
    )
    group.add_argument(
        "--max-num-batched-tokens",
        type=_number(int, 1),
        default=EngineConfig.max_num_batched_tokens,
        metavar="TOKENS",
        help="tokens computed in one step (%(default)s)",
    )
    _add_memory_flags(group)


def _add_memory_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--gpu-memory-utilization",
        type=_number(float, 0, 1),
        default=EngineConfig.gpu_memory_utilization,
        metavar="SHARE",
        help="share of the GPU's memory to use (%(default)s)",
    )
    group.add_argument(
        "--kv-cache-memory-bytes",
        type=_number(int, 1),
        metavar="BYTES",
        help="the KV cache's exact size (what utilisation leaves)",
    )
    group.add_argument(
        "--tensor-parallel-size", type=_number(int, 1), default=1, metavar="N", help="(%(default)s)"
    )
    group.add_argument("--quantization", default="None", metavar="METHOD", help="(%(default)s)")
    group.add_argument("--kv-cache-dtype", choices=DTYPES, default="auto", help="(%(default)s)")


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-num-queued-reqs",
        type=_number(int, 0),
        metavar="N",
        help="requests that may wait; more are answered 429 (no limit)",
    )
    group.add_argument(
        "--max-num-queued-tokens",
        type=_number(int, 1),
        metavar="TOKENS",
        help="prompt tokens that may wait to be read; more are answered 429 (no limit)",
    )
    group.add_argument(
        "--shutdown-timeout",
        type=_number(float, 0),
        default=ServeOptions.shutdown_timeout,
        metavar="SECONDS",
        help="what answers in progress get to end after the lame duck (%(default)g)",
    )
    group.add_argument(
        "--lame-duck-seconds",
        type=_number(float, 0),
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


def _number(
    kind: type[int] | type[float], least: float, most: float = math.inf
) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            word = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {word}") from None
        if not least <= value <= most or math.isinf(value):
            bounds = f"at least {least:g}" if math.isinf(most) else f"from {least:g} to {most:g}"
            raise argparse.ArgumentTypeError(f"{text} is out of range; it must be {bounds}")
        return value

    return parse


def _serve(parsed: argparse.Namespace, started_at: float) -> int:
    # Until the server owns the signal there is nothing to drain; and in a container this process
    # is the first one, which the kernel would not end by a signal that it does not handle.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    try:
        config = _to_engine_config(parsed)
    except StartError as exc:
        print(f"forebay serve: {exc}", file=sys.stderr)
        return 2
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    # Its warnings are of what clients sent, and of packages that it could do with.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    options = _to_options(parsed, started_at)
    try:
        from forebay_runtime.server.loader import load_model
        from forebay_runtime.server.process import leave, run_server
    except ModuleNotFoundError as exc:
        message = f"{exc.name} is not installed; serving needs `pip install 'forebay[runtime]'`"
        print(f"forebay serve: {message}", file=sys.stderr)
        return 2
    leave(run_server(options, lambda: load_model(parsed.model, config)))


def _to_engine_config(parsed: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        model_path=Path(parsed.model),
        device=parsed.device,
        dtype=parsed.dtype,
        max_model_len=parsed.max_model_len,
        max_num_seqs=parsed.max_num_seqs,
        max_num_batched_tokens=parsed.max_num_batched_tokens,
        kv_cache_memory_bytes=parsed.kv_cache_memory_bytes,
        gpu_memory_utilization=parsed.gpu_memory_utilization,
        tensor_parallel_size=parsed.tensor_parallel_size,
        quantization=parsed.quantization,
        kv_cache_dtype=parsed.kv_cache_dtype,
    )


def _to_options(parsed: argparse.Namespace, started_at: float) -> ServeOptions:
    termination_log = os.environ.get("FOREBAY_TERMINATION_LOG")
    return ServeOptions(
        served_model_name=parsed.served_model_name or _name_of(parsed.model),
        started_at=started_at,
        host=parsed.host,
        port=parsed.port,
        max_num_seqs=parsed.max_num_seqs,
        max_num_queued_reqs=parsed.max_num_queued_reqs,
        max_num_queued_tokens=parsed.max_num_queued_tokens,
        shutdown_timeout=parsed.shutdown_timeout,
        lame_duck_seconds=parsed.lame_duck_seconds,
        termination_log=Path(termination_log) if termination_log else DEFAULT_TERMINATION_LOG,
    )


def _name_of(model: str) -> str:
    if model.startswith("hf://"):
        return model.removeprefix("hf://").partition("@")[0]
    path = Path(model).resolve()
    name = path.stem if path.suffix.lower() == ".gguf" else path.name
    return name.encode(errors="replace").decode()  # a file's name need not be UTF-8


if __name__ == "__main__":
    sys.exit(main())
