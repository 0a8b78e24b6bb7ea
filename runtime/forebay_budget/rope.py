"""How positions turn queries and keys: the rotary embedding's numbers, as a model's files say them.

The runtime computes the frequencies; here is only what a file can say of them, and what is refused.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from forebay_budget.inspection import ModelError
from forebay_budget.settings import MAX_NUMBER, Settings, shown, to_real, unsupported, unusable


@dataclass(frozen=True)
class LinearScaling:
    """All positions closer together by a factor (Chen et al. 2023, position interpolation)."""

    factor: float


@dataclass(frozen=True)
class Llama3Scaling:
    """Slow frequencies slower by a factor, fast ones as they are, a ramp between (Llama 3.1)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_positions: float


@dataclass(frozen=True)
class YarnScaling:
    """As Llama3Scaling, with the ramp over dimensions (Peng et al. 2023, YaRN §3)."""

    factor: float
    original_positions: float
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    is_truncated: bool = True
    """The ramp's ends are whole dimensions."""
    attention_factor: float | None = None
    """Of what is rotated; None: the usual one."""


def usual_attention_factor(factor: float) -> float:
    """What YaRN multiplies by where nothing else is stated (Peng et al. 2023 §3.4)."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0


@dataclass(frozen=True)
class LongScaling:
    """A factor for each frequency, one set for short contexts and one for long (LongRoPE).

    The factors are None where the file holds them as tensors.
    """

    short_factors: tuple[float, ...] | None
    long_factors: tuple[float, ...] | None
    original_positions: int
    attention_factor: float | None
    """Of what is rotated; None: from the ratio of max_position_embeddings."""


@dataclass(frozen=True)
class StoredScaling:
    """A factor for each frequency, held by the file as the tensor rope_freqs.weight."""


Scaling = LinearScaling | Llama3Scaling | YarnScaling | LongScaling | StoredScaling


@dataclass(frozen=True)
class Rope:
    """A rotary embedding: of a head's first num_dims dimensions, by frequencies theta ** -2i/n."""

    theta: float
    num_dims: int
    scaling: Scaling | None = None


def reachable_positions(ropes: Iterable[Rope], stated: int) -> int:
    """The positions up to which all embeddings are stretched, from those that the config states.

    Whoever stretches one adds its scaling to the config, and seldom changes the stated length: so
    say the READMEs of Qwen, and so are the 16k models of Vicuna.
    Raises: ModelError where they are beyond all sense.
    """
    num_positions = min(_stretched(rope.scaling, stated) for rope in ropes)
    if num_positions >= MAX_NUMBER:
        raise unusable(num_positions, "number of positions by its rotary embedding's factor")
    return num_positions


def _stretched(scaling: Scaling | None, stated: int) -> int:
    match scaling:
        case LinearScaling(factor):
            return max(stated, int(stated * factor))
        case YarnScaling(factor, original):
            return max(stated, int(original * factor))
    return stated


def read_rope(settings: Settings, head_dim: int, *, can_be_partial: bool) -> Rope:
    """Read the rotary embedding that all layers share.

    Raises: ModelError where it is damaged, or of a kind that the runtime does not know.
    """
    stated = rope_block(settings)
    if any(isinstance(value, dict) for value in stated.values()):
        raise ModelError(
            "UnsupportedRopeScaling",
            "The model has several rotary embeddings, which its architecture does not use.",
        )
    return Rope(
        rope_theta(settings, stated),
        _rotated_dims(settings, stated, head_dim, can_be_partial=can_be_partial),
        read_scaling(settings, stated),
    )


def rope_block(settings: Settings) -> Mapping[str, Any]:
    """What `rope_parameters` says, or by its older name `rope_scaling`."""
    return {**settings.block("rope_scaling"), **settings.block("rope_parameters")}


def rope_theta(settings: Settings, stated: Mapping[str, Any], key: str = "rope_theta") -> float:
    """The base of the frequencies: beside the scaling, or under its own key."""
    value = stated.get("rope_theta")
    return settings.real(key) if value is None else to_real(value, "rope_theta")


def read_scaling(settings: Settings, stated: Mapping[str, Any]) -> Scaling | None:
    """Read how the frequencies are stretched.

    Raises: ModelError with the reason UnsupportedRopeScaling for a kind that is not known.
    """
    kind = stated.get("rope_type", stated.get("type", "default"))
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        raise ModelError(
            "UnsupportedRopeScaling",
            f"The model scales its rotary embedding ({shown(kind)}), which the runtime does not "
            f"support; it supports {', '.join(_READERS)}.",
        )
    return reader(settings, stated)


