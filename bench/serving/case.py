"""What a load is: how many clients, how many requests, how long."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Case:
    """A closed loop: each client sends its next request when its last one has ended.

    prompt_tokens are each request's own, behind shared_tokens that all of them begin with. Words
    are counted, each of which is about one token.
    """

    name: str
    num_clients: int
    num_requests: int
    prompt_tokens: int = 128
    output_tokens: int = 64
    shared_tokens: int = 0

    @property
    def title(self) -> str:
        """For a table's head."""
        shared = f"{self.shared_tokens} shared + " if self.shared_tokens else ""
        clients = "1 client" if self.num_clients == 1 else f"{self.num_clients} clients"
        return (
            f"{clients}, {shared}{self.prompt_tokens} prompt and {self.output_tokens} output tokens"
        )

    def shortened(self) -> Case:
        """As few requests as keep all clients busy once."""
        return replace(self, num_requests=max(self.num_clients, min(4, self.num_requests)))


MAIN_CASES = (
    Case("c1", 1, 24),
    Case("c8", 8, 40),
    Case("c32", 32, 64),
    Case("prefix", 4, 16, prompt_tokens=64, output_tokens=32, shared_tokens=1024),
)
EXTRA_CASES = (
    Case("c64", 64, 128),
    Case("long", 2, 4, prompt_tokens=6000, output_tokens=64),
)
