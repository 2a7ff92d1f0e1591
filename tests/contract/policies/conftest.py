"""A server for the tests of a module, without policies, bindings and webhooks at the beginning of each."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.admission_policies import delete_policies, policy_server
from tests.support.control import ApiUnderTest


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with policy_server(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def server(started: ApiUnderTest) -> AsyncIterator[ApiUnderTest]:
    yield started
    await delete_policies(started)
