"""Text comes as tokens do: never half a character, never a part of a stop string."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay_runtime.text.detokenizer import Detokenizer, StopStrings, TextRules


def spell_byte(token_id: int, keeps_special: bool) -> bytes:
    """A byte a token; the zero byte is special."""
    return bytes([token_id]) if token_id or keeps_special else b""


def feed_bytes(data: bytes, stops: tuple[str, ...] = ()) -> list[str]:
    """What one byte a token gives, then what the end gives."""
    detokenizer = Detokenizer(spell_byte, TextRules(stops))
    return [*map(detokenizer.feed, data), detokenizer.flush()]


def until_first_stop(text: str, stops: tuple[str, ...], includes_stop: bool = False) -> str:
    """The oracle: look at every beginning of the text, a character longer each time."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[:end] if includes_stop else text[: end - max(map(len, found))]
    return text


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8")))
def test_characters_come_whole_and_in_order(text: str) -> None:
    parts = feed_bytes(text.encode())
    assert "".join(parts) == text
    assert all(len(part) <= 1 for part in parts)


def test_a_character_whose_end_never_comes_is_left_out() -> None:
    assert feed_bytes("ok 😀".encode()[:-1]) == ["o", "k", " ", "", "", "", ""]


def test_bytes_that_are_no_text_become_the_replacement_character() -> None:
    assert "".join(feed_bytes(b"a\xffb")) == "a\ufffdb"


@given(
    st.text("abc", max_size=30),
    st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple),
    st.lists(st.integers(0, 30)),
    st.booleans(),
)
def test_text_ends_at_the_first_stop_string_wherever_borders_fall(
    text: str, stops: tuple[str, ...], borders: list[int], includes_stop: bool
) -> None:
    watch = StopStrings(stops, includes_stop)
    expected = until_first_stop(text, stops, includes_stop)
    cuts = [0, *sorted(min(border, len(text)) for border in borders), len(text)]
    given_out = ""
    for start, end in zip(cuts, cuts[1:], strict=False):
        given_out += watch.feed(text[start:end])
        assert expected.startswith(given_out)  # nothing leaks on the way
    assert given_out + watch.flush() == expected
    assert (watch.met is not None) == any(stop in text for stop in stops)


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


def test_stop_strings_are_watched_for_after_the_least_tokens_alone() -> None:
    detokenizer = Detokenizer(spell_byte, TextRules(("ab",), min_tokens=3))
    assert [detokenizer.feed(byte) for byte in b"ababab"] == ["a", "b", "a", "b", "", ""]
    assert detokenizer.stopped_by == "ab"


def test_characters_are_counted_as_they_are_completed() -> None:
    detokenizer = Detokenizer(spell_byte)
    counts = []
    for byte in "a€b".encode():
        counts.append(detokenizer.num_chars)
        detokenizer.feed(byte)
    assert counts == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        (TextRules(), "ab"),
        (TextRules(keeps_special=True), "a\0b"),
        (TextRules(kept_token_ids=frozenset({0})), "a\0b"),
    ],
    ids=["left-out", "all-kept", "this-one-kept"],
)
def test_special_tokens_are_text_where_the_rules_say_so(rules: TextRules, text: str) -> None:
    detokenizer = Detokenizer(spell_byte, rules)
    assert "".join(map(detokenizer.feed, b"a\0b")) == text
