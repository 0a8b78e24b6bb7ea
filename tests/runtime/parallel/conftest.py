"""Ranks that all tests share: started once, they load one model after another."""

from collections.abc import Iterator

import pytest

from forebay_runtime.parallel.ensemble import disband
from forebay_runtime.parallel.followers import Followers


@pytest.fixture(scope="package")
def followers() -> Iterator[Followers]:
    """Three others: with this process four ranks, of which a test uses as many as it needs."""
    ranks = Followers(4, most_silent_seconds=120)
    yield ranks
    disband(ranks)
