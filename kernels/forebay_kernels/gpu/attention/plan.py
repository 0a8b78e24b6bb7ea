"""A step's attention where kernels read all lengths on the device. Imports no Triton."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from forebay_kernels.ragged import Ragged


@dataclass(frozen=True)
class DeviceAttentionPlan:
    """Which kernels a batch needs: all that the host decides, once a step."""

    ragged: Ragged

    @property
    def slots(self) -> Tensor:
        """As in Ragged."""
        return self.ragged.slots

    @property
    def num_rows(self) -> int:
        """Rows that are no padding."""
        return sum(self.ragged.query_lens)

    @property
    def is_decode_only(self) -> bool:
        """Whether row s is sequence s's one query, or padding."""
        return all(query_len == 1 for query_len in self.ragged.query_lens)

    @property
    def has_decodes(self) -> bool:
        """Whether a sequence has one query."""
        return 1 in self.ragged.query_lens
