"""Whose turn it is: the order of requests, and those that wait in it.

Imports no torch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from typing import Literal

from forebay_runtime.request import Request

Policy = Literal["fcfs", "priority"]
Order = Callable[[Request], tuple[int, int]]


def order_of(policy: Policy) -> Order:
    """The sort key of a policy; smaller is more urgent, and no two requests have the same."""
    if policy == "fcfs":
        return lambda request: (0, request.arrival_index)
    return lambda request: (request.priority, request.arrival_index)


class OrderedRequests:
    """Requests sorted by urgency, whenever they came or came back."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._requests: list[Request] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)

    def in_turn(self) -> Iterator[Request]:
        """The most urgent first; the one that was given may leave meanwhile, and nobody else."""
        place = 0
        while place < len(self._requests):
            request = self._requests[place]
            yield request
            place += self._requests[place : place + 1] == [request]

    def __getitem__(self, index: int) -> Request:
        return self._requests[index]

    def __contains__(self, request: Request) -> bool:
        index = self._place(request)
        return self._requests[index : index + 1] == [request]

    def is_before(self, one: Request, other: Request) -> bool:
        """Is one more urgent than the other, in this line's order?"""
        return self._order(one) < self._order(other)

    def first(self, number: int) -> list[Request]:
        """The most urgent ones."""
        return self._requests[:number]

    def add(self, request: Request) -> None:
        """Put a request in its place."""
        insort(self._requests, request, key=self._order)

    def remove(self, request: Request) -> None:
        """Take a request out.

        Raises: ValueError if it is not there.
        """
        if request not in self:
            raise ValueError(f"request {request.request_id} is not in this line")
        del self._requests[self._place(request)]

    def _place(self, request: Request) -> int:
        return bisect_left(self._requests, self._order(request), key=self._order)
