"""The commands `budget` and `inspect`, of `forebay` and of `python -m forebay_budget`.

Exit status: 0 where the model fits (or was inspected), 1 where it does not fit or cannot be
inspected, 2 for wrong usage and, with `budget`, for a model that cannot be read.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from forebay_budget.checkpoint import inspect_model
from forebay_budget.demand import Demand
from forebay_budget.flag_numbers import number, share
from forebay_budget.inspection import ModelError
from forebay_budget.quantity import parse_quantity
from forebay_budget.report import to_document, to_text
from forebay_budget.sizing import Fit, Misfit, size
from forebay_budget.speculative_config import SpeculativeConfig, parse_speculative_config

_MAX_ERROR_CHARS = 2_000
"""Of an inspection's message: whatever a model's files say, it fits a termination message."""

_COUNT = number(int, 1, 10**12)

_MODEL_HELP = (
    "a .gguf file, a folder with config.json and .safetensors files, or "
    "hf://organisation/name[@revision]"
)

_BUDGET_DESCRIPTION = """\
Show how a model's memory splits: the fewest GPUs that it fits on, what each part
takes, and how many requests run at once; or what it lacks, and what would fit.
Only the model's headers are read: no weights, no GPU, no cluster."""

_BUDGET_EPILOG = """\
Sizes are written like 24Gi, 512Mi or 16G.

examples:
  forebay budget ./SmolLM2-135M --gpu-memory 24Gi
  forebay budget hf://mistralai/Mistral-7B-Instruct-v0.3 --gpu-memory 16Gi --max-model-len 8192
  forebay budget ./model.gguf --device cpu --vram-budget 2Gi --output json

exit status: 0 it fits, 1 it does not, 2 wrong usage or a model that cannot be read"""

FLAGS: dict[str, str] = {
    **{field.name: f"--{field.name.replace('_', '-')}" for field in fields(Demand)},
    "gpu_memory_bytes": "--gpu-memory",
    "budget_bytes": "--vram-budget",
    "max_gpus_per_node": "--gpus-per-node",
    "num_speculative_tokens": "--speculative-config",
    "draft": "--speculative-config",
    "draft_quantization": "--speculative-config",
}
"""How messages name a Demand's fields to someone at a command line."""


class _Parser(argparse.ArgumentParser):
    """Answers wrong usage with one sentence."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2."""
        self.exit(2, f"{self.prog}: {message.removeprefix('argument ')}; see {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status."""
    arguments = _build_parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.run
    return command(arguments)


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="forebay", description="Size a model, or look into one, by its headers.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_budget(
        commands.add_parser(
            "budget",
            usage="%(prog)s MODEL --gpu-memory SIZE [options]\n"
            "       %(prog)s MODEL --device cpu [options]",
            help="show how a model's memory splits, and on what it would fit",
            description=_BUDGET_DESCRIPTION,
            epilog=_BUDGET_EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _add_inspect(
        commands.add_parser(
            "inspect",
            help="read a model's headers without loading its weights",
            description="Print what sizing needs to know about a model, as one line of JSON. Only "
            "headers are read. HF_ENDPOINT names another hub, HF_TOKEN opens private models.",
            epilog="Exit status: 0 it was inspected, 1 it was not (the line is then "
            '{"error": {"reason": ..., "message": ...}}), 2 wrong usage.',
        )
    )
    return parser


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    parser.add_argument(
        "--termination-message",
        metavar="FILE",
        type=Path,
        help="also write the line to this file (a container's termination log)",
    )
    parser.set_defaults(run=_inspect)


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=_MODEL_HELP)
    _add_memory_flags(parser.add_argument_group("memory"))
    _add_request_flags(parser.add_argument_group("requests"))
    _add_format_flags(parser.add_argument_group("number formats"))
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="how to print; default: text"
    )
    parser.set_defaults(run=_budget)


def _add_memory_flags(memory: argparse._ArgumentGroup) -> None:
    memory.add_argument(
        "--device",
        type=str.lower,
        choices=("gpu", "cpu"),
        default="gpu",
        help="where it would run; default: gpu",
    )
    memory.add_argument(
        "--gpu-memory",
        dest="gpu_memory_bytes",
        metavar="SIZE",
        type=_size,
        help="memory of one GPU, as 24Gi; says nothing with --device cpu",
    )
    memory.add_argument(
        "--gpus-per-node",
        dest="max_gpus_per_node",
        metavar="N",
        type=_COUNT,
        default=8,
        help="most GPUs used; default: 8",
    )
    memory.add_argument(
        "--vram-budget",
        dest="budget_bytes",
        metavar="SIZE",
        type=_size,
        help="most memory that one replica may take over all its GPUs; default: 95%% of each. "
        "With --device cpu: the pod's memory; default: what it needs",
    )
    memory.add_argument(
        "--gpu-memory-utilization",
        metavar="SHARE",
        type=share,
        help="most of each GPU that may be used, above 0 and at most 1; default: 0.95",
    )
    memory.add_argument(
        "--tensor-parallel-size",
        metavar="N",
        type=_COUNT,
        help="GPUs that share every layer, 1 to 8; default: the fewest that fit",
    )
    memory.add_argument(
        "--pipeline-parallel-size",
        metavar="N",
        type=_COUNT,
        help="groups of so many GPUs that the layers go over; default: 1, or the fewest that fit "
        "where no tensor parallelism does",
    )


