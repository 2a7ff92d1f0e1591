from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.followed_gateways import Followed, ingress_class, namespace, of_class
from tests.support.memory_api import MemoryAPI


@pytest.fixture
async def followed() -> AsyncIterator[Followed]:
    api = MemoryAPI()
    for each in (of_class(), ingress_class(), namespace("infra"), namespace("apps")):
        api.put(each)
    found = Followed(api)
    task = asyncio.create_task(found.informers.run())
    await found.informers.wait_synced()
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
