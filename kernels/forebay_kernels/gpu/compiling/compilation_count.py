"""Counts what Triton compiles, for all kernels of this process, from the first watch on.

Warm-up and its tests read it: nothing may be compiled that is in the cache already, and nothing may
be met for the first time once requests are served.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import triton


@dataclass
class CompilationCount:
    """num_compiled: that no cache had; num_cached: that one had; num_met: variants that a launch
    met for the first time, wherever they came from then."""

    num_compiled: int = 0
    num_cached: int = 0
    num_met: int = 0


@cache
def watch_compilations() -> CompilationCount:
    """The count, which goes on; hooks that others have set are called as before."""
    count, lock = CompilationCount(), Lock()
    listen, met = triton.knobs.compilation.listener, triton.knobs.runtime.jit_post_compile_hook

    def on_compilation(**told: Any) -> None:
        with lock:
            count.num_cached += told["cache_hit"]
            count.num_compiled += not told["cache_hit"]
        if listen is not None:
            listen(**told)

    def on_first_launch(*args: Any, **told: Any) -> Any:
        with lock:
            count.num_met += 1
        return None if met is None else met(*args, **told)

    triton.knobs.compilation.listener = on_compilation
    triton.knobs.runtime.jit_post_compile_hook = on_first_launch
    return count
