"""The flags of `forebay evaluate`, each explained, and what was given by them. Imports no torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from forebay_budget.flag_numbers import number
from forebay_budget.rounding import QUANTIZATIONS, to_quantization
from forebay_runtime.config import DEVICES
from forebay_runtime.evaluating.bounds import Bounds
from forebay_runtime.number_formats import (
    DTYPES,
    KV_CACHE_DTYPES,
    to_kv_cache_dtype,
)

DESCRIPTION = """\
Measure MODEL on a golden set of your own: how likely it finds texts (perplexity), and how many
questions it answers as they should be; and beside another model, what it was before.
"""
EPILOG = """\
the golden set, JSON lines of any of these:
  {"text": "what is scored, token by token"}
  {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
  {"prompt": "The capital of France is", "answer": "Paris"}
  {"messages": [{"role": "user", "content": "..."}], "answer": "Paris", "match": "contains"}
  An answer has to stand at the beginning of what the model says ("match": "begins"), be all of it
  ("equals"), or stand anywhere in it ("contains"). Answers are greedy. Longer texts than
  --max-model-len are scored by windows.

example:
  forebay evaluate ./model-awq --against ./model --golden golden.jsonl --max-perplexity-increase 2%

exit status: 0 where all bounds are held (or none is set), 1 where one is not, 2 where nothing could
be measured.
"""


@dataclass(frozen=True)
class EvaluateSettings:
    """model, other: as `forebay serve` takes them. quantization: of model alone, at load."""

    model: str
    golden: Path
    other: str | None
    bounds: Bounds
    is_json: bool
    device: str
    dtype: str
    quantization: str
    kv_cache_dtype: str
    max_model_len: int
    max_num_seqs: int
    max_tokens: int


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare MODEL and every flag."""
    parser.add_argument("model", metavar="MODEL", help="as `forebay serve` takes it")
    parser.add_argument(
        "--golden", type=Path, required=True, metavar="FILE", help="the golden set; see below"
    )
    parser.add_argument(
        "--against", metavar="MODEL", help="another model, what the first is compared with"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_bounds(parser)
    _add_engine_flags(parser)


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("bounds (shares, as 2% or 0.02)")
    for flag, of, text in (
        ("--max-perplexity-increase", _share, "of perplexity, against the other model"),
        (
            "--max-lost-answers",
            _part,
            "of all questions: right by the other model, no more by this one",
        ),
        ("--min-exact-answers", _part, "of all questions: answered right"),
        (
            "--min-token-agreement",
            _part,
            "of the texts' places: where both find the same token likeliest",
        ),
    ):
        group.add_argument(flag, type=of, metavar="SHARE", help=text)


def _add_engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="what computes; auto is a GPU where there is one (%(default)s)",
    )
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="what both are computed in, as `forebay serve` has it (%(default)s)",
    )
    group.add_argument(
        "--quantization",
        type=to_quantization,
        choices=QUANTIZATIONS,
        default="None",
        metavar="METHOD",
        help="rounds MODEL at load, INT8 or INT4; not the other model (%(default)s)",
    )
    group.add_argument(
        "--kv-cache-dtype",
        type=to_kv_cache_dtype,
        choices=KV_CACHE_DTYPES,
        default="auto",
        help="of MODEL; the other model has auto (%(default)s)",
    )
    for flag, default, text in (
        ("--max-model-len", 1024, "tokens of a window of text, and of a prompt with its answer"),
        ("--max-num-seqs", 16, "computed at a time"),
        ("--max-tokens", 64, "of an answer"),
    ):
        group.add_argument(
            flag, type=number(int, 1), default=default, metavar="N", help=f"{text} (%(default)s)"
        )


def to_settings(parsed: argparse.Namespace) -> EvaluateSettings:
    """What was asked.

    Raises: ValueError where flags do not go together.
    """
    bounds = Bounds(
        parsed.max_perplexity_increase,
        parsed.max_lost_answers,
        parsed.min_exact_answers,
        parsed.min_token_agreement,
    )
    if bounds.needs_other and parsed.against is None:
        raise ValueError("a bound compares with another model; name it by --against")
    return EvaluateSettings(
        model=parsed.model,
        golden=parsed.golden,
        other=parsed.against,
        bounds=bounds,
        is_json=parsed.json,
        device=parsed.device,
        dtype=parsed.dtype,
        quantization=parsed.quantization,
        kv_cache_dtype=parsed.kv_cache_dtype,
        max_model_len=parsed.max_model_len,
        max_num_seqs=parsed.max_num_seqs,
        max_tokens=parsed.max_tokens,
    )


def _share(text: str) -> float:
    number = text.removesuffix("%")
    try:
        share = float(number) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no share, as 2% or 0.02") from None
    if not 0 <= share < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is out of range; it must be at least 0")
    return share


def _part(text: str) -> float:
    share = _share(text)
    if share > 1:
        raise argparse.ArgumentTypeError(
            f"{text} is more than all there are; it must be from 0 to 100%, as 90% or 0.9"
        )
    return share
