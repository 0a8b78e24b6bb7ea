"""The threads that share a step's work on a CPU: one pool an engine."""

from __future__ import annotations

import ctypes
import weakref

from forebay_kernels.cpu.library import native_library


class ThreadPool:
    """num_threads threads, whoever runs something on it being one of them.

    They sleep while nothing runs. In a fork's child a pool makes its own threads anew.
    """

    def __init__(self, num_threads: int) -> None:
        """Raises: RuntimeError if there is no native library; ValueError below one thread."""
        library = native_library()
        if num_threads < 1:
            raise ValueError(f"{num_threads} threads can run nothing")
        library.fb_new_pool.restype = ctypes.c_void_p
        self.num_threads = num_threads
        self.handle = ctypes.c_void_p(library.fb_new_pool(num_threads))
        """Of the native Pool."""
        self._library = library
        weakref.finalize(self, library.fb_delete_pool, self.handle)

    def time_runs(self, num_runs: int, num_units: int, num_reads: int) -> tuple[int, list[int]]:
        """Run units that read a number of memory: what sharing costs here.

        Returns the nanoseconds that all runs took, and how often each unit was run.
        """
        counters = (ctypes.c_int64 * num_units)()
        time_pool = self._library.fb_time_pool
        time_pool.restype = ctypes.c_int64
        taken = time_pool(self.handle, num_runs, num_units, num_reads, counters)
        return int(taken), list(counters)
