"""The shared library of the CPU's kernels, and the set of instructions that it uses."""

from __future__ import annotations

import ctypes
import logging
import os
from functools import cache
from pathlib import Path

ISA_VARIABLE = "FOREBAY_CPU_ISA"
"""Forces a set of instructions, by its name."""
KERNELS_VARIABLE = "FOREBAY_KERNELS"
"""Asks for others than these kernels."""
_OTHER_KERNELS = ("torch", "triton")

_PATH = Path(__file__).with_name("_native.so")

logger = logging.getLogger(__name__)


@cache
def native() -> ctypes.CDLL | None:
    """The library, with the set of instructions chosen; None where it was not built.

    Raises: ValueError if the kernels or the set that was asked for are unknown, or this processor
    lacks it.
    """
    kernels = os.environ.get(KERNELS_VARIABLE, "")
    if kernels not in ("", *_OTHER_KERNELS):
        possible = " or ".join(_OTHER_KERNELS)
        raise ValueError(
            f"{KERNELS_VARIABLE}={kernels}: there are no such kernels; choose {possible}, or leave "
            "it out"
        )
    if kernels:
        logger.info("%s=%s leaves the CPU's own kernels out", KERNELS_VARIABLE, kernels)
        return None
    if not _PATH.exists():
        logger.warning(
            "The CPU kernels are not built, so a CPU runs torch's operators, which are slower: "
            "there was no C++ compiler when forebay was installed. Install g++ or clang++ and then "
            "forebay again; in a clone, make native."
        )
        return None
    library = ctypes.CDLL(str(_PATH))
    library.fb_isa_name.restype = ctypes.c_char_p
    asked = os.environ.get(ISA_VARIABLE, "")
    if asked:
        library.fb_use_isa(_find_isa(library, asked))
    return library


def native_library() -> ctypes.CDLL:
    """The library. Raises: RuntimeError where it was not built; else as native."""
    library = native()
    if library is None:
        raise RuntimeError("the CPU kernels were not built")
    return library


def isa_names(library: ctypes.CDLL) -> dict[str, bool]:
    """Every set of instructions, from the least to the most, and whether it can be used here."""
    names: dict[str, bool] = {}
    while (name := library.fb_isa_name(len(names))) is not None:
        names[name.decode()] = bool(library.fb_isa_is_usable(len(names)))
    return names


def isa_in_use(library: ctypes.CDLL) -> str:
    """The name of the set in use."""
    return list(isa_names(library))[int(library.fb_isa())]


def _find_isa(library: ctypes.CDLL, asked: str) -> int:
    names = isa_names(library)
    if not names.get(asked, False):
        usable = ", ".join(name for name, is_usable in names.items() if is_usable)
        why = "this processor or this build lacks it" if asked in names else "nobody knows it"
        raise ValueError(f"{ISA_VARIABLE}={asked}: {why}; possible here are {usable}")
    return list(names).index(asked)
