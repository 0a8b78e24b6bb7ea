"""Clients of a served model, as users would write them, that never retry.

Each is the official `openai` client or plain httpx, and either keeps its connection alive or opens
a new one for every request (`CLIENT_KINDS`).
"""

import json
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import httpx
import openai

from answers import Answer, Question

GIVE_UP_SECONDS = 240.0
"""How long a client waits for the next byte before it calls the server dead."""


class Client(Protocol):
    """One user, with at most one request at a time."""

    kind: str

    def ask(self, question: Question, answer: Answer) -> None:
        """Stream one answer into `answer`; raises whatever its library raises."""

    def close(self) -> None:
        """Close its connection."""


ClientKind = tuple[Literal["openai", "httpx"], Literal["kept-alive", "new-connection"]]
CLIENT_KINDS: tuple[ClientKind, ...] = (
    ("openai", "kept-alive"),
    ("httpx", "new-connection"),
    ("httpx", "kept-alive"),
    ("openai", "new-connection"),
)


def build_client(kind: ClientKind, base_url: str, model: str) -> Client:
    """Return a client of this kind for the API at `base_url` (which ends in /v1)."""
    library, connection = kind
    headers = {} if connection == "kept-alive" else {"Connection": "close"}
    build = OpenAIClient if library == "openai" else HttpxClient
    return build(" ".join(kind), headers, base_url, model)


class OpenAIClient:
    """The official client."""

    def __init__(self, kind: str, headers: dict[str, str], base_url: str, model: str) -> None:
        self.kind = kind
        self._model = model
        self._openai = openai.OpenAI(
            base_url=base_url,
            api_key="none",
            default_headers=headers,
            http_client=openai.DefaultHttpxClient(trust_env=False, verify=False),
            max_retries=0,
            timeout=GIVE_UP_SECONDS,
        )

    def ask(self, question: Question, answer: Answer) -> None:
        """Stream one answer."""
        body = question.to_body(self._model)
        if question.path.endpoint == "chat":
            chat = self._openai.chat.completions.create(**body)  # type: ignore[call-overload]
            pieces = ((c, c.choices[0].delta.content if c.choices else None) for c in chat)
        else:
            completion = self._openai.completions.create(**body)  # type: ignore[call-overload]
            pieces = ((c, c.choices[0].text if c.choices else None) for c in completion)
        for chunk, piece in pieces:
            answer.pieces += [piece] if piece else []
            if chunk.choices and chunk.choices[0].finish_reason:
                answer.finish_reason = chunk.choices[0].finish_reason
            if chunk.usage:
                answer.num_tokens = chunk.usage.completion_tokens

    def close(self) -> None:
        """Close its connection."""
        self._openai.close()


class HttpxClient:
    """Server-sent events read by hand: it also sees what the official client forgives."""

    def __init__(self, kind: str, headers: dict[str, str], base_url: str, model: str) -> None:
        self.kind = kind
        self._http = httpx.Client(
            headers=headers, timeout=GIVE_UP_SECONDS, trust_env=False, verify=False
        )
        self._base_url = base_url
        self._model = model

    def ask(self, question: Question, answer: Answer) -> None:
        """Stream one answer."""
        path = "chat/completions" if question.path.endpoint == "chat" else "completions"
        body = question.to_body(self._model)
        with self._http.stream("POST", f"{self._base_url}/{path}", json=body) as response:
            if response.is_error:
                response.read()
                raise httpx.HTTPStatusError(
                    f"{response.status_code} {response.text}",
                    request=response.request,
                    response=response,
                )
            for chunk in read_events(response.iter_lines()):
                _take(chunk, answer)

    def close(self) -> None:
        """Close its connection."""
        self._http.close()


def read_events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each server-sent event.

    Raises: ValueError where the stream ends without `[DONE]`, or goes on after it.
    """
    is_done = False
    for line in lines:
        if not line or line.startswith(":"):  # a comment: the server lives, and its answer waits
            continue
        if is_done or not line.startswith("data: "):
            raise ValueError(f"unexpected line in the stream: {line!r}")
        data = line.removeprefix("data: ")
        is_done = data == "[DONE]"
        if not is_done:
            yield json.loads(data)
    if not is_done:
        raise ValueError("the stream ended without [DONE]")


def _take(chunk: dict[str, Any], answer: Answer) -> None:
    if "error" in chunk:
        raise ValueError(f"the stream carried an error: {chunk['error']}")
    for choice in chunk["choices"]:
        piece = choice["delta"].get("content") if "delta" in choice else choice["text"]
        answer.pieces += [piece] if piece else []
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    if chunk.get("usage"):
        answer.num_tokens = chunk["usage"]["completion_tokens"]


def ask(client: Client, answer: Answer) -> None:
    """Let the client ask the answer's question, and keep an error instead of raising it."""
    try:
        client.ask(answer.question, answer)
    except Exception as error:  # whatever a library raises is what its user would see
        answer.error = error
