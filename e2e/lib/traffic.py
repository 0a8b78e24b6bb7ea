"""Clients of a served model, as users would write them, that remember everything that went wrong.

A client never retries. Each is the official `openai` client or plain httpx, and either keeps its
connection alive or opens a new one for every request (`CLIENT_KINDS`). Answers are compared, whole,
with the one right text of prompts.py.
"""

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import httpx
import openai

from prompts import GreedyPath, greedy_paths

GIVE_UP_SECONDS = 240.0
"""How long a client waits for the next byte before it calls the server dead."""


@dataclass(frozen=True)
class Question:
    """A greedy request for the first `num_tokens` of a known path."""

    path: GreedyPath
    num_tokens: int

    @property
    def right_text(self) -> str:
        """The only right answer."""
        return self.path.text(self.num_tokens)

    def to_body(self, model: str) -> dict[str, object]:
        """Return the JSON of a streamed request."""
        body: dict[str, object] = {
            "model": model,
            "max_tokens": self.num_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.path.endpoint == "chat":
            return body | {"messages": [{"role": "user", "content": self.path.prompt}]}
        return body | {"prompt": self.path.prompt}


@dataclass
class Answer:
    """What came back, as far as it came: filled while it streams."""

    question: Question
    client: str
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    num_tokens: int | None = None
    error: Exception | None = None

    @property
    def text(self) -> str:
        """All that was streamed."""
        return "".join(self.pieces)

    @property
    def fault(self) -> str:
        """What is wrong with it, in a sentence; empty when it is whole and right."""
        prompt = (
            f"{self.client}, {self.question.path.prompt!r} for {self.question.num_tokens} tokens"
        )
        if self.error is not None:
            cause = f"{self.error!r} ({self.error.__cause__!r})"
            return f"{prompt}: {cause} after {len(self.pieces)} pieces"
        got = (self.text, self.finish_reason, self.num_tokens)
        wanted = (self.question.right_text, "length", self.question.num_tokens)
        return "" if got == wanted else f"{prompt}: got {got!r}, wanted {wanted!r}"


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


def read_events(lines: Iterator[str]) -> Iterator[dict[str, object]]:
    """Yield the JSON of each server-sent event.

    Raises: ValueError where the stream ends without `[DONE]`, or goes on after it.
    """
    is_done = False
    for line in lines:
        if not line:
            continue
        if is_done or not line.startswith("data: "):
            raise ValueError(f"unexpected line in the stream: {line!r}")
        data = line.removeprefix("data: ")
        is_done = data == "[DONE]"
        if not is_done:
            yield json.loads(data)
    if not is_done:
        raise ValueError("the stream ended without [DONE]")


def _take(chunk: dict, answer: Answer) -> None:  # type: ignore[type-arg]
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


class Stream:
    """One request in a thread of its own; `answer` fills while it runs."""

    def __init__(self, kind: ClientKind, base_url: str, model: str, question: Question) -> None:
        self.answer = Answer(question, " ".join(kind))
        self._client = build_client(kind, base_url, model)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def finish(self) -> Answer:
        """Wait for its end."""
        self._thread.join()
        return self.answer

    def _run(self) -> None:
        ask(self._client, self.answer)
        self._client.close()


class Traffic:
    """Everything that the clients of one served model ask, and every answer they got."""

    def __init__(self, base_url: str, model: str) -> None:
        self._base_url = base_url
        self._model = model
        self._answers: list[Answer] = []
        self._kinds = itertools.cycle(CLIENT_KINDS)
        self._questions = itertools.count()

    @property
    def num_answers(self) -> int:
        """How many requests have ended or are under way."""
        return len(self._answers)

    @property
    def faults(self) -> list[str]:
        """A sentence for each answer that is not whole and right."""
        return [answer.fault for answer in self._answers if answer.fault]

    def open_stream(self, num_tokens: int) -> Stream:
        """Begin one long answer; kinds of clients and prompts take turns."""
        stream = Stream(next(self._kinds), self._base_url, self._model, self._question(num_tokens))
        self._answers.append(stream.answer)
        return stream

    def ask_together(self, lengths: list[int]) -> None:
        """Ask so many questions at the same time and wait for all answers."""
        for stream in [self.open_stream(num_tokens) for num_tokens in lengths]:
            stream.finish()

    @contextmanager
    def going_on(
        self, num_tokens: int, pause_seconds: float, num_rounds: int = 1
    ) -> Iterator[None]:
        """Keep `num_rounds` clients of every kind asking until the block ends."""
        stop = threading.Event()
        askers = [
            threading.Thread(target=self._keep_asking, args=(kind, num_tokens, pause_seconds, stop))
            for kind in CLIENT_KINDS * num_rounds
        ]
        for asker in askers:
            asker.start()
        try:
            yield
        finally:
            stop.set()
            for asker in askers:
                asker.join()

    def _keep_asking(
        self, kind: ClientKind, num_tokens: int, pause_seconds: float, stop: threading.Event
    ) -> None:
        client = build_client(kind, self._base_url, self._model)
        while not stop.is_set():
            answer = Answer(self._question(num_tokens), client.kind)
            self._answers.append(answer)
            ask(client, answer)
            stop.wait(pause_seconds)
        client.close()

    def _question(self, num_tokens: int) -> Question:
        paths = greedy_paths()
        return Question(paths[next(self._questions) % len(paths)], num_tokens)
