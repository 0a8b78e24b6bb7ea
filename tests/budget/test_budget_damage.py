"""Folders that are damaged, or hold other tensors than their config says, are refused."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_budget.checkpoint import inspect_model
from forebay_budget.inspection import ModelError
from forebay_budget.safetensors import INDEX_NAME, read_safetensors_header
from model_files import (
    TINY_LLAMA,
    llama_shapes,
    safetensors_bytes,
    write_hf_model,
    write_safetensors,
)


@given(st.data())
def test_no_damage_to_a_shards_header_escapes_as_another_error(data: st.DataObject) -> None:
    shapes = {"a": (2, 3), "b": (4,)}
    whole = safetensors_bytes(shapes)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    damaged = whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:]

    class Shard:
        name = "a.safetensors"

        def read(self, start: int, num_bytes: int) -> bytes:
            return damaged[start : start + num_bytes]

        def size(self) -> int:
            return len(damaged)

    try:
        read_safetensors_header(Shard())
    except ModelError as error:
        assert error.reason in ("BadSafetensors", "BadConfig")


def break_config(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def nest_config(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def lose_shard(folder: Path) -> None:
    (folder / "model-00002-of-00003.safetensors").unlink()


def point_index_elsewhere(folder: Path) -> None:
    (folder / INDEX_NAME).write_text(json.dumps({"weight_map": {"x": "../../etc/passwd"}}))


def empty_index(folder: Path) -> None:
    (folder / INDEX_NAME).write_text("{}")


def cut_data(folder: Path) -> None:
    shard = folder / "model-00001-of-00003.safetensors"
    with shard.open("r+b") as stream:
        stream.truncate(shard.stat().st_size - 1)


def cut_header(folder: Path) -> None:
    with (folder / "model-00001-of-00003.safetensors").open("r+b") as stream:
        stream.truncate(100)


def empty_shard(folder: Path) -> None:
    (folder / "model-00001-of-00003.safetensors").write_bytes(b"")


def claim_huge_header(folder: Path) -> None:
    with (folder / "model-00001-of-00003.safetensors").open("r+b") as stream:
        stream.write(struct.pack("<Q", 2**63))


def write_one(folder: Path, entry: dict[str, Any]) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "t": entry})
    data = struct.pack("<Q", len(header)) + header.encode() + bytes(64)
    (folder / "model-00001-of-00003.safetensors").write_bytes(data)


def contradict_size(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [3], "data_offsets": [8, 16]})


def overlap(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]})


def name_unknown_dtype(folder: Path) -> None:
    write_one(folder, {"dtype": "F12", "shape": [2], "data_offsets": [8, 16]})


def have_negative_shape(folder: Path) -> None:
    write_one(folder, {"dtype": "F32", "shape": [-1, -2], "data_offsets": [8, 16]})


def have_no_shape(folder: Path) -> None:
    write_one(folder, {"dtype": "F32"})


@pytest.mark.parametrize(
    ("damage", "reason", "complaint"),
    [
        pytest.param(break_config, "BadConfig", "config.json is not JSON", id="config.json broken"),
        pytest.param(nest_config, "BadConfig", "nests too deeply", id="config.json nested"),
        pytest.param(lose_shard, "IncompleteModel", "1 of the 3 shards", id="a shard is missing"),
        pytest.param(
            point_index_elsewhere, "IncompleteModel", "etc/passwd", id="an index that points away"
        ),
        pytest.param(empty_index, "BadSafetensors", "weight_map", id="an index that names none"),
        pytest.param(cut_data, "BadSafetensors", "cut short", id="data cut short"),
        pytest.param(cut_header, "BadSafetensors", "states a header", id="a header cut short"),
        pytest.param(empty_shard, "BadSafetensors", "no header", id="an empty shard"),
        pytest.param(
            claim_huge_header, "BadSafetensors", "9223372036854775808", id="a huge header"
        ),
        pytest.param(contradict_size, "BadSafetensors", "contradicts", id="a wrong size"),
        pytest.param(overlap, "BadSafetensors", "overlap", id="overlapping tensors"),
        pytest.param(name_unknown_dtype, "BadSafetensors", "'t'", id="an unknown dtype"),
        pytest.param(have_negative_shape, "BadSafetensors", "'t'", id="a negative shape"),
        pytest.param(have_no_shape, "BadSafetensors", "'t'", id="an entry without a shape"),
    ],
)
def test_damaged_folders_are_refused_with_the_cause(
    tmp_path: Path, damage: Any, reason: str, complaint: str
) -> None:
    damage(write_hf_model(tmp_path, num_shards=3))

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "dtype", "reason", "complaint"),
    [
        pytest.param(
            {"model.layers.1.mlp.up_proj.weight": None},
            "BF16",
            "IncompleteModel",
            "lacks 1 of the 21 tensors .* model.layers.1.mlp.up_proj.weight",
            id="a tensor is missing",
        ),
        pytest.param(
            {"model.layers.0.self_attn.q_norm.weight": (16,)},
            "BF16",
            "UnsupportedConfig",
            "q_norm",
            id="a tensor is too many",
        ),
        pytest.param(
            {"model.embed_tokens.weight": (99, 64)},
            "BF16",
            "BadConfig",
            r"\[99, 64\], but by the config it should have \[100, 64\]",
            id="a shape contradicts the config",
        ),
        pytest.param({}, "F8_E4M3", "UnsupportedDtype", "F8_E4M3", id="eight-bit floats"),
    ],
)
def test_tensors_that_are_not_the_configs_are_refused(
    tmp_path: Path, change: dict[str, Any], dtype: str, reason: str, complaint: str
) -> None:
    write_hf_model(tmp_path)
    shapes = {n: s for n, s in (llama_shapes(TINY_LLAMA) | change).items() if s is not None}
    write_safetensors(tmp_path / "model.safetensors", shapes, dtype)

    with pytest.raises(ModelError, match=complaint) as caught:
        inspect_model(tmp_path)

    assert caught.value.reason == reason
