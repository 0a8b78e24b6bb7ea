"""What is asked of a quantisation: one frozen value. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Method = Literal["awq", "gptq", "rtn"]

METHODS: tuple[Method, ...] = ("awq", "gptq", "rtn")


@dataclass(frozen=True)
class Recipe:
    """How matrices are rounded.

    group_size: inputs that share a scale; 0: all of a row. is_symmetric: no zero points.
    is_reordered: groups are of inputs that calibration found alike (GPTQ's desc_act).
    damping: of GPTQ's moments, a share of their mean. skipped: patterns (fnmatch) of modules that
    stay as they are.
    """

    method: Method
    bits: int
    group_size: int
    is_symmetric: bool = False
    is_reordered: bool = False
    damping: float = 0.01
    skipped: tuple[str, ...] = ()

    @property
    def is_calibrated(self) -> bool:
        """Does it look at what goes through the model?"""
        return self.method != "rtn"

    def skips(self, module: str) -> bool:
        """Does a module of this name stay as it is?"""
        return any(fnmatchcase(module, pattern) for pattern in self.skipped)

    @property
    def layout(self) -> Literal["awq", "gptq"]:
        """In whose format it is written, which says nothing of how it was rounded.

        AWQ's has four bits with zero points, for inputs in their order. GPTQ's has all else, but
        vLLM takes it without zero points only.
        """
        is_awqs = self.bits == 4 and not self.is_symmetric and not self.is_reordered
        return "awq" if is_awqs else "gptq"

    @property
    def is_refused_by_vllm(self) -> bool:
        """Has it zero points in GPTQ's format? (Seen of vLLM 0.32.)"""
        return self.layout == "gptq" and not self.is_symmetric