def _rotated_dims(
    settings: Settings, stated: Mapping[str, Any], head_dim: int, *, can_be_partial: bool
) -> int:
    if settings.is_gguf:
        num_dims = head_dim
        if settings.get("rotary_dim") is not None:
            num_dims = settings.number("rotary_dim")
        name = settings.name("rotary_dim")
        only = f"{head_dim}, the size of a head,"
    else:
        factor = stated.get("partial_rotary_factor", settings.get("partial_rotary_factor"))
        name, only = "partial_rotary_factor", "1"
        num_dims = head_dim if factor is None else int(head_dim * to_real(factor, name))
    is_whole = num_dims == head_dim
    if not is_whole and not (can_be_partial and 2 <= num_dims < head_dim and num_dims % 2 == 0):
        value = num_dims if settings.is_gguf else factor
        raise unsupported(name, value, only)
    if num_dims % 2:
        raise unsupported("head_dim", head_dim, "an even number")
    return num_dims


def _read_none(settings: Settings, stated: Mapping[str, Any]) -> None:
    """Also `dynamic`, which changes nothing up to max_position_embeddings, where requests end."""


def _read_linear(settings: Settings, stated: Mapping[str, Any]) -> LinearScaling:
    return LinearScaling(_real(stated, "factor"))


def _read_llama3(settings: Settings, stated: Mapping[str, Any]) -> Llama3Scaling:
    low, high = _real(stated, "low_freq_factor"), _real(stated, "high_freq_factor")
    if low >= high:
        raise unusable(high, "high_freq_factor")
    original = _original_positions(settings, stated)
    return Llama3Scaling(_real(stated, "factor"), low, high, original)


def _read_yarn(settings: Settings, stated: Mapping[str, Any]) -> YarnScaling:
    for key in ("mscale", "mscale_all_dim"):
        if stated.get(key) is not None:
            raise unsupported(key, stated[key], "none")
    return YarnScaling(
        _real(stated, "factor"),
        _original_positions(settings, stated),
        _real(stated, "beta_fast", 32.0),
        _real(stated, "beta_slow", 1.0),
        stated.get("truncate") is not False,
        _yarn_attention_factor(stated),
    )


def _yarn_attention_factor(stated: Mapping[str, Any]) -> float | None:
    """As stated; or by its older name a multiple of the usual one, which transformers overlooks
    and DeepSeek-R1's Qwen3 was trained with."""
    share = _optional_real(stated, "attn_factor")
    if share is None or stated.get("attention_factor") is not None:
        return _optional_real(stated, "attention_factor")
    return share * usual_attention_factor(_real(stated, "factor"))


def _read_long(settings: Settings, stated: Mapping[str, Any]) -> LongScaling:
    return LongScaling(
        _factors(stated, "short_factor", settings.is_gguf),
        _factors(stated, "long_factor", settings.is_gguf),
        _original_positions(settings, stated),
        _optional_real(stated, "attention_factor"),
    )


def _read_stored(settings: Settings, stated: Mapping[str, Any]) -> StoredScaling:
    if not settings.is_gguf:
        raise ModelError("BadConfig", "The model's rope_type is stored, but no tensor stores it.")
    return StoredScaling()


_READERS: dict[str, Callable[[Settings, Mapping[str, Any]], Scaling | None]] = {
    "default": _read_none,
    "none": _read_none,
    "dynamic": _read_none,
    "linear": _read_linear,
    "llama3": _read_llama3,
    "yarn": _read_yarn,
    "longrope": _read_long,
    "su": _read_long,
    "stored": _read_stored,
}


def _original_positions(settings: Settings, stated: Mapping[str, Any]) -> int:
    """As transformers does: beside all else, then among the scaling, then what the model has."""
    key = "original_max_position_embeddings"
    if settings.get(key) is not None:
        return settings.number(key)
    return (
        Settings(stated).with_defaults({key: settings.get("max_position_embeddings")}).number(key)
    )


def _factors(stated: Mapping[str, Any], key: str, is_tensor: bool) -> tuple[float, ...] | None:
    values = stated.get(key)
    if values is None and is_tensor:
        return None
    if not isinstance(values, list):
        raise unusable(values, key)
    return tuple(to_real(value, key) for value in values)


def _real(stated: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = stated.get(key)
    return to_real(default if value is None else value, key)


def _optional_real(stated: Mapping[str, Any], key: str) -> float | None:
    return None if stated.get(key) is None else _real(stated, key)
