"""Where a CPU's own kernels run, a GGUF's matrices are multiplied as the codes that they are."""

from collections.abc import Callable
from functools import cache

import gguf
import pytest
import torch

from forebay_budget.rounding import GGML_GRIDS
from forebay_kernels.cpu.native_structs import InputForm
from forebay_kernels.cpu.packed_matrix import PackedMatrix
from forebay_runtime.loading.checkpoint import open_checkpoint
from forebay_runtime.loading.description import Description, describe_model
from forebay_runtime.models.link import ALONE
from forebay_runtime.models.placement import NativeForm, Placement
from forebay_runtime.models.product import Product, Row
from forebay_runtime.models.vocabulary import Embedding, Head
from forebay_runtime.models.weights import WeightReader
from tiny_model import build_tiny, save_gguf

CPU = torch.device("cpu")
PLAIN = Placement(torch.float32, CPU)
EXACT = Placement(torch.float32, CPU, native=NativeForm(torch.float32, InputForm.EXACT, 1))
SIZES = {"tie_word_embeddings": True, "hidden_size": 256, "intermediate_size": 512, "head_dim": 32}
QKV = {"q_proj": 256, "k_proj": 64, "v_proj": 64}

Save = Callable[..., Description]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """A tiny model whose matrices are of the given kinds, in turn."""

    @cache
    def save(*kinds: str) -> Description:
        # Rows of whole blocks, also of K-quants.
        model = build_tiny(num_attention_heads=8, num_key_value_heads=2, **SIZES)
        path = tmp_path_factory.mktemp("m") / "m.gguf"
        save_gguf(path, model, *(gguf.GGMLQuantizationType[kind] for kind in kinds))
        return describe_model(path)

    return save


def read(described: Description, placement: Placement) -> WeightReader:
    checkpoint = open_checkpoint(described.path, described.blueprint)
    return WeightReader(checkpoint, placement, described.blueprint)


def read_products(reader: WeightReader) -> list[Product]:
    layer = "model.layers.1"
    return [
        reader.linear(f"{layer}.self_attn", QKV, 256),
        reader.linear(f"{layer}.mlp", {"gate_proj": 512, "up_proj": 512}, 256),
        reader.split_inputs(f"{layer}.mlp.down_proj", 256, 512),
    ]


def check_equal(ours: torch.Tensor, expected: torch.Tensor) -> None:
    """Up to what scales lose as float16."""
    assert float((ours - expected).abs().max()) <= 2e-3 * float(expected.abs().max())


@pytest.mark.parametrize(
    "kinds",
    [
        *[pytest.param((kind,), id=kind) for kind in sorted(GGML_GRIDS)],
        pytest.param(("Q4_K", "Q6_K", "Q5_K"), id="as Q4_K_M mixes"),
        pytest.param(("Q8_0", "F16", "Q4_1"), id="with floats between"),
        pytest.param(("F16",), id="only floats"),
    ],
)
@pytest.mark.parametrize("num_rows", [1, 17])
def test_products_are_those_of_the_dequantised_matrices(
    saved: Save, kinds: tuple[str, ...], num_rows: int
) -> None:
    ours, plain = (read_products(read(saved(*kinds), each)) for each in (EXACT, PLAIN))
    for product, expected, size in zip(ours, plain, (256, 256, 512), strict=True):
        x = torch.randn(num_rows, size)
        check_equal(product(x), expected(x))
        out = expected(x)
        residual = torch.randn_like(out)
        check_equal(product.add_to(residual.clone(), x), residual + out)


@pytest.mark.parametrize(
    ("kinds", "num_parts"),
    [
        pytest.param(("Q4_1",), 1, id="all alike"),
        pytest.param(("Q4_K", "Q6_K", "Q5_K"), 3, id="all different"),
    ],
)
def test_matrices_of_one_format_are_one_product(
    saved: Save, kinds: tuple[str, ...], num_parts: int
) -> None:
    product = read(saved(*kinds), EXACT).linear("model.layers.0.self_attn", QKV, 256)

    assert (len(product.parts) if isinstance(product, Row) else 1) == num_parts


@pytest.mark.parametrize("kind", sorted(GGML_GRIDS))
def test_sizing_knows_what_packed_codes_take(saved: Save, kind: str) -> None:
    product = read(saved(kind), EXACT).split_inputs("model.layers.0.mlp.down_proj", 256, 512)

    assert product.num_bytes == GGML_GRIDS[kind].num_bytes(256 * 512, 512)


@pytest.mark.parametrize("kind", ["Q8_0", "Q6_K"])
def test_a_tied_embedding_is_packed_once_and_serves_both_ends(saved: Save, kind: str) -> None:
    described, ends = saved(kind), []
    sizes = described.inspection.config
    for placement in (EXACT, PLAIN):
        reader = read(described, placement)
        embedding = Embedding(sizes, reader, ALONE)
        ends.append((embedding, Head(sizes, reader, ALONE, embedding)))
    (embedding, head), (plain_embedding, plain_head) = ends
    token_ids, x = torch.tensor([0, 130, 7, 7]), torch.randn(3, 256)

    assert isinstance(embedding.weight, PackedMatrix)
    assert head.num_bytes == 0
    check_equal(embedding(token_ids), plain_embedding(token_ids))
    check_equal(head(x), plain_head(x))
