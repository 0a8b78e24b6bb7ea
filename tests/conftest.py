"""What holds for every test: nothing is judged by the time it takes, which noise can stretch."""

import os

from hypothesis import HealthCheck, settings

# As `forebay serve` does, and before torch is imported: threads that spin while they wait make a
# busy machine ten times as slow.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

pytest_plugins = ["interpreted"]

settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
