"""A pod's answer is read from whatever parts it comes in, and only where it is plain and whole."""

import pytest

from forebay_operator.loads.request import read_answer

OK = b"HTTP/1.1 200 OK\r\n"
LONG = OK + b"content-length: 2\r\nServer: x\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "is_over", "body"),
    [
        (LONG + b"{}", False, b"{}"),
        (LONG + b"{}more", False, b"{}"),
        (LONG + b"{", False, None),
        (LONG[:10], False, None),
        (OK + b"\r\n{}", False, None),
        (OK + b"\r\n{}", True, b"{}"),
        (b"HTTP/1.0 200 \r\n\r\n", True, b""),
    ],
    ids=[
        "whole",
        "more than it said",
        "the body has begun",
        "the head has begun",
        "an end that is not known yet",
        "an end that is the connection's",
        "no body",
    ],
)
def test_an_answer_is_read_once_it_is_whole(
    answer: bytes, is_over: bool, body: bytes | None
) -> None:
    assert read_answer(answer, is_over) == body


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (LONG + b"{", "cut short"),
        (LONG[:30], "no end"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503"),
        (b"200\r\n\r\n", "'200'"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "encoded"),
        (OK + b"Content-Encoding: gzip\r\n\r\n", "encoded"),
        (OK + b"Content-Length: many\r\n\r\n", "many"),
    ],
    ids=[
        "a part of the body",
        "a part of the head",
        "another status",
        "no HTTP",
        "in chunks",
        "compressed",
        "a length that is none",
    ],
)
def test_any_other_answer_is_none(answer: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_answer(answer, is_over=True)
