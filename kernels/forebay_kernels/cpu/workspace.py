"""What single products run with: threads, and memory that is kept from one to the next."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from forebay_kernels.cpu.library import native_library
from forebay_kernels.cpu.thread_pool import ThreadPool
from forebay_kernels.usable_cpus import usable_cpus


class Workspace:
    """A pool's threads and memory of its own. It runs one call at a time."""

    def __init__(self, pool: ThreadPool) -> None:
        """Raises: RuntimeError if there is no native library."""
        self.library = native_library()
        self.pool = pool
        self.library.fb_new_workspace.restype = ctypes.c_void_p
        self.handle = ctypes.c_void_p(self.library.fb_new_workspace(pool.handle))
        weakref.finalize(self, self.library.fb_delete_workspace, self.handle)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Several calls of this thread, between which the pool's threads do not go to sleep."""
        self.library.fb_keep_awake(self.handle, 1)
        try:
            yield
        finally:
            self.library.fb_keep_awake(self.handle, 0)


def own_workspace() -> Workspace:
    """The calling thread's, on threads that the process has for all who ask: one a processor."""
    workspace: Workspace | None = getattr(_of_thread, "workspace", None)
    if workspace is None:
        workspace = _of_thread.workspace = Workspace(_process_pool())
    return workspace


@cache
def _process_pool() -> ThreadPool:
    return ThreadPool(usable_cpus())


_of_thread = threading.local()
