"""What of a calibration text is looked at. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_TOKENS = 2_048
"""Fewer say next to nothing of a matrix with hundreds of inputs."""
DEFAULT_SAMPLES = 128


@dataclass(frozen=True)
class Excerpt:
    """num_samples: sequences; None: as many as there are, DEFAULT_SAMPLES at most.

    sequence_length: tokens of each. seed: by which documents are shuffled.
    """

    num_samples: int | None = None
    sequence_length: int = 512
    seed: int = 0
