"""What the model made of a step's inputs, however it was run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from forebay_kernels.cpu.score_rows import Scores


@dataclass(frozen=True)
class Computed:
    """T rows, R of them sampled, without their padding.

    hidden: [T, h], as the last layer leaves them; None for a decode step, of which nobody asks.
    logits: [R, V]. is_finite: [T] bool, has a token's state no NaN and no infinity?
    On the device, all three stand until the next step is computed.
    """

    hidden: Tensor | None
    logits: Scores
    is_finite: Tensor | NDArray[np.bool_]
