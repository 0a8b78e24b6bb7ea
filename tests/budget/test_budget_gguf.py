"""GGUF headers: what is read, and that no damage hurts more than a sentence."""

import io
import struct
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay_budget.ggml import GGML_TYPES
from forebay_budget.gguf import GgufTensor, read_gguf_header
from forebay_budget.inspection import ModelError
from model_files import gguf_bytes, gguf_string, gguf_value
from smollm2 import smollm2_path

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "a.flag": True,
    "a.float": 0.5,
    "tokenizer.ggml.tokens": ["<s>", "ö", "hello"],
    "tokenizer.ggml.scores": [0.5, -1.5],
    "empty": [],
}
TENSORS = {
    "token_embd.weight": ((4, 64), "Q4_1"),
    "output_norm.weight": ((64,), "F32"),
    "blk.0.attn_q.weight": ((64, 32), "F16"),
}
WHOLE = gguf_bytes(METADATA, TENSORS)


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_and_tensors_are_read(version: int) -> None:
    header = read_gguf_header(io.BytesIO(gguf_bytes(METADATA, TENSORS, version=version)))

    assert header.metadata == METADATA
    assert header.tensors == (
        GgufTensor("token_embd.weight", (4, 64), "Q4_1", 0),
        GgufTensor("output_norm.weight", (64,), "F32", 160),
        GgufTensor("blk.0.attn_q.weight", (64, 32), "F16", 416),
    )
    assert [tensor.num_bytes for tensor in header.tensors] == [4 * 64 // 32 * 20, 256, 4096]
    assert header.data_offset % 32 == 0
    assert header.data_offset + 416 + 4096 == len(WHOLE)


def test_a_file_of_the_format_authors_own_writer_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_block_count(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "ö"])
    writer.add_rope_freq_base(0.5)
    matrix = np.arange(128, dtype=np.float32).reshape(2, 64)
    writer.add_tensor("token_embd.weight", matrix)
    writer.add_tensor("output_norm.weight", np.ones(3, dtype=np.float16))
    packed = gguf.quants.quantize(matrix, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    header = read_gguf_header(tmp_path / "m.gguf")

    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "tokenizer.ggml.tokens": ["a", "ö"],
        "llama.rope.freq_base": 0.5,
    }
    assert [(t.name, t.shape, t.ggml_type_name) for t in header.tensors] == [
        ("token_embd.weight", (2, 64), "F32"),
        ("output_norm.weight", (3,), "F16"),
        ("q", (2, 64), "Q8_0"),
    ]
    data = (tmp_path / "m.gguf").read_bytes()
    for read, written in zip(header.tensors, (matrix, np.ones(3, np.float16), packed), strict=True):
        start = header.data_offset + read.offset
        assert data[start : start + read.num_bytes] == written.tobytes()