def _add_request_flags(load: argparse._ArgumentGroup) -> None:
    load.add_argument(
        "--max-model-len",
        metavar="N",
        type=_COUNT,
        help="most tokens of a request, prompt and answer; default: the model's context, up to "
        "32768 (8192 on a cpu) and as far as it fits",
    )
    load.add_argument(
        "--max-num-seqs",
        metavar="N",
        type=_COUNT,
        help="most requests at once; default: as many as fit, up to 256 (8 on a cpu)",
    )
    load.add_argument(
        "--mean-tokens",
        metavar="N",
        type=_COUNT,
        help="mean tokens of a request; default: a quarter of the longest",
    )
    load.add_argument(
        "--max-num-batched-tokens",
        metavar="N",
        type=_COUNT,
        help="most tokens of one step; default: 2048 (512 on a cpu)",
    )
    load.add_argument(
        "--speculative-config",
        metavar="JSON",
        type=_speculation,
        help="how tokens are proposed, as forebay serve takes it; a draft model's weights and KV "
        "cache are counted, and the logits of what is proposed; default: none are",
    )


def _speculation(text: str) -> SpeculativeConfig:
    try:
        return parse_speculative_config(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_format_flags(number_format: argparse._ArgumentGroup) -> None:
    number_format.add_argument(
        "--dtype",
        type=str.lower,
        choices=("auto", "float32", "bfloat16", "float16"),
        default="auto",
        help="of weights and activations; default: auto, the checkpoint's (bfloat16 for a "
        "quantised GGUF; on a cpu at most float32)",
    )
    number_format.add_argument(
        "--kv-cache-dtype",
        type=str.lower,
        choices=("auto", "float32", "bfloat16", "float16", "fp8", "int8", "int4"),
        default="auto",
        help="of keys and values; default: auto, the same as --dtype, and on a cpu float16 where "
        "that is auto too and the checkpoint is not in float32; fp8, int8 and int4 hold two to "
        "four times as many tokens, and are what else a GPU takes",
    )
    number_format.add_argument(
        "--quantization",
        type=str.lower,
        choices=("auto", "none", "int8", "int4"),
        default="none",
        help="of weights, applied at load; default: none, which auto means too: a quantised "
        "checkpoint stays as it is",
    )


def _inspect(arguments: argparse.Namespace) -> int:
    try:
        line, status = inspect_model(arguments.model).to_json(), 0
    except ModelError as error:
        stated = {"reason": error.reason, "message": error.message[:_MAX_ERROR_CHARS]}
        line, status = json.dumps({"error": stated}), 1
    print(line)
    if arguments.termination_message is not None:
        try:
            arguments.termination_message.write_text(line, encoding="ascii")
        except OSError as error:
            print(f"forebay inspect: {error}", file=sys.stderr)
            return 1
    return status


def _budget(arguments: argparse.Namespace) -> int:
    asked = {field: getattr(arguments, field) for field in FLAGS if hasattr(arguments, field)}
    try:
        inspection = inspect_model(arguments.model)
        demand = Demand(
            **asked
            | {"device": arguments.device.upper()}
            | _read_speculation(arguments.speculative_config)
        )
    except ModelError as error:
        return _complain(error.message)
    answer = size(inspection, demand, FLAGS)
    if isinstance(answer, Misfit) and answer.reason == "InvalidField":
        return _complain(answer.message)
    if arguments.output == "json":
        print(json.dumps(to_document(answer), indent=2))
    else:
        print(to_text(inspection, demand, answer), end="")
    return 0 if isinstance(answer, Fit) else 1


def _read_speculation(asked: SpeculativeConfig | None) -> dict[str, Any]:
    """The demand's fields of it.

    Raises: ModelError if the draft model cannot be read.
    """
    if asked is None:
        return {}
    return {
        "num_speculative_tokens": asked.num_speculative_tokens,
        "draft": inspect_model(asked.model) if asked.model is not None else None,
        "draft_quantization": asked.quantization,
    }


def _complain(message: str) -> int:
    print(f"forebay budget: {message}", file=sys.stderr)
    return 2


def _size(text: str) -> int:
    try:
        return parse_quantity(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
