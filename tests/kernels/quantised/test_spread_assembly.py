"""The assembly that spreads codes of four bits does what the kernels' plain form does.

The interpreter runs the plain form, so the four instructions that the assembly is made of are
played here, by PTX's definitions of them.
"""

import re

import pytest

pytest.importorskip("triton")

from forebay_kernels.gpu.products.quant_product import SPREAD_BF16, SPREAD_FP16


def _prmt(first: int, second: int, selector: int) -> int:
    """Four bytes of the eight of two registers, by the selector's nibbles from the lowest up."""
    source = first.to_bytes(4, "little") + second.to_bytes(4, "little")
    return sum(source[(selector >> (4 * i)) & 7] << (8 * i) for i in range(4))


def _lop3(a: int, b: int, c: int, table: int) -> int:
    """Any function of three bits, by its table."""
    bits = [(a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1) for i in range(32)]
    return sum((table >> bit & 1) << i for i, bit in enumerate(bits))


_PLAYED = {"prmt.b32": _prmt, "lop3.b32": _lop3, "shr.u32": lambda a, by: a >> by}


def _play(assembly: str, word: int) -> list[int]:
    """The four registers that the assembly gives for one word."""
    registers = {"$4": word}
    for line in assembly.strip().strip("{}").split(";"):
        operation, *operands = re.findall(r"[.$\w]+", line) or [".reg"]
        if operation == ".reg":
            continue
        target, *sources = operands
        values = [registers[each] if each in registers else int(each, 0) for each in sources]
        registers[target] = _PLAYED[operation](*values)
    return [registers[f"${i}"] for i in range(4)]


@pytest.mark.parametrize(
    ("assembly", "power"),
    [pytest.param(SPREAD_BF16, 0x4300, id="bf16"), pytest.param(SPREAD_FP16, 0x6400, id="fp16")],
)
@pytest.mark.parametrize("word", [0, 0xFFFFFFFF, 0x76543210, 0xFEDCBA98, 0x0F1E2D3C])
def test_low_halves_come_first_then_high_ones_each_under_the_power(
    assembly: object, power: int, word: int
) -> None:
    spread = [half for each in _play(assembly.value, word) for half in (each & 0xFFFF, each >> 16)]
    codes = word.to_bytes(4, "little")
    assert spread == [power | byte & 15 for byte in codes] + [power | byte >> 4 for byte in codes]
