"""From a model's files to the shape that kernels are compiled for."""

from dataclasses import replace

import pytest

from forebay_budget.checkpoint import examine_model
from forebay_budget.packing import Packing
from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.model_shape import Mixture, ModelShape, Weights
from forebay_runtime.start.kernel_shape import Serving, kernel_shapes
from tiny_model import save_tiny


def shapes_of(folder, family, serving):
    save_tiny(folder, family)
    _, blueprint = examine_model(folder)
    return kernel_shapes(blueprint, serving, SM_90)


def shape_of(folder, family, serving):
    [shape] = shapes_of(folder, family, serving)
    return shape


def test_a_plain_model_has_its_configs_sizes(tmp_path):
    assert shape_of(tmp_path, "llama", Serving("bfloat16")) == ModelShape(
        SM_90,
        dtype="bf16",
        head_dim=32,
        num_heads=6,
        num_kv_heads=3,
        hidden_size=96,
        intermediate_size=160,
        vocab_size=131,
        rotary_dim=32,
        norm_dtype="bf16",
    )


def test_a_rank_has_its_part(tmp_path):
    shape = shape_of(tmp_path, "mixtral", Serving("float16", num_ranks=3))

    sizes = (shape.num_heads, shape.num_kv_heads, shape.intermediate_size, shape.vocab_size)
    assert sizes == (2, 1, 53, 131)
    assert shape.mixture == Mixture(5, 2, 53, is_normalised=True)


def test_fewer_kv_heads_than_ranks_are_one_each(tmp_path):
    assert shape_of(tmp_path, "llama", Serving("float16", num_ranks=6)).num_kv_heads == 1


def test_what_a_family_does_differently_is_told(tmp_path):
    shape = shape_of(tmp_path, "gemma2", Serving("bfloat16"))

    assert shape.window_kinds == (False, True)
    assert (shape.norm_dtype, shape.activation) == ("fp32", "gelu_tanh")
    assert shape.has_softcap and shape.has_logit_softcap


@pytest.mark.parametrize(
    ("family", "flag"),
    [("qwen3", "has_qk_norm"), ("qwen2", "has_qkv_bias")],
)
def test_a_familys_flag_is_told(tmp_path, family, flag):
    assert getattr(shape_of(tmp_path, family, Serving("bfloat16")), flag)


def test_the_flags_of_serving_are_told(tmp_path):
    serving = Serving("bfloat16", "int8", 32, is_batch_invariant=True)

    shape = shape_of(tmp_path, "llama", serving)

    assert (shape.kv_kind, shape.block_size) == ("int8", 32)
    assert shape.is_batch_invariant


def test_matrices_that_are_rounded_in_different_groups_are_shapes_of_their_own(tmp_path):
    """96 and 160 inputs divide into groups of 32, those of six heads of 32 into groups of 64."""
    shapes = shapes_of(tmp_path, "llama", Serving("bfloat16", quantization="INT4"))

    weights = {shape.weights for shape in shapes}
    assert weights == {Weights("int4", size, has_zero_points=True) for size in (32, 64)}


def test_a_packed_checkpoint_is_as_it_is_packed_whatever_was_asked(tmp_path):
    save_tiny(tmp_path)
    _, blueprint = examine_model(tmp_path)
    packing = Packing("gptq", "gptq", 4, 64, has_zeros=False)

    shapes = kernel_shapes(
        replace(blueprint, packing=packing), Serving("float16", quantization="INT8"), SM_90
    )

    assert [shape.weights for shape in shapes] == [Weights("int4", 64)]
