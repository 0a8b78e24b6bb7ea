"""What the tests ask a served model, and what comes back, held against the one right text."""

from dataclasses import dataclass, field

from prompts import GreedyPath


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
