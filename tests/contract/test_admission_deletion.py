"""Admission of a deletion: asked of the state that goes, and asked again where another one took its place meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.interfaces.admission import Attributes, Plugin
from control.registry import deletion
from control.registry.context import SERVER, Context
from control.registry.deletion_plan import DeleteOptions
from kube import errors
from kube.resources import RESOURCES
from tests.support.control import Answer, ApiUnderTest, api_server

PATH = "/api/v1/namespaces/default/configmaps"
MERGE = {"Content-Type": "application/merge-patch+json"}


class Protection(Plugin):
    """Refuses to delete what is labelled as protected; takes its time for the first answer."""

    name = "Protection"

    def __init__(self) -> None:
        self.received, self.go_on = asyncio.Event(), asyncio.Event()
        self.seen: list[tuple[str, dict[str, str]]] = []

    def handles(self, attributes: Attributes) -> bool:
        return attributes.resource.target == "configmaps" and attributes.operation == "DELETE"

    async def validate(self, attributes: Attributes) -> None:
        metadata = (attributes.old or {})["metadata"]
        self.seen.append((metadata["uid"], metadata.get("labels") or {}))
        if (metadata.get("labels") or {}).get("protected") == "true":
            raise errors.forbidden("", "configmaps", attributes.name, "protected")
        self.received.set()
        await self.go_on.wait()


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[tuple[ApiUnderTest, Protection]]:
    async with api_server(tmp_path) as server:
        admission, plugin = server.api.registry.admission, Protection()
        admission.install([*admission.plugins, plugin])
        assert (await server.request("POST", PATH, {"metadata": {"name": "x"}})).status == 201
        yield server, plugin


async def started_deletion(server: ApiUnderTest, plugin: Protection) -> asyncio.Task[Answer]:
    """Begin a deletion and return it when admission is being asked."""
    task = asyncio.create_task(server.request("DELETE", f"{PATH}/x"))
    async with asyncio.timeout(10):
        await plugin.received.wait()
    return task


async def test_what_becomes_protected_meanwhile_is_not_deleted(both: tuple[ApiUnderTest, Protection]) -> None:
    server, plugin = both
    task = await started_deletion(server, plugin)
    patch = {"metadata": {"labels": {"protected": "true"}}}
    assert (await server.request("PATCH", f"{PATH}/x", patch, headers=MERGE)).status == 200
    plugin.go_on.set()
    assert (await task).status == 403
    assert [labels for _, labels in plugin.seen] == [{}, {"protected": "true"}]
    assert (await server.request("GET", f"{PATH}/x")).status == 200


async def test_a_recreated_object_is_admitted_again(both: tuple[ApiUnderTest, Protection]) -> None:
    server, plugin = both
    task = await started_deletion(server, plugin)
    resource = next(r for r in RESOURCES if r.target == "configmaps")
    await deletion.delete(
        server.api.registry, Context(SERVER, admitted=True), resource, "default", "x", DeleteOptions()
    )
    metadata = {"name": "x", "labels": {"protected": "true"}}
    assert (await server.request("POST", PATH, {"metadata": metadata})).status == 201
    plugin.go_on.set()
    assert (await task).status == 403
    assert len({uid for uid, _ in plugin.seen}) == len(plugin.seen) == 2
    assert (await server.request("GET", f"{PATH}/x")).status == 200


async def test_an_unchanged_object_is_admitted_once(both: tuple[ApiUnderTest, Protection]) -> None:
    server, plugin = both
    plugin.go_on.set()
    assert (await server.request("DELETE", f"{PATH}/x")).status == 200
    assert len(plugin.seen) == 1
