"""Amounts of memory: Kubernetes quantities in, quantities and words for people out."""

import re
from decimal import ROUND_CEILING, Decimal

_SUFFIXES: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{
        letter: Decimal(1000) ** power
        for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)
    },
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"\+?(?P<number>\d+\.?\d*|\.\d+)(?P<suffix>[eE][+-]?\d+|[a-zA-Z]*)", re.ASCII
)
_MAX_CHARS = 64
_MAX_EXPONENT = 18


def parse_quantity(text: str) -> int:
    """Turn a Kubernetes quantity (`24Gi`, `1.5G`, `1e9`) into bytes, rounded up as Kubernetes does.

    Raises: ValueError with a sentence where the text is no quantity or is negative.
    """
    match = _QUANTITY.fullmatch(text.strip()) if len(text) <= _MAX_CHARS else None
    if match is None:
        raise ValueError(
            f"{text[:_MAX_CHARS]!r} is not an amount of memory; write it like 24Gi or 512Mi"
        )
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix[-1:].isdigit():
        exponent = int(suffix[1:])
        if abs(exponent) > _MAX_EXPONENT:
            raise ValueError(f"{text!r} is beyond the range of a quantity")
        factor = Decimal(10) ** exponent
    elif suffix in _SUFFIXES:
        factor = _SUFFIXES[suffix]
    else:
        known = ", ".join(unit for unit, size in _SUFFIXES.items() if size > 1)
        raise ValueError(f"{text!r} ends in the unknown unit {suffix!r}; known are {known}")
    return int((number * factor).to_integral_value(ROUND_CEILING))


def to_quantity(num_bytes: int) -> str:
    """Write bytes as a quantity: the largest unit with three digits or nothing lost, rounded up."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        size = 1024**power
        if num_bytes % size == 0 and num_bytes > 0 or num_bytes >= 100 * size:
            return f"{-(-num_bytes // size)}{unit}"
    return str(num_bytes)


def to_exact_quantity(num_bytes: int) -> str:
    """Write bytes as a quantity in the largest unit that loses nothing: `228Gi`, `234087Mi`."""
    for power, unit in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if num_bytes > 0 and num_bytes % 1024**power == 0:
            return f"{num_bytes // 1024**power}{unit}"
    return str(num_bytes)


def format_bytes(num_bytes: int) -> str:
    """Write bytes for people: `21.1 GiB`, `512 MiB`, `17 bytes`."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        size = 1024**power
        if num_bytes >= size:
            return (
                f"{num_bytes / size:.1f} {unit}" if power > 2 else f"{num_bytes / size:.0f} {unit}"
            )
    return "1 byte" if num_bytes == 1 else f"{num_bytes} bytes"
