"""Each rank reads its own part of the files, and what it cannot load is told in its own words."""

import resource
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors.torch import save_file

from engine_play import load_engine
from forebay_runtime.config import EngineConfig, StartError
from forebay_runtime.loading.checkpoint import Checkpoint, open_checkpoint
from forebay_runtime.loading.cut import ALL
from forebay_runtime.loading.description import describe_model
from forebay_runtime.loading.folder import FolderCheckpoint
from forebay_runtime.models.decoder import Decoder, DecoderConfig
from forebay_runtime.models.link import Alone
from forebay_runtime.models.placement import Placement
from forebay_runtime.models.shard import Shard, Stage
from forebay_runtime.parallel.followers import Followers
from forebay_runtime.server import loader
from forebay_runtime.server.options import ServeOptions
from parallel_play import FLAGS, SIZES
from tiny_model import build_tiny, save_gguf, save_tiny

CPU = Placement(torch.float32, torch.device("cpu"))
SPREADS = [
    pytest.param(4, 1, id="four-shards"),
    pytest.param(1, 2, id="two-stages"),
    pytest.param(2, 2, id="two-stages-of-two"),
]


@dataclass(frozen=True)
class Rank(Alone):
    """A link that says which part is its own, and reaches nobody."""

    shard: Shard


@dataclass
class Counting:
    """A checkpoint that counts the numbers that are read of each tensor."""

    real: Checkpoint
    counts: dict[str, int] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def read_into(
        self, name: str, out: torch.Tensor, rows: slice = ALL, columns: slice = ALL
    ) -> None:
        self.counts[name] = self.counts.get(name, 0) + out.numel()
        self.real.read_into(name, out, rows, columns)


def count_reads(path: Path, shard: Shard, stage: Stage) -> dict[str, int]:
    described = describe_model(path)
    checkpoint = Counting(open_checkpoint(described.path, described.blueprint))
    config = DecoderConfig(described.blueprint, 16)
    Decoder(config, checkpoint, CPU, Rank(shard), stage)  # type: ignore[arg-type]
    return checkpoint.counts


@pytest.fixture(params=["safetensors", "gguf"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "safetensors":
        save_tiny(tmp_path, num_hidden_layers=4, **SIZES)
        return tmp_path
    model = build_tiny(num_hidden_layers=4, **SIZES)
    save_gguf(tmp_path / "model.gguf", model, gguf.GGMLQuantizationType.Q8_0)
    return tmp_path / "model.gguf"


@pytest.mark.parametrize(("tp", "pp"), SPREADS)
def test_ranks_read_each_number_once_but_for_what_each_holds(path: Path, tp: int, pp: int) -> None:
    whole = count_reads(path, Shard(), Stage(0, 4, 4))
    per_stage = 4 // pp
    ranks = [
        count_reads(path, Shard(rank, tp), Stage(first, first + per_stage, 4))
        for first in range(0, 4, per_stage)
        for rank in range(tp)
    ]
    for name, count in whole.items():
        copies = 1
        if name.endswith("norm.weight"):
            copies = tp * (pp if name == "model.norm.weight" else 1)
        elif "k_proj" in name or "v_proj" in name:
            copies = max(1, tp // 2)
        assert sum(rank.get(name, 0) for rank in ranks) == copies * count, name
    most = max(sum(rank.values()) for rank in ranks)
    assert most < sum(whole.values()) / (tp * pp) * 1.35


@pytest.mark.parametrize(
    ("tp", "pp", "sentence"),
    [
        pytest.param(5, 1, "--tensor-parallel-size 5 does not divide", id="shards"),
        pytest.param(1, 5, "--pipeline-parallel-size 5 is more than the 4 layers", id="stages"),
    ],
)
def test_sizes_that_the_model_cannot_have_start_no_rank(
    path: Path, monkeypatch: pytest.MonkeyPatch, tp: int, pp: int, sentence: str
) -> None:
    started: list[EngineConfig] = []
    monkeypatch.setattr(loader, "start_followers", lambda config, on_loss: started.append(config))
    config = EngineConfig(model_path=path, tensor_parallel_size=tp, pipeline_parallel_size=pp)
    with pytest.raises(StartError, match=sentence):
        loader.load_model(str(path), config, ServeOptions("served"))
    assert started == []


def test_a_part_of_a_file_is_all_that_comes_into_memory(tmp_path: Path) -> None:
    """64 MiB of which a quarter is read; the kernel maps some pages around what is touched."""
    file = tmp_path / "model.safetensors"
    save_file({"matrix": torch.ones(4096, 4096)}, file)
    (tmp_path / "config.json").write_text("{}")
    checkpoint = FolderCheckpoint(tmp_path)
    checkpoint.read_into("matrix", out := torch.zeros(1024, 4096), slice(1024, 2048))
    assert out.sum() == out.numel()
    assert 16 * 2**20 <= resident_bytes(file) < 24 * 2**20


def resident_bytes(file: Path) -> int:
    """How much of a file this process has mapped into memory."""
    total, is_ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if not first.endswith(":"):
            is_ours = line.endswith(str(file))
        elif is_ours and first == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


def virtual_bytes(process_id: int) -> int:
    lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize:"))


@pytest.mark.component
def test_what_another_rank_cannot_load_is_told_in_its_own_words(
    tmp_path: Path, followers: Followers
) -> None:
    save_tiny(tmp_path, **SIZES)
    load_engine(tmp_path, followers, tensor_parallel_size=2, **FLAGS)
    victim = followers.process_ids[0]
    limits = resource.prlimit(victim, resource.RLIMIT_AS)
    # Room for weights and for the heaps of new threads, each of which reserves 64 MiB or 128.
    most_bytes = virtual_bytes(victim) + 384 * 2**20
    resource.prlimit(victim, resource.RLIMIT_AS, (most_bytes, limits[1]))
    try:
        with pytest.raises(StartError) as refusal:
            load_engine(
                tmp_path,
                followers,
                tensor_parallel_size=2,
                kv_cache_memory_bytes=768 * 2**20,
                **FLAGS,
            )
    finally:
        resource.prlimit(victim, resource.RLIMIT_AS, limits)
    assert "Rank 1 of 4: There is too little memory for the KV cache; lower" in str(refusal.value)
    load_engine(tmp_path, followers, tensor_parallel_size=2, **FLAGS)
