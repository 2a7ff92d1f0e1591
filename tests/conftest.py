"""Settings for all tests."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from control.storage import reserve

# Cost is judged in steps (tests/support/cost.py); wall-clock limits of an example would judge the machine.
settings.register_profile("wherry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wherry")


def pytest_collection_finish() -> None:
    """Keep modules and collected tests out of garbage collections: each took up to a second in a worker of a whole tier."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of databases of tests must not each take 16 MiB of the disk."""
    monkeypatch.setattr(reserve, "MAX_BYTES", 1 << 20)
