"""A browser for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chromium import Chromium, chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with chromium() as found:
        yield found
