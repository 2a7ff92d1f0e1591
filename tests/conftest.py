"""Settings for all tests."""

from __future__ import annotations

import gc
import itertools

import pytest
from hypothesis import HealthCheck, settings

from control.storage import reserve

# Cost is judged in steps (tests/support/cost.py); wall-clock limits of an example would judge the machine.
settings.register_profile("wherry", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("wherry")

_modules = itertools.count(1)


def _freeze() -> None:
    """Keep what there is out of later garbage collections: each took seconds in a worker of a whole tier."""
    gc.collect()
    gc.freeze()


def pytest_collection_finish() -> None:
    _freeze()


@pytest.fixture(scope="module", autouse=True)
def _short_collections() -> None:
    """Freeze what modules of tests have left, after some of them."""
    if next(_modules) % 10 == 0:
        _freeze()


@pytest.fixture(autouse=True)
def _small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of databases of tests must not each take 16 MiB of the disk."""
    monkeypatch.setattr(reserve, "MAX_BYTES", 1 << 20)
