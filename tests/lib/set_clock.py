"""A clock that stands still until the test sets it."""


class SetClock:
    """Called, it says `now`, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now
