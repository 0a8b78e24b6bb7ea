"""What the load client makes of the bytes that came, and when they came."""

import json

import pytest
from serving.answer import Answer, AnswerError, Arrival, read_answer

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}


def event(**fields: object) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str, reason: str | None = None) -> bytes:
    return event(choices=[{"text": text, "finish_reason": reason}])


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


LAST = chunk(event(choices=[], usage=USAGE) + b"data: [DONE]\n\n") + chunk(b"")
STREAM = [
    (10.1, HEAD),
    (10.2, chunk(token("a"))),
    (10.4, chunk(token(""))),
    (10.6, chunk(token("b", "length"))),
    (10.7, LAST),
]
EXPECTED = Answer(
    ttft_seconds=pytest.approx(0.2),
    tpot_seconds=pytest.approx(0.2),
    latency_seconds=pytest.approx(0.7),
    output_tokens=3,
    prompt_tokens=7,
    cached_tokens=4,
)


def bytewise(arrivals: list[Arrival]) -> list[Arrival]:
    return [(when, bytes([byte])) for when, piece in arrivals for byte in piece]


def merged_head(arrivals: list[Arrival]) -> list[Arrival]:
    (_, head), (when, first), *rest = arrivals
    return [(when, head + first), *rest]


@pytest.mark.parametrize("split", [list, bytewise, merged_head], ids=lambda split: split.__name__)
def test_times_and_counts_are_those_of_the_stream_however_it_was_cut(split) -> None:
    assert read_answer(10.0, split(STREAM)) == EXPECTED


def test_a_body_without_chunks_is_read_to_its_end() -> None:
    plain = [
        (10.1, b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + token("a")),
        (10.3, token("b", "stop")),
    ]
    answer = read_answer(10.0, plain)
    assert (answer.output_tokens, answer.prompt_tokens) == (2, None)
    assert answer.tpot_seconds == pytest.approx(0.2)


def test_one_token_has_no_time_per_output_token() -> None:
    alone = [(10.1, HEAD), (10.2, chunk(token("a", "length"))), (10.3, chunk(b""))]
    assert read_answer(10.0, alone).tpot_seconds is None


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        ([], "closed before an answer"),
        ([(1.0, b"HTTP/1.1 200 OK\r\nTransf")], "closed before an answer"),
        ([(1.0, b"HTTP/1.1 429 Too Many\r\n\r\n"), (1.1, b"later")], "HTTP 429: later"),
        ([(1.0, HEAD + chunk(event(error={"message": "died"})))], "died"),
        ([(1.0, HEAD + chunk(b""))], "no token came"),
    ],
    ids=["nothing", "half a head", "a refusal", "an error within the stream", "an empty stream"],
)
def test_what_is_no_answer_is_an_error_that_says_what_came(
    arrivals: list[Arrival], said: str
) -> None:
    with pytest.raises(AnswerError, match=said):
        read_answer(0.0, arrivals)
