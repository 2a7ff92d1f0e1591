"""A browser for the tests; each of their tabs has its own cookies and storage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with chromium() as found:
        yield found
