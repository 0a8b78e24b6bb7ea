"""What holds for every test: nothing is judged by the time it takes, which noise can stretch."""

import os

import pytest
from hypothesis import HealthCheck, settings

# As `forebay serve` does, and before torch is imported: threads that spin while they wait make a
# busy machine ten times as slow.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

pytest_plugins = ["interpreted"]

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none: it is no test there."""
    needing = [item for item in items if item.get_closest_marker("gpu") is not None]
    if not needing or _has_gpu():
        return
    items[:] = [item for item in items if item not in needing]
    config.hook.pytest_deselected(items=needing)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
