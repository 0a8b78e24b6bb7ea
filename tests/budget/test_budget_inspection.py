"""The inspection's JSON: what travels in a pod's termination message."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_budget.inspection import (
    MAX_JSON_BYTES,
    Inspection,
    ModelConfig,
    ModelError,
    WeightGroup,
)

CONFIG = ModelConfig("LlamaForCausalLM", 2, 64, 4, 2, 16, 96, 100, 512, False, "bfloat16")

groups = st.lists(
    st.builds(
        WeightGroup,
        st.sampled_from(["sharded", "replicated", "embedding"]),
        st.text("ABCDEFGHIJ_0123456789", min_size=1, max_size=12),
        st.integers(1, 2**50),
        st.integers(1, 2**50),
    ),
    max_size=200,
)


def build(weights: tuple[WeightGroup, ...]) -> Inspection:
    return Inspection(CONFIG, weights, "safetensors", "0123456789" * 4, None)


def test_what_was_written_reads_back_equal() -> None:
    inspection = build(
        (WeightGroup("sharded", "BF16", 10, 20), WeightGroup("embedding", "F32", 1, 4))
    )

    assert Inspection.from_json(inspection.to_json()) == inspection


def test_experts_and_windows_read_back_too() -> None:
    config = replace(CONFIG, window=4096, num_experts=8, num_experts_per_token=2)
    inspection = Inspection(replace(config, expert_intermediate_size=32), (), "gguf", "x")

    assert Inspection.from_json(inspection.to_json()) == inspection


def test_what_was_written_before_there_were_experts_and_windows_is_still_read() -> None:
    text = (
        '{"config":{"architecture":"LlamaForCausalLM","num_layers":2,"hidden_size":64,'
        '"num_heads":4,"num_kv_heads":2,"head_dim":16,"intermediate_size":96,"vocab_size":100,'
        '"max_position_embeddings":512,"tie_word_embeddings":false,"dtype":"bfloat16"},'
        '"weights":[["sharded","BF16",10,20]],"format":"safetensors","revision":"0123","quantization":null}'
    )
    inspection = Inspection.from_json(text)

    assert inspection.config == CONFIG
    assert inspection.to_json() == text


@given(groups)
def test_however_many_dtypes_the_json_fits_a_termination_message_and_keeps_the_sums(
    weights: list[WeightGroup],
) -> None:
    inspection = build(tuple(weights))
    text = inspection.to_json()

    assert len(text.encode()) <= MAX_JSON_BYTES
    read = Inspection.from_json(text)
    assert (read.num_parameters, read.weights_bytes) == (
        inspection.num_parameters,
        inspection.weights_bytes,
    )
    for kind in ("sharded", "replicated", "embedding"):
        elements = [
            sum(group.num_elements for group in one.weights if group.kind == kind)
            for one in (read, inspection)
        ]
        assert elements[0] == elements[1]


def test_two_hundred_dtypes_are_merged_from_the_smallest_on() -> None:
    weights = tuple(WeightGroup("sharded", f"TYPE_{n:03}", n, n) for n in range(1, 201))
    read = Inspection.from_json(build(weights).to_json())

    kept = {group.dtype for group in read.weights}
    assert "TYPE_200" in kept
    assert "TYPE_001" not in kept
    assert "OTHER" in kept


def test_an_absurd_name_is_an_error_and_no_longer_a_message() -> None:
    config = ModelConfig("A" * 4_000, 2, 64, 4, 2, 16, 96, 100, 512, False, "bfloat16")

    with pytest.raises(ModelError, match="over 3500"):
        Inspection(config, (), "gguf", "x").to_json()


GOOD = json.loads(build((WeightGroup("sharded", "BF16", 10, 20),)).to_json())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("[]", id="a list"),
        pytest.param('{"error": {}}', id="another document"),
        pytest.param(json.dumps(GOOD)[:-20], id="cut short"),
        pytest.param(json.dumps(GOOD | {"format": "pickle"}), id="an unknown format"),
        pytest.param(json.dumps(GOOD | {"weights": [["sharded", "BF16", 1]]}), id="a short row"),
        pytest.param(
            json.dumps(GOOD | {"config": GOOD["config"] | {"num_layers": "2"}}),
            id="a number as a string",
        ),
        pytest.param(
            json.dumps(GOOD | {"config": GOOD["config"] | {"num_layers": True}}),
            id="a boolean for a number",
        ),
    ],
)
def test_what_is_no_inspection_is_refused(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        Inspection.from_json(text)

    assert caught.value.reason == "BadInspection"
