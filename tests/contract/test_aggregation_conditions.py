"""Availability of extension servers: by the stored condition after a restart, before the documents, beside other conditions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from control.aggregation import availability, remote
from tests.support.aggregated import (
    AGGREGATED,
    APISERVICES,
    FLUNDERS,
    NAME,
    Started,
    aggregated,
    condition,
    extended,
    register,
    touch,
    until,
)
from tests.support.control import ApiUnderTest, api_server
from tests.support.extension import GROUP, ROOT, VERSION

pytestmark = pytest.mark.asyncio(loop_scope="module")
OTHER = {"type": "Reviewed", "status": "True", "reason": "R", "message": "by somebody else"}


@pytest_asyncio.fixture(loop_scope="module")
async def started(tmp_path: Path) -> AsyncIterator[Started]:
    async with aggregated(tmp_path) as found:
        yield found


async def freshness(server: ApiUnderTest) -> str:
    items = (await server.request("GET", "/apis", headers=AGGREGATED)).json["items"]
    shown = next(item for item in items if item["metadata"]["name"] == GROUP)
    return str(shown["versions"][0]["freshness"])


@pytest.mark.parametrize("available", [True, False])
async def test_a_restarted_server_goes_by_the_stored_condition_until_its_first_check(
    tmp_path: Path, *, available: bool
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with api_server(tmp_path) as server:
            behind = await stack.enter_async_context(extended(tmp_path))
            await register(server, behind)
            if not available:
                behind.healthy = False
                await touch(server)
                await condition(server, "False", "FailedDiscoveryCheck")
                behind.healthy = True
        behind.unanswered = (ROOT,)
        async with api_server(tmp_path) as again:

            async def registered() -> bool:
                return bool(again.api.aggregator.extensions.remotes)

            await until(registered)
            assert (await again.request("GET", FLUNDERS)).status == (200 if available else 503)
            assert await freshness(again) == "Stale", "its resources are not known yet"
            behind.unanswered = ()

            async def current() -> bool:
                await touch(again)
                return await freshness(again) == "Current"

            await until(current)
            await condition(again, "True", "Passed")
            assert (await again.request("GET", FLUNDERS)).status == 200


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3"])
async def test_an_extension_is_available_before_its_openapi_documents_are_read(
    started: Started, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, behind = started
    monkeypatch.setattr(remote, "DIAL_SECONDS", 300.0)
    behind.healthy = False
    await touch(server)
    await condition(server, "False", "FailedDiscoveryCheck")
    server.api.aggregator.extensions.remotes[GROUP, VERSION].part = None
    behind.healthy, behind.unanswered, requested = True, (path,), len(behind.received)
    await touch(server)
    await condition(server, "True", "Passed")
    assert (await server.request("GET", FLUNDERS)).status == 200

    async def waits() -> bool:
        return any(received[1] == path for received in behind.received[requested:])

    await until(waits)


async def test_a_condition_that_another_client_sets_during_a_check_is_kept(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, behind = started
    under_way, goes_on = asyncio.Event(), asyncio.Event()
    check = availability.check

    async def slow(*arguments: Any) -> availability.Verdict:
        under_way.set()
        await goes_on.wait()
        return await check(*arguments)

    behind.healthy = False
    monkeypatch.setattr(availability, "check", slow)
    await touch(server)
    await under_way.wait()
    stored = (await server.request("GET", f"{APISERVICES}/{NAME}")).json
    since = stored["status"]["conditions"][0]["lastTransitionTime"]
    stored["status"]["conditions"].append(OTHER | {"lastTransitionTime": since})
    assert (await server.request("PUT", f"{APISERVICES}/{NAME}/status", stored)).status == 200
    goes_on.set()
    await condition(server, "False", "FailedDiscoveryCheck")
    conditions = (await server.request("GET", f"{APISERVICES}/{NAME}")).json["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["Available", "Reviewed"]


async def test_another_reason_for_the_same_status_is_no_transition(started: Started) -> None:
    server, behind = started
    behind.healthy = False
    await touch(server)
    await condition(server, "False", "FailedDiscoveryCheck")
    stored = (await server.request("GET", f"{APISERVICES}/{NAME}")).json
    stored["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    assert (await server.request("PUT", f"{APISERVICES}/{NAME}/status", stored)).status == 200
    assert (await server.request("DELETE", "/api/v1/namespaces/default/services/flunder")).status == 200
    after = await condition(server, "False", "ServiceNotFound")
    assert after["lastTransitionTime"] == "2026-01-01T00:00:00Z"
