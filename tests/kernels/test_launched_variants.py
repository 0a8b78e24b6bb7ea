"""What engines launch is what `variants_of` says, so that warm-up meets all and CI compiled it."""

from collections import defaultdict

import pytest

pytest.importorskip("triton")

from forebay_budget.checkpoint import examine_model
from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.compiling.inventory import identity, variants_of
from forebay_runtime.assembly import build_engine
from forebay_runtime.config import EngineConfig
from forebay_runtime.start.kernel_shape import Serving, kernel_shapes
from recorded_launches import recorded_launches
from tiny_model import save_tiny

FLAGS = {"block_size": 16, "max_num_seqs": 3, "max_num_batched_tokens": 24, "max_model_len": 40}


@pytest.mark.parametrize(
    ("family", "flags", "serving"),
    [
        pytest.param("llama", {}, {}, id="llama"),
        pytest.param("qwen2", {}, {}, id="qwen2: biases"),
        pytest.param("qwen3", {}, {}, id="qwen3: norms of heads"),
        pytest.param("gemma2", {}, {}, id="gemma2: windows and caps"),
        pytest.param("mixtral", {}, {}, id="mixtral: a mixture"),
        pytest.param("qwen3_moe", {}, {}, id="qwen3_moe: products of a mixture alike in size"),
        pytest.param("llama", {"kv_cache_dtype": "fp8"}, {"kv_kind": "fp8"}, id="fp8 cache"),
        pytest.param("llama", {"kv_cache_dtype": "int8"}, {"kv_kind": "int8"}, id="int8 cache"),
        pytest.param("llama", {"kv_cache_dtype": "int4"}, {"kv_kind": "int4"}, id="int4 cache"),
        pytest.param("llama", {"quantization": "INT8"}, {"quantization": "INT8"}, id="int8"),
        pytest.param("llama", {"quantization": "INT4"}, {"quantization": "INT4"}, id="int4"),
        pytest.param(
            "mixtral", {"quantization": "INT4"}, {"quantization": "INT4"}, id="int4 mixture"
        ),
        pytest.param(
            "mixtral",
            {"batch_invariant": True},
            {"is_batch_invariant": True},
            id="batch-invariant mixture",
        ),
        pytest.param(
            "llama",
            {"batch_invariant": True},
            {"is_batch_invariant": True},
            id="batch-invariant",
        ),
    ],
)
def test_what_is_launched_is_what_the_variants_name(tmp_path, monkeypatch, family, flags, serving):
    # With as many numbers going into a mixture's experts as come out of them.
    save_tiny(tmp_path, family, **({"hidden_size": 128} if family == "qwen3_moe" else {}))
    _, blueprint = examine_model(tmp_path)
    shapes = kernel_shapes(blueprint, Serving("bfloat16", **serving), SM_90)
    named = [variant for shape in shapes for variant in variants_of(shape)]
    config = EngineConfig(tmp_path, device="cpu", dtype="bfloat16", **FLAGS, **flags)

    with recorded_launches(monkeypatch) as launched:
        build_engine(config).warm_up()

    assert launched
    assert unnamed(launched, named) == {}


def unnamed(launched, named):
    """By kernel: each launch that no variant names, beside the nearest that is named."""
    known = {identity(variant) for variant in named}
    found = defaultdict(list)
    for variant in {identity(each): each for each in launched}.values():
        if identity(variant) not in known:
            found[variant.name].append(differences(variant, named))
    return dict(found)


def differences(variant, named):
    """What tells a launch from the named variant of its kernel that differs least from it."""
    mine = facts(variant)
    others = [facts(each) for each in named if each.kernel is variant.kernel]
    if not others:
        return "no variant names this kernel"
    return min(((mine - other, other - mine) for other in others), key=lambda pair: len(pair[0]))


def facts(variant):
    launch = variant.launch
    return {
        ("warps and stages", launch.num_warps, launch.num_stages),
        *variant.signature.items(),
        *((name, repr(value)) for name, value in variant.constants.items()),
        *((name, "aligned") for name in variant.aligned),
    }
