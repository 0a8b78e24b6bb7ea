"""Text comes as tokens do: never half a character, never a part of a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_runtime.detokenizer import Detokenizer, StopStrings


def feed_bytes(data: bytes, stops: tuple[str, ...] = ()) -> list[str]:
    """What one byte a token gives, then what the end gives."""
    detokenizer = Detokenizer(lambda token_id: bytes([token_id]), stops)
    return [*map(detokenizer.feed, data), detokenizer.flush()]


def until_first_stop(text: str, stops: tuple[str, ...]) -> str:
    """The oracle: look at every beginning of the text, a character longer each time."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@given(st.text())
def test_characters_come_whole_and_in_order(text: str) -> None:
    parts = feed_bytes(text.encode())
    assert "".join(parts) == text
    assert all(len(part) <= 1 for part in parts)


def test_a_character_whose_end_never_comes_is_left_out() -> None:
    assert "".join(feed_bytes("ok 😀".encode()[:-1])) == "ok "


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    assert "".join(feed_bytes(b"a\xffb")) == "a\ufffdb"


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple),
    st.lists(st.integers(0, 30)),
)
def test_text_ends_before_the_first_stop_string_wherever_borders_fall(
    text: str, stops: tuple[str, ...], borders: list[int]
) -> None:
    watch = StopStrings(stops)
    cuts = [0, *sorted(min(border, len(text)) for border in borders), len(text)]
    given_out = ""
    for start, end in zip(cuts, cuts[1:], strict=False):
        given_out += watch.feed(text[start:end])
        assert until_first_stop(text, stops).startswith(given_out)  # nothing leaks on the way
    if not watch.is_stopped:
        given_out += watch.flush()
    assert given_out == until_first_stop(text, stops)
    assert watch.is_stopped == (given_out != text)


@pytest.mark.parametrize(
    ("text", "stops", "parts"),
    [
        ("ab", (), ["a", "b", ""]),
        ("a\nUser:", ("\nUser:",), ["a", *[""] * 7]),
        ("a\nUse it", ("\nUser:",), ["a", "", "", "", "", "\nUse ", "i", "t", ""]),
        ("a\nUse", ("\nUser:",), ["a", "", "", "", "", "\nUse"]),
    ],
    ids=["no-stop", "met", "nearly", "nearly-at-the-end"],
)
def test_what_may_become_a_stop_string_is_held_back(
    text: str, stops: tuple[str, ...], parts: list[str]
) -> None:
    assert feed_bytes(text.encode(), stops) == parts
