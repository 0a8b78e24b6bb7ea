"""What --speculative-config says, in vLLM's JSON: read, checked, with its defaults filled in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forebay_budget.rounding import QUANTIZATIONS, to_quantization

Method = Literal["ngram", "draft_model"]

METHODS = ("ngram", "draft_model")
MOST_TOKENS = 16
"""Proposed at a time; beyond that nothing is ever kept."""
_LONGEST_NGRAM = 16
_FIELDS = (
    "method",
    "model",
    "num_speculative_tokens",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "quantization",
)
_DEFAULT_NGRAM = 5
"""Of vLLM's, where neither bound is given."""


@dataclass(frozen=True)
class SpeculativeConfig:
    """How tokens are proposed, by vLLM's names.

    model: the draft model's path or hf:// address. prompt_lookup_min, prompt_lookup_max: tokens of
    the n-grams that are looked for in the text so far. quantization: of the draft model's weights,
    as --quantization is of the model's.
    """

    method: Method
    num_speculative_tokens: int
    model: str | None = None
    prompt_lookup_min: int = _DEFAULT_NGRAM
    prompt_lookup_max: int = _DEFAULT_NGRAM
    quantization: str = "None"


def parse_speculative_config(text: str) -> SpeculativeConfig:
    """Read the flag's JSON.

    Raises: ValueError with what was written, and what is possible.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ValueError(
            f"{text!r} is no JSON object, such as "
            '\'{"method": "ngram", "num_speculative_tokens": 4}\''
        )
    unknown = [name for name in values if name not in _FIELDS]
    if unknown:
        raise ValueError(f"it has no field {unknown[0]!r}; possible are {', '.join(_FIELDS)}")
    given = {name: value for name, value in values.items() if value is not None}
    method = _read_method(given)
    number = _read_number(given, "num_speculative_tokens", MOST_TOKENS)
    if number is None:
        raise ValueError("num_speculative_tokens is missing: how many are proposed at a time")
    if method == "ngram":
        _refuse(given, method, "quantization")
        return SpeculativeConfig(method, number, None, *_read_ngram_sizes(given))
    _refuse(given, method, "prompt_lookup_min", "prompt_lookup_max")
    quantization = to_quantization(str(given.get("quantization", "None")))
    if quantization not in QUANTIZATIONS:
        possible = ", ".join(QUANTIZATIONS)
        raise ValueError(f"quantization is {quantization!r}; it can be {possible}")
    return SpeculativeConfig(method, number, given["model"], quantization=quantization)


def _read_method(given: Mapping[str, Any]) -> Method:
    method, model = given.get("method"), given.get("model")
    if model is not None and (not isinstance(model, str) or not model):
        raise ValueError("model is not the path or the hf:// address of a draft model")
    # vLLM's older spelling names the method where a model would be.
    if model in ("ngram", "[ngram]") and method in (None, "ngram"):
        return "ngram"
    if method is None:
        method = "draft_model" if model else None
    if method == "ngram" and model is None:
        return "ngram"
    if method == "draft_model" and model is not None:
        return "draft_model"
    if method == "ngram":
        raise ValueError(f"method ngram takes no model, but model is {model!r}; leave one out")
    if method == "draft_model":
        raise ValueError("method draft_model takes a model, and model is missing")
    if method is None:
        raise ValueError(f"method is missing; it can be {' or '.join(METHODS)}")
    raise ValueError(f"method {method!r} is not supported; it can be {' or '.join(METHODS)}")


def _read_ngram_sizes(given: Mapping[str, Any]) -> tuple[int, int]:
    """The bounds; where one is missing it is as the other."""
    least = _read_number(given, "prompt_lookup_min", _LONGEST_NGRAM)
    most = _read_number(given, "prompt_lookup_max", _LONGEST_NGRAM)
    if least is None:
        least = most or _DEFAULT_NGRAM
    if most is None:
        most = least
    if least > most:
        raise ValueError(f"prompt_lookup_min {least} is above prompt_lookup_max {most}")
    return least, most


def _read_number(given: Mapping[str, Any], name: str, most: int) -> int | None:
    value = given.get(name)
    if value is None:
        return None
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} is {value!r}; it must be a whole number from 1 to {most}")
    return value


def _refuse(given: Mapping[str, Any], method: str, *names: str) -> None:
    for name in names:
        if name in given:
            raise ValueError(f"method {method} takes no {name}; leave it out")
