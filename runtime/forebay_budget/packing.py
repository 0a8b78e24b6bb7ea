"""How a checkpoint's matrices are packed, as config.json's `quantization_config` says.

Three methods are read: AWQ, GPTQ and compressed-tensors. What would be run wrongly is refused here
by the name of its field, before any weights are read. Which of the matrices are packed is not read
here: a skipped one is where its plain weight is in the file.
Source: AutoAWQ's and AutoGPTQ's quantize_config, GPTQModel's QuantizeConfig, and
QuantizationConfig of compressed-tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from forebay_budget.inspection import ModelError
from forebay_budget.settings import shown

Layout = Literal["awq", "gptq", "packed", "int8"]
"""Which tensors a matrix lies in; packed and int8 are compressed-tensors' two."""

_READABLE = (
    "awq (gemm, 4 bits), gptq (4 or 8 bits), and compressed-tensors (pack-quantized of 4 or 8 bits,"
    " int-quantized of 8)"
)


@dataclass(frozen=True)
class Packing:
    """How each packed matrix of a checkpoint is kept.

    group_size: inputs that share a scale, 0 for a whole row. has_zeros: each scale has a zero point
    beside it; stored_zero_offset: what is to be added to it as stored. is_reordered: inputs belong
    to groups by an index of their own. quantizes_activations: each token's numbers are rounded to
    8 bits as well.
    """

    method: str
    layout: Layout
    bits: int
    group_size: int
    has_zeros: bool
    stored_zero_offset: int = 0
    is_reordered: bool = False
    quantizes_activations: bool = False

    def __str__(self) -> str:
        groups = f"groups of {self.group_size}" if self.group_size else "one scale a row"
        both = ", activations too" if self.quantizes_activations else ""
        return f"{self.method}, {self.bits} bits{both}, {groups}"


def read_packing(stated: Any) -> Packing | None:
    """Read a config's quantization_config; None where there is none.

    Raises: ModelError with the reason UnsupportedQuantization that names the field, its value and
    what is possible.
    """
    if stated is None:
        return None
    if not isinstance(stated, dict):
        raise ModelError("BadConfig", "The model's quantization_config is no object.")
    method = stated.get("quant_method")
    read = _METHODS.get(method) if isinstance(method, str) else None
    if read is None:
        raise ModelError(
            "UnsupportedQuantization",
            f"The checkpoint is quantised by {shown(method)} (quantization_config.quant_method), "
            f"which the runtime does not read; it reads {_READABLE}, and any GGUF.",
        )
    return read(stated)


def _read_awq(stated: Mapping[str, Any]) -> Packing:
    _check("bits", stated.get("bits", 4), (4,))
    _check("version", str(stated.get("version", "gemm")).lower(), ("gemm",))
    _check("zero_point", stated.get("zero_point", True), (True,))
    group_size = _group_size(stated.get("group_size", 128))
    return Packing("awq", "awq", 4, group_size, has_zeros=True)


def _read_gptq(stated: Mapping[str, Any]) -> Packing:
    bits = _check("bits", stated.get("bits"), (4, 8))
    key = "checkpoint_format" if "checkpoint_format" in stated else "format"
    form = _check(key, stated.get(key, "gptq"), ("gptq", "gptq_v2"))
    dynamic = stated.get("dynamic") or {}
    if not isinstance(dynamic, dict) or any(not str(rule).startswith("-:") for rule in dynamic):
        raise _unsupported("dynamic", "rules of its own for some layers", "rules that skip layers")
    return Packing(
        "gptq",
        "gptq",
        bits,
        _group_size(stated.get("group_size", 128)),
        # Symmetric ones are stored with their zero points too; they are all alike.
        has_zeros=stated.get("sym") is not True,
        stored_zero_offset=1 if form == "gptq" else 0,
        is_reordered=stated.get("desc_act") is True,
    )


def _read_compressed(stated: Mapping[str, Any]) -> Packing:
    group = _only_group(stated)
    form = group.get("format") or stated.get("format")
    _check("format", form, ("pack-quantized", "int-quantized"))
    for key in ("kv_cache_scheme", "transform_config"):
        if stated.get(key):
            raise _unsupported(key, "set", "none")
    sparsity = stated.get("sparsity_config") or {}
    _check("sparsity_config.format", sparsity.get("format", "dense"), ("dense",))
    weights = group.get("weights") or {}
    _check("weights.type", weights.get("type", "int"), ("int",))
    bits = _check("weights.num_bits", weights.get("num_bits"), (4, 8))
    _check("weights.strategy", weights.get("strategy"), ("group", "channel"))
    is_grouped = weights.get("strategy") == "group"
    is_int8 = form == "int-quantized"
    if is_int8:
        _check("weights.num_bits", bits, (8,))
        _check("weights.symmetric", weights.get("symmetric", True), (True,))
    return Packing(
        "compressed-tensors",
        "int8" if is_int8 else "packed",
        bits,
        _group_size(weights.get("group_size")) if is_grouped else 0,
        has_zeros=weights.get("symmetric", True) is not True,
        is_reordered=weights.get("actorder") in ("group", "dynamic", True),
        quantizes_activations=_quantizes_activations(group, is_grouped=is_grouped, form=form),
    )


def _only_group(stated: Mapping[str, Any]) -> Mapping[str, Any]:
    groups = stated.get("config_groups")
    found = list(groups.values()) if isinstance(groups, dict) else []
    if not found or not all(isinstance(group, dict) for group in found):
        raise ModelError("BadConfig", "The model's quantization_config has no config_groups.")
    schemes = [{k: v for k, v in group.items() if k != "targets"} for group in found]
    if any(scheme != schemes[0] for scheme in schemes):
        raise _unsupported("config_groups", "several schemes", "one scheme for all layers")
    return schemes[0]


def _quantizes_activations(group: Mapping[str, Any], *, is_grouped: bool, form: Any) -> bool:
    if group.get("output_activations"):
        raise _unsupported("output_activations", "set", "none")
    activations = group.get("input_activations")
    if not activations:
        return False
    if form != "int-quantized" or is_grouped:
        raise _unsupported("input_activations", "set", "none beside such weights")
    for key, possible in (
        ("num_bits", 8),
        ("type", "int"),
        ("strategy", "token"),
        ("dynamic", True),
        ("symmetric", True),
    ):
        _check(f"input_activations.{key}", activations.get(key), (possible,))
    return True


def _group_size(stated: Any) -> int:
    """In compressed-tensors and GPTQ, -1 is a whole row."""
    size = _check("group_size", stated, (32, 64, 128, -1))
    return 0 if size == -1 else int(size)


def _check(name: str, value: Any, possible: tuple[Any, ...]) -> Any:
    if not any(value == choice and type(value) is type(choice) for choice in possible):
        names = [str(choice) for choice in possible]
        raise _unsupported(name, value, " or ".join(names))
    return value


def _unsupported(name: str, value: Any, only: str) -> ModelError:
    return ModelError(
        "UnsupportedQuantization",
        f"The model's quantization_config.{name} is {shown(value)}; the runtime supports {only} "
        "only.",
    )


_METHODS = {"awq": _read_awq, "gptq": _read_gptq, "compressed-tensors": _read_compressed}
