"""All compilations in one list: of few enough to compile in warm-up, and none of them twice."""

import pytest

pytest.importorskip("triton")

from forebay_kernels.gpu.architecture import SHIPPED, SM_90
from forebay_kernels.gpu.compiling.inventory import identity, shipped, variants_of
from forebay_kernels.gpu.compiling.shipped_shapes import llama_3_1_8b

MOST_COMPILATIONS = 150


@pytest.mark.parametrize("architecture", SHIPPED, ids=lambda each: each.name)
def test_all_that_is_shipped_is_few_enough_to_compile(architecture):
    variants = shipped(architecture)

    assert len(variants) == len(set(map(identity, variants))) <= MOST_COMPILATIONS


@pytest.mark.parametrize("architecture", SHIPPED, ids=lambda each: each.name)
def test_names_tell_all_that_is_shipped_apart(architecture):
    names = [variant.name for variant in shipped(architecture)]

    assert len(names) == len(set(names))


def test_a_model_reaches_what_is_shipped_for_it():
    reached = set(map(identity, variants_of(llama_3_1_8b(SM_90))))

    assert reached <= set(map(identity, shipped(SM_90)))
