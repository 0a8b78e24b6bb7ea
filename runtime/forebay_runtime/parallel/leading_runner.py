"""Rank 0's runner: it tells the other ranks what it is about to compute, and computes it with them.

A rank that is gone breaks the exchange in which it is missing; the error says which it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from forebay_runtime.models.row_padding import padded_size
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.parallel.messages import Capture, Carry, Message, Score, Step
from forebay_runtime.parallel.rank_link import RankLink
from forebay_runtime.runner.computed import Computed
from forebay_runtime.runner.model_runner import ModelRunner
from forebay_runtime.runner.step_inputs import StepInputs


class LeadingRunner(ModelRunner):
    """A ModelRunner that others follow."""

    def __init__(self, link: RankLink, followers: Followers, *parts: Any, **flags: Any) -> None:
        """parts, flags: as ModelRunner takes them."""
        super().__init__(*parts, **flags)
        self._link = link
        self._followers = followers

    def compute(self, inputs: StepInputs, num_layers: int | None = None) -> Computed:
        """Run the model over a step's inputs, on all ranks.

        Raises: RankLost.
        """
        with self._together(Step(inputs, num_layers)):
            return super().compute(inputs, num_layers)

    def score(self, hidden: Tensor) -> Tensor:
        """The logits of at most score_rows hidden states, by the ranks that have the head.

        Raises: RankLost.
        """
        num_rows = len(hidden)
        num_padded = padded_size(num_rows)
        with torch.inference_mode(), self._together(Score(num_padded)):
            padded = torch.nn.functional.pad(hidden, (0, 0, 0, num_padded - num_rows))
            return super().score(self._link.share(padded))[:num_rows]

    def carry(self, token_ids: Tensor) -> None:
        """Keep a step's samples for the next one, on all ranks.

        Raises: RankLost.
        """
        with self._together(Carry(len(token_ids))):
            super().carry(self._link.share(token_ids.contiguous()))

    def capture_graphs(self) -> None:
        """Capture decode steps of all sizes, on all ranks at once.

        Raises: RankLost.
        """
        with self._together(Capture()):
            super().capture_graphs()

    @contextmanager
    def _together(self, message: Message) -> Iterator[None]:
        self._followers.tell(message)
        try:
            yield
        except RuntimeError as error:
            raise self._followers.explain(error) from error
