"""A client that calls before anything is there, and remembers what it was answered each time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from answers import Question
from prompts import greedy_paths

_QUESTION = Question(next(path for path in greedy_paths() if path.endpoint == "completion"), 4)


@dataclass(frozen=True)
class Attempt:
    """One call."""

    status: int | None
    """None: there was no HTTP answer at all."""
    retry_after: str | None = None
    text: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the model gave the right answer."""
        return self.status == 200 and self.text == _QUESTION.right_text

    @property
    def is_put_off(self) -> bool:
        """Whether the caller was told, in one of the two ways, to come again."""
        told = self.status == 503 and self.retry_after is not None
        return self.status is None or (told and 0 < int(self.retry_after or 0) <= 120)


@dataclass
class Impatient:
    """Calls one address again and again, by a new connection each time."""

    base_url: str
    model: str
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def num_right(self) -> int:
        """How many right answers it got."""
        return sum(attempt.is_right for attempt in self.attempts)

    @property
    def put_off(self) -> list[Attempt]:
        """What it got before the first right answer."""
        return self.attempts[: self._first_right]

    @property
    def served(self) -> list[Attempt]:
        """What it got from the first right answer on."""
        return self.attempts[self._first_right :]

    @property
    def _first_right(self) -> int:
        rights = [index for index, attempt in enumerate(self.attempts) if attempt.is_right]
        return rights[0] if rights else len(self.attempts)

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Keep calling until the block ends."""
        stop = threading.Event()

        def keep_calling() -> None:
            while not stop.is_set():
                self.attempts.append(self._call())
                stop.wait(0.1)

        caller = threading.Thread(target=keep_calling)
        caller.start()
        try:
            yield
        finally:
            stop.set()
            caller.join()

    def _call(self) -> Attempt:
        body = _QUESTION.to_body(self.model) | {"stream": False}
        del body["stream_options"]
        try:
            response = httpx.post(f"{self.base_url}/completions", json=body, timeout=60)
        except httpx.TransportError:
            return Attempt(None)
        text = response.json()["choices"][0]["text"] if response.is_success else response.text
        return Attempt(response.status_code, response.headers.get("Retry-After"), text)
