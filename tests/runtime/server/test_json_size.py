"""A body is judged by how much it holds before it is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_runtime.server.api.bodies.body import parse_body
from forebay_runtime.server.api.bodies.completions import CompletionBody
from forebay_runtime.server.api.bodies.json_size import MAX_PARTS, MAX_VALUES, measure_json
from forebay_runtime.server.errors import BadRequest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('ab,[]{}"\\:')),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
)


def count_parts(value: Any) -> int:
    """The oracle: strings, lists and objects, one by one."""
    if isinstance(value, dict):
        return 1 + sum(1 + count_parts(inner) for inner in value.values())
    if isinstance(value, list):
        return 1 + sum(map(count_parts, value))
    return int(isinstance(value, str))


@given(VALUES, st.sampled_from([None, 2]))
def test_parts_are_counted_outside_of_texts_alone(value: Any, indent: int | None) -> None:
    assert measure_json(json.dumps(value, indent=indent).encode()).num_parts == count_parts(value)


def test_values_are_counted_by_the_commas_between_them() -> None:
    assert measure_json(b'[1,2,3,"4,5"]').num_values == 4


@pytest.mark.parametrize(
    ("item", "num_items"),
    [(b"1", MAX_VALUES + 1), (b"[1]", MAX_PARTS), (b'""', MAX_PARTS + 1), (b"{}", MAX_PARTS)],
    ids=["numbers", "lists", "texts", "objects"],
)
def test_a_body_of_too_many_values_is_refused_unread(item: bytes, num_items: int) -> None:
    filler = b'"user":"' + b"u" * 1024**2 + b'"'
    body = b"{" + filler + b',"prompt":[' + b",".join([item] * num_items) + b"]}"
    with pytest.raises(BadRequest, match=str(MAX_VALUES)):
        parse_body(CompletionBody, body)


def test_a_long_text_is_no_large_body() -> None:
    prompt = '[{"a": 1}, "b\\\\"],' * 1_000_000
    assert parse_body(CompletionBody, json.dumps({"prompt": prompt}).encode()).prompt == [prompt]
