"""What `forebay quantize` is asked, checked as far as it can be without the model. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from forebay_budget.blueprint import Blueprint
from forebay_budget.inspection import ModelConfig
from forebay_budget.layout import layer_shapes
from forebay_budget.rounding import row_step
from forebay_runtime.loading.description import Description
from forebay_runtime.quantizing.excerpt import Excerpt
from forebay_runtime.quantizing.recipe import Recipe
from forebay_runtime.quantizing.refusal import QuantizeError
from forebay_runtime.text.foreign_token import find_foreign_token

GROUP_SIZES = (32, 64, 128)
_NEVER_ROUNDED = ("model.embed_tokens", "lm_head")


@dataclass(frozen=True)
class QuantizeSettings:
    """model: as `forebay serve` takes it. calibration: None where the recipe looks at nothing.

    dtype: of what stays plain; auto is the checkpoint's. device: cpu, cuda or auto.
    """

    model: str
    out: Path
    recipe: Recipe
    calibration: Path | None = None
    excerpt: Excerpt = Excerpt()
    dtype: str = "auto"
    device: str = "auto"
    may_replace: bool = False

    def __post_init__(self) -> None:
        """Refuse what no model could make right.

        Raises: QuantizeError naming the flag and what is possible.
        """
        recipe = self.recipe
        if recipe.is_calibrated and self.calibration is None:
            raise QuantizeError(
                f"--method {recipe.method} looks at what goes through the model; name a file of "
                "text by --calibration, or choose --method rtn, which needs none"
            )
        if self.calibration is not None and not recipe.is_calibrated:
            raise QuantizeError(
                f"--method {recipe.method} looks at no text; leave --calibration out, or choose "
                "--method awq or gptq"
            )
        if recipe.is_reordered and recipe.method != "gptq":
            raise QuantizeError("--desc-act is GPTQ's alone; leave it out, or choose gptq")
        if recipe.is_reordered and not recipe.group_size:
            raise QuantizeError("--desc-act orders inputs into groups; choose a --group-size")


def check_model(described: Description, recipe: Recipe) -> None:
    """Refuse a model that cannot be quantised so, before any of its weights are read.

    Raises: QuantizeError naming what is in the way and what would be possible.
    """
    sizes, inspection = described.inspection.config, described.inspection
    if described.blueprint.packing is not None:
        raise QuantizeError(
            f"the checkpoint is quantised already ({inspection.quantization}); name the one that "
            "it was made from"
        )
    if sizes.num_experts:
        raise QuantizeError(
            f"{sizes.architecture} is a mixture of experts, which forebay quantize does not take; "
            "serve it by --quantization INT4 or INT8, which rounds it at load"
        )
    matrices = _matrices(described.blueprint)
    _check_skipped(list(matrices), recipe)
    rounded = {inputs for name, inputs in matrices.items() if not recipe.skips(name)}
    if not rounded:
        raise QuantizeError("--skip leaves nothing to quantise; name fewer modules")
    _check_groups(sorted(rounded), recipe)


def check_samples(samples: Sequence[Sequence[int]], sizes: ModelConfig) -> None:
    """Refuse tokens that the model has not, and more positions than it has.

    Raises: QuantizeError.
    """
    if samples and len(samples[0]) > sizes.max_position_embeddings:
        raise QuantizeError(
            f"--sequence-length {len(samples[0])} is more than the {sizes.max_position_embeddings} "
            "positions that the model has; lower it"
        )
    foreign = find_foreign_token(samples, sizes.vocab_size)
    if foreign is not None:
        raise QuantizeError(
            f"the tokenizer writes the calibration with token {foreign}, but the model has "
            f"{sizes.vocab_size} tokens; it is another model's tokenizer"
        )


def _matrices(blueprint: Blueprint) -> dict[str, int]:
    """The inputs of each of the layers' matrices, by its name."""
    return {
        f"model.layers.{number}.{name}": shape[1]
        for number, layer in enumerate(blueprint.layers)
        for name, shape in layer_shapes(blueprint, layer).items()
        if len(shape) > 1
    }


def _check_skipped(names: Sequence[str], recipe: Recipe) -> None:
    """A pattern that finds nothing was meant to."""
    for pattern in recipe.skipped:
        if not any(fnmatchcase(name, pattern) for name in (*names, *_NEVER_ROUNDED)):
            raise QuantizeError(
                f"--skip {pattern} names none of the model's modules, which are called like "
                f"{names[0]}"
            )


def _check_groups(all_inputs: Sequence[int], recipe: Recipe) -> None:
    """all_inputs: of the matrices that are to be rounded."""
    size = recipe.group_size
    step = size or row_step(recipe.bits)
    odd = [num_inputs for num_inputs in all_inputs if num_inputs % step]
    if not odd:
        return
    if not size:
        raise QuantizeError(
            f"the model has matrices of {odd[0]} inputs; with one scale a row multiples of {step} "
            "are possible; or leave those matrices out by --skip"
        )
    possible = [each for each in GROUP_SIZES if not any(inputs % each for inputs in all_inputs)]
    hint = f"choose {' or '.join(map(str, possible))}, or leave those out by --skip"
    if not possible:
        hint = "no size that is possible does; leave those out by --skip"
    raise QuantizeError(
        f"--group-size {size} does not divide the {odd[0]} inputs of some of the model's "
        f"matrices; {hint}"
    )
