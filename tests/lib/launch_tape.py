"""A recorder of decode steps for a CPU: it repeats what was launched as a CUDA graph would.

While it records, every operation of torch and every kernel that Triton interprets is written down
with the very tensors and numbers that it got. A replay runs the list again on the same tensors and
puts each result where it was when it was recorded. So, as with a graph, a number that the host took
from one batch stays in every replay, and an input that moved is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from triton.runtime.interpreter import GridExecutor

Entry = Callable[[], None]

_HOST_READS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal")
"""Operations that wait for the device, as their result is a number or a shape on the host."""
_HOST_METHODS = ("tolist", "item", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
"""What reads a tensor from the host; on a CPU some of them are no operation of torch's."""


class LaunchTape:
    """Implements Recorder; keeps what it recorded, one list a call."""

    num_bytes = 0

    def __init__(self) -> None:
        self.tapes: list[list[Entry]] = []
        self.num_replays = 0

    def record(self, launch: Callable[[], None]) -> Callable[[], None]:
        """Run once, written down."""
        tape: list[Entry] = []
        self.tapes.append(tape)
        with host_reads_forbidden(), _kernels_on(tape), _Operations(tape):
            launch()

        def replay() -> None:
            self.num_replays += 1
            with torch.inference_mode():
                for entry in tape:
                    entry()

        return replay


class _Operations(TorchDispatchMode):
    """Writes down torch's operations."""

    def __init__(self, tape: list[Entry]) -> None:
        super().__init__()
        self._tape = tape

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)

        def again() -> None:
            for old, new in zip(_tensors(result), _tensors(func(*args, **kwargs)), strict=True):
                if old.data_ptr() != new.data_ptr():
                    old.copy_(new)

        self._tape.append(again)
        return result


def _tensors(result: Any) -> list[torch.Tensor]:
    results = result if isinstance(result, tuple | list) else [result]
    return [each for each in results if isinstance(each, torch.Tensor)]


@contextmanager
def _kernels_on(tape: list[Entry]) -> Iterator[None]:
    """Write down the kernels that are interpreted, but not what the interpreter does for them."""
    launch = GridExecutor.__call__

    def record(executor: Any, *args: Any, **kwargs: Any) -> None:
        def again() -> None:
            with _disable_current_modes(), torch._C.DisableTorchFunction():
                launch(executor, *args, **kwargs)

        tape.append(again)
        again()

    with mock.patch.object(GridExecutor, "__call__", record):
        yield


@contextmanager
def host_reads_forbidden() -> Iterator[None]:
    """Fail where the host reads from the device, or has the device wait for the host's memory.

    Kernels that are interpreted may: that is how the interpreter runs them.
    """
    launch = GridExecutor.__call__

    def unseen(executor: Any, *args: Any, **kwargs: Any) -> None:
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            launch(executor, *args, **kwargs)

    with (
        mock.patch.object(GridExecutor, "__call__", unseen),
        _NoHostMethods(),
        _NoHostReads(),
    ):
        yield


class _NoHostReads(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        name = str(func)
        if name.startswith(_HOST_READS):
            raise AssertionError(f"the host waits for the device in {name}")
        return func(*args, **(kwargs or {}))


class _NoHostMethods(torch.overrides.TorchFunctionMode):
    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        to_host = name == "to" and "cpu" in map(str, (*args[1:], *kwargs.values()))
        if name in _HOST_METHODS or to_host:
            raise AssertionError(f"the host reads from the device by {name}")
        if func in (torch.tensor, torch.as_tensor, torch.from_numpy):
            raise AssertionError(f"the device is sent numbers of the host by {name}")
        return func(*args, **kwargs)
