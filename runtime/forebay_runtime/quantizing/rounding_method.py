"""The three methods as one: what to scale inputs' weights by, and how to round the outcome.

AWQ's factors and GPTQ's rounding go together, and together lose less than either.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from forebay_runtime.quantizing.awq import Part, Tie, search_factors
from forebay_runtime.quantizing.gptq import round_by_gptq
from forebay_runtime.quantizing.grid import Grid, RoundedMatrix
from forebay_runtime.quantizing.input_statistics import InputStatistics
from forebay_runtime.quantizing.nearest import round_to_nearest
from forebay_runtime.quantizing.recipe import Recipe


class RoundingMethod:
    """One recipe, for matrices of the same inputs whose outputs stand below each other."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.grid = Grid(recipe.bits, recipe.group_size, recipe.is_symmetric)

    def factors(self, parts: Sequence[Part], inputs: InputStatistics, tie: Tie) -> Tensor | None:
        """What to multiply each input's weights by, and divide the input by: [K]; None: nothing.

        parts: matrices of these inputs.
        """
        if self.recipe.method != "awq":
            return None
        # They are the best for rounding to nearest. Half of their power is the best where what is
        # lost is made good: more of it hurts the weights of small inputs for little.
        return search_factors(parts, inputs, self.grid, tie).sqrt()

    def round(self, weight: Tensor, moments: Tensor | None) -> RoundedMatrix:
        """Round a matrix [N, K]; moments [K, K] of its inputs, None: nothing was calibrated."""
        if moments is None:
            return round_to_nearest(weight, self.grid)
        recipe = self.recipe
        return round_by_gptq(
            weight, moments, self.grid, recipe.damping, is_reordered=recipe.is_reordered
        )
