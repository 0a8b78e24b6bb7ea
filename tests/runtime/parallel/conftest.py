"""Ranks that all tests share: started once, they load one model after another."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay_runtime.parallel.followers import Followers
from forebay_runtime.parallel.rank_link import leave_world
from parallel_play import SIZES
from tiny_model import save_tiny


@pytest.fixture(scope="package")
def followers() -> Iterator[Followers]:
    """Three others: with this process four ranks, of which a test uses as many as it needs."""
    ranks = Followers(4, most_silent_seconds=120)
    yield ranks
    ranks.close()
    leave_world()


@pytest.fixture(scope="package")
def make_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a tiny model of a family, once for the same sizes."""
    made: dict[str, Path] = {}

    def make(family: str, **sizes: Any) -> Path:
        key = f"{family}{sizes}"
        if key not in made:
            made[key] = tmp_path_factory.mktemp(family)
            save_tiny(made[key], family, **{**SIZES, **sizes})
        return made[key]

    return make