def test_the_real_model_is_read() -> None:
    header = read_gguf_header(smollm2_path())

    assert len(header.tensors) == 272
    assert sum(tensor.num_elements for tensor in header.tensors) == 134_515_008
    assert header.metadata["llama.rope.freq_base"] == 100_000.0
    tokens = header.metadata["tokenizer.ggml.tokens"]
    assert (len(tokens), tokens[:3]) == (49_152, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    end = max(tensor.offset + tensor.num_bytes for tensor in header.tensors)
    assert header.data_offset + end == smollm2_path().stat().st_size


def test_block_sizes_are_those_of_ggml() -> None:
    theirs = {
        kind.value: (kind.name, *sizes)
        for kind, sizes in gguf.GGML_QUANT_SIZES.items()
        if kind.value in GGML_TYPES
    }

    assert {
        number: (kind.name, kind.block_elements, kind.block_bytes)
        for number, kind in GGML_TYPES.items()
    } == theirs


def test_long_arrays_are_left_out_where_the_caller_wants_none() -> None:
    header = read_gguf_header(io.BytesIO(WHOLE), max_array_items=2)

    assert "tokenizer.ggml.tokens" not in header.metadata
    assert header.metadata["tokenizer.ggml.scores"] == [0.5, -1.5]
    assert len(header.tensors) == 3


def test_bytes_that_are_no_utf8_keep_their_value() -> None:
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("key") + struct.pack("<IQ", 8, 2)
    header = read_gguf_header(io.BytesIO(data + b"\xff\xfe"))

    assert header.metadata["key"].encode(errors="surrogateescape") == b"\xff\xfe"


def head(num_tensors: int, num_entries: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, num_tensors, num_entries)


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    entry = gguf_string(name) + struct.pack("<I", len(shape))
    return entry + struct.pack(f"<{len(shape)}QIQ", *shape, kind, offset)


HUGE = 2**62
ROOM = bytes(4096)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        pytest.param(b"", "ends after 0 bytes", id="an empty file"),
        pytest.param(b"PK\x03\x04" + ROOM, "letters GGUF", id="another format"),
        pytest.param(head(0, 0, 1), "version 1; known are 2 and 3", id="version 1"),
        pytest.param(head(0, 0, 9), "version 9", id="a version to come"),
        pytest.param(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian", id="big-endian"),
        pytest.param(head(HUGE, 0), "more than", id="a huge count of tensors"),
        pytest.param(head(0, HUGE), "more than", id="a huge count of entries"),
        pytest.param(head(60_000, 0) + ROOM, "within its header", id="more tensors than bytes"),
        pytest.param(
            head(0, 1) + struct.pack("<Q", HUGE) + ROOM, "within its header", id="a huge key"
        ),
        pytest.param(
            head(0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 0, HUGE) + ROOM,
            "within its header",
            id="a huge array of numbers",
        ),
        pytest.param(
            head(0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 8, HUGE) + ROOM,
            "within its header",
            id="a huge array of strings",
        ),
        pytest.param(
            head(0, 1) + gguf_string("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9,
            "unknown type 9",
            id="arrays nested too deeply",
        ),
        pytest.param(
            head(0, 1) + gguf_string("k") + struct.pack("<I", 77) + ROOM,
            "unknown type 77",
            id="an unknown type of value",
        ),
        pytest.param(
            head(0, 2) + (gguf_string("k") + gguf_value(1)) * 2 + ROOM,
            "names 'k' twice",
            id="a key twice",
        ),
        pytest.param(
            head(0, 1) + gguf_string("general.alignment") + gguf_value(24) + ROOM,
            "power of two",
            id="an alignment that is no power of two",
        ),
        pytest.param(
            head(0, 1) + gguf_string("general.alignment") + gguf_value(0) + ROOM,
            "power of two",
            id="an alignment of zero",
        ),
        pytest.param(
            head(1, 0) + gguf_string("t") + struct.pack("<I", 10**6) + ROOM,
            "1000000 dimensions",
            id="a million dimensions",
        ),
        pytest.param(
            head(1, 0) + tensor("t", (0,), 0, 0) + ROOM, "impossible shape", id="a zero dimension"
        ),
        pytest.param(
            head(1, 0) + tensor("t", (2**40, 2**40), 0, 0) + ROOM,
            "impossible shape",
            id="a product beyond 64 bits",
        ),
        pytest.param(
            head(1, 0) + tensor("t", (33,), 3, 0) + ROOM,
            "impossible shape",
            id="a row that is not whole blocks",
        ),
        pytest.param(
            head(1, 0) + tensor("t", (32,), 250, 0) + ROOM,
            "unknown type 250",
            id="an unknown type of tensor",
        ),
        pytest.param(
            head(1, 0) + tensor("t", (32,), 0, 8) + ROOM, "off the alignment", id="a crooked offset"
        ),
        pytest.param(
            head(2, 0) + tensor("t", (32,), 0, 0) + tensor("t", (32,), 0, 128) + ROOM,
            "the same name",
            id="a tensor twice",
        ),
        pytest.param(
            head(2, 0) + tensor("a", (32,), 0, 0) + tensor("b", (32,), 0, 32) + ROOM,
            "lies over another",
            id="tensors over each other",
        ),
        pytest.param(WHOLE[:-1], "was cut short", id="data that ends early"),
        pytest.param(
            gguf_bytes(METADATA, TENSORS, has_data=False), "was cut short", id="no data at all"
        ),
    ],
)
def test_damage_is_named(data: bytes, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint) as caught:
        read_gguf_header(io.BytesIO(data))

    assert caught.value.reason == "BadGguf"


def test_no_truncation_of_a_header_escapes_as_another_error() -> None:
    for length in range(len(WHOLE)):
        with pytest.raises(ModelError):
            read_gguf_header(io.BytesIO(WHOLE[:length]))


@settings(max_examples=300)
@given(st.binary(max_size=64), st.integers(0, len(WHOLE) - 1), st.integers(0, 64))
def test_no_corruption_escapes_as_another_error(noise: bytes, start: int, length: int) -> None:
    data = WHOLE[:start] + noise + WHOLE[start + length :]
    try:
        read_gguf_header(io.BytesIO(data))
    except ModelError as error:
        assert error.reason == "BadGguf"


def test_a_header_that_is_one_huge_hole_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "hole.gguf"
    with path.open("wb") as stream:
        stream.write(head(60_000, 60_000) + gguf_string("k") + struct.pack("<IIQ", 9, 0, 2**33))
        stream.truncate(2**34)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="longer than"):
            read_gguf_header(path)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 4 * 1024**2


def test_a_stream_that_cannot_tell_its_size_is_read_too() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    assert read_gguf_header(Pipe(WHOLE)).metadata == METADATA
    with pytest.raises(ModelError, match="within its header"):
        read_gguf_header(Pipe(WHOLE[:100]))
