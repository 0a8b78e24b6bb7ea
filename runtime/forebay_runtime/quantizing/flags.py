"""The flags of `forebay quantize`, each explained, and what was given by them. Imports no torch."""

from __future__ import annotations

import argparse
from pathlib import Path

from forebay_budget.flag_numbers import number, share
from forebay_runtime.config import DEVICES
from forebay_runtime.number_formats import DTYPES
from forebay_runtime.quantizing.excerpt import DEFAULT_SAMPLES, Excerpt
from forebay_runtime.quantizing.recipe import METHODS, Recipe
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.quantizing.settings import GROUP_SIZES, QuantizeSettings

DESCRIPTION = """\
Write MODEL's matrices in four or eight bits to the folder OUT, which `forebay serve`, vLLM and
transformers read. Embeddings, head and norms stay as they are.
"""
EPILOG = """\
which method:
  awq    weights of large inputs are spared, and each rounding is made good by the other weights.
         Keeps most. Needs calibration.
  gptq   each rounding is made good by the other weights; a little faster. Needs calibration.
  rtn    rounds to nearest: seconds, no calibration. Good enough for eight bits.

calibration:
  Text like that which the model will see, 30,000 tokens and more. FILE is plain text, or JSON lines
  (.jsonl) of {"text": ...}, {"messages": [...]} or {"prompt": ..., "answer": ...}.

examples:
  forebay quantize ./model ./model-awq --method awq --calibration texts.jsonl
  forebay quantize model.gguf ./model-int8 --method rtn --bits 8
  forebay evaluate ./model-awq --against ./model --golden golden.jsonl

All of one layer's matrices, and the calibration's states, are held in float32 at a time; OUT
appears when all of it is written. See docs/quantizing.md.
"""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL, OUT and every flag."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a folder with config.json and .safetensors files, a .gguf file, or "
        "hf://org/name@revision; not quantised to few bits already, but for GGUF",
    )
    parser.add_argument("out", metavar="OUT", type=Path, help="the folder to write; a new one")
    _add_method_flags(parser)
    _add_calibration_flags(parser)
    _add_output_flags(parser)


def _add_method_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("method")
    group.add_argument("--method", choices=METHODS, default="awq", help="see below (%(default)s)")
    group.add_argument(
        "--bits", type=int, choices=(4, 8), default=4, help="of each weight (%(default)s)"
    )
    group.add_argument(
        "--group-size",
        choices=(*map(str, GROUP_SIZES), "channel"),
        default="64",
        metavar="32|64|128|channel",
        help="inputs that share a scale: fewer keep more and take more memory; channel is one "
        "scale for all inputs of an output (%(default)s)",
    )
    group.add_argument(
        "--symmetric",
        action=argparse.BooleanOptionalAction,
        help="no zero points, as some fast kernels want, and vLLM in all but four bits; four bits "
        "lose by it (with eight bits)",
    )
    group.add_argument(
        "--desc-act",
        action="store_true",
        help="with gptq: groups are of inputs of like weight, not of neighbours; keeps a little "
        "more, is slower to serve, and wants --symmetric for vLLM",
    )
    group.add_argument(
        "--damping",
        type=share,
        metavar="SHARE",
        help=f"how far calibration is distrusted, of the inputs' mean moment ({Recipe.damping})",
    )
    group.add_argument(
        "--skip",
        action="append",
        default=[],
        metavar="PATTERN",
        help="a module that stays as it is, as 'model.layers.0.*' or '*.down_proj'; may be given "
        "often. Those that share inputs (q, k and v; gate and up) stay together",
    )


def _add_calibration_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("calibration")
    group.add_argument(
        "--calibration", type=Path, metavar="FILE", help="text, for awq and gptq; see below"
    )
    group.add_argument(
        "--num-samples",
        type=number(int, 1),
        metavar="N",
        help=f"sequences to look at (as many as there are, {DEFAULT_SAMPLES} at most)",
    )
    group.add_argument(
        "--sequence-length",
        type=number(int, 1),
        metavar="TOKENS",
        help=f"tokens of each sequence ({Excerpt.sequence_length})",
    )
    group.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help=f"by which documents are shuffled; all else has no chance in it ({Excerpt.seed})",
    )


def _add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="of what stays plain; auto is the checkpoint's (%(default)s)",
    )
    group.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="what computes; auto is a GPU where there is one (%(default)s)",
    )
    group.add_argument(
        "--force", action="store_true", help="replace the model in OUT, once the new one is whole"
    )


def to_settings(parsed: argparse.Namespace) -> QuantizeSettings:
    """What was asked.

    Raises: QuantizeError where flags do not go together.
    """
    _refuse_unread(parsed)
    is_symmetric = parsed.symmetric
    if is_symmetric is None:
        is_symmetric = parsed.bits == 8
    recipe = Recipe(
        parsed.method,
        parsed.bits,
        0 if parsed.group_size == "channel" else int(parsed.group_size),
        is_symmetric=is_symmetric,
        is_reordered=parsed.desc_act,
        damping=float(parsed.damping or Recipe.damping),
        skipped=tuple(parsed.skip),
    )
    return QuantizeSettings(
        model=parsed.model,
        out=parsed.out,
        recipe=recipe,
        calibration=parsed.calibration,
        excerpt=Excerpt(
            parsed.num_samples,
            parsed.sequence_length or Excerpt.sequence_length,
            Excerpt.seed if parsed.seed is None else parsed.seed,
        ),
        dtype=parsed.dtype,
        device=parsed.device,
        may_replace=parsed.force,
    )


def _refuse_unread(parsed: argparse.Namespace) -> None:
    """Raises: QuantizeError for a flag that the method never looks at."""
    if parsed.method != "rtn":
        return
    for name in ("damping", "num_samples", "sequence_length", "seed"):
        if getattr(parsed, name) is not None:
            raise QuantizeError(
                f"--{name.replace('_', '-')} is of calibration, but --method rtn looks at no text; "
                "leave it out, or choose --method awq or gptq"
            )
