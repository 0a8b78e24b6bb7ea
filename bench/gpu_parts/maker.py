"""Random inputs for checks, the same in each run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gpu_parts.run import Run


class Maker:
    """Random inputs, the same in each run: on the CPU, whence `there` brings them to the device."""

    def __init__(self, run: Run) -> None:
        self._random = torch.Generator().manual_seed(0)
        self.device, self.dtype = run.device, run.dtype

    def normal(self, *shape: int) -> Tensor:
        """Random numbers of the dtype that is measured."""
        return torch.randn(*shape, generator=self._random).to(self.dtype)

    def order(self, number: int) -> Tensor:
        """The numbers below one, in some order."""
        return torch.randperm(number, generator=self._random)

    def there(self, tensor: Tensor) -> Tensor:
        """A copy on the device that is measured."""
        return tensor.to(self.device, copy=True)


Check = Callable[[Maker], tuple[Tensor, Tensor]]
"""What the device gives, and what the reference does on the CPU."""
