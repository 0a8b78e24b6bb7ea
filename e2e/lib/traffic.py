"""Everything that the clients of one served model ask, side by side, and every answer they got."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from answers import Answer, Question
from clients import CLIENT_KINDS, ClientKind, ask, build_client
from prompts import greedy_paths


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
