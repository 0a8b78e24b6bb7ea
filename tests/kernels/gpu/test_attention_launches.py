"""What attention launches is fixed by sizes alone, so a captured graph holds for any lengths."""

from typing import Any

import pytest
import torch

from attention_batches import Heads
from forebay_kernels import ops
from forebay_kernels.attention_rule import AttentionRule
from forebay_kernels.gpu.architecture import SM_90
from forebay_kernels.gpu.attention import decode, paged_attention, prefill, split
from forebay_kernels.gpu.attention.plan import DeviceAttentionPlan
from forebay_kernels.gpu.attention.split import Splits, choose_splits
from forebay_kernels.gpu.compiling.shipped_shapes import gemma_2_9b, llama_3_1_8b
from forebay_kernels.kv_layer import KvLayer
from forebay_kernels.ragged import Ragged

MODULES = {
    "attention_decode": decode,
    "attention_prefill": prefill,
    "attention_reduce": split,
}


class Recorder:
    """A kernel that is launched on nothing: keeps its grid and arguments, tensors by their form."""

    def __init__(self, name: str, launches: list[Any]) -> None:
        self._name = name
        self._launches = launches

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(**arguments: Any) -> None:
            told = {
                name: (value.shape, value.dtype) if isinstance(value, torch.Tensor) else value
                for name, value in arguments.items()
            }
            self._launches.append((self._name, tuple(grid), told))

        return launch


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    for name, module in MODULES.items():
        monkeypatch.setattr(module, name, Recorder(name, found))
    return found


def attend(query_lens: tuple[int, ...], seq_lens: tuple[int, ...], num_rows: int) -> None:
    """On tensors without data: whoever would read a number of them fails."""
    num_seqs = len(query_lens)
    heads = Heads(32, 8, 128)
    k, v = torch.empty(2, 999, 16, 8, 128, dtype=torch.bfloat16, device="meta")
    starts, lens = (
        torch.empty(size, dtype=torch.int32, device="meta") for size in (num_seqs + 1, num_seqs)
    )
    tables = torch.empty(num_seqs, 500, dtype=torch.int32, device="meta")
    slots = torch.empty(num_rows, dtype=torch.int64, device="meta")
    plan = DeviceAttentionPlan(Ragged(query_lens, seq_lens, tables, slots, starts, lens))
    q = torch.empty(num_rows, heads.num_heads, heads.head_dim, dtype=torch.bfloat16, device="meta")
    out = paged_attention.paged_attention(q, KvLayer(k, v), plan, AttentionRule())
    assert out.shape == q.shape


def names(launches: list[Any]) -> list[str]:
    return [name for name, _, _ in launches]


@pytest.mark.parametrize(
    ("query_lens", "seq_lens", "others", "num_rows"),
    [
        pytest.param((1, 1), (3, 9), (7000, 1), 2, id="decodes"),
        pytest.param((1, 1, 1, 1), (3, 9, 0, 0), (8000, 8000, 1, 2), 4, id="padded-decodes"),
        pytest.param((1, 9), (3, 9), (7000, 4000), 16, id="mixed"),
    ],
)
def test_launches_and_workspaces_do_not_depend_on_lengths(
    launches: list[Any],
    query_lens: tuple[int, ...],
    seq_lens: tuple[int, ...],
    others: tuple[int, ...],
    num_rows: int,
) -> None:
    attend(query_lens, seq_lens, num_rows)
    first = list(launches)
    launches.clear()
    attend(query_lens, others, num_rows)
    assert launches == first


@pytest.mark.parametrize(
    ("query_lens", "kernels"),
    [
        pytest.param((1, 1), ["attention_decode", "attention_reduce"], id="decodes"),
        pytest.param((1,) * 300, ["attention_decode"], id="decodes-that-fill-the-gpu"),
        pytest.param((5, 2), ["attention_prefill"], id="prompts"),
        pytest.param(
            (1, 5), ["attention_decode", "attention_reduce", "attention_prefill"], id="mixed"
        ),
    ],
)
def test_each_row_is_one_kernels(
    launches: list[Any], query_lens: tuple[int, ...], kernels: list[str]
) -> None:
    attend(query_lens, query_lens, sum(query_lens))
    assert names(launches) == kernels


def test_one_kernel_computes_all_where_batches_must_not_show(launches: list[Any]) -> None:
    with ops.batch_invariant(True):
        attend((1, 5), (1, 5), 6)
        attend((1, 1), (1, 1), 2)
    assert names(launches) == ["attention_prefill"] * 2
    constants = [
        {name: told[name] for name in ("ROWS", "TILE", "IN_ORDER")} for _, _, told in launches
    ]
    assert constants[0] == constants[1]


@pytest.mark.parametrize(
    ("num_programs", "most_keys", "splits"),
    [
        pytest.param(8, 131_072, Splits(33, 256), id="one sequence fills the GPU by parts"),
        pytest.param(1, 131_072, Splits(128, 256), id="no more parts than the most"),
        pytest.param(8, 1_000, Splits(4, 256), id="no part with fewer keys than the least"),
        pytest.param(8, 100, Splits(1, 256), id="short tables are not split"),
        pytest.param(512, 131_072, Splits(3, 4096), id="a full GPU splits long sequences alone"),
        pytest.param(512, 2_048, Splits(1, 4096), id="a full GPU splits no short ones"),
        pytest.param(4_096, 131_072, Splits(1, 4096), id="a batch of many needs no balance"),
    ],
)
def test_parts_are_as_many_as_fill_the_gpu(
    num_programs: int, most_keys: int, splits: Splits
) -> None:
    assert choose_splits(num_programs, most_keys, num_sms=132) == splits


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES.keys())
def test_a_variant_names_each_argument_once(module: Any) -> None:
    for shape in (llama_3_1_8b(SM_90), gemma_2_9b(SM_90)):
        for variant in module.variants(shape):
            named = [*variant.signature, *variant.constants]
            assert sorted(named) == sorted(variant.kernel.arg_names)
