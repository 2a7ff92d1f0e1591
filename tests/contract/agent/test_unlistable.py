"""Pods on a node whose agent cannot list Services or read a Secret: they say why, start once it can, and can be deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1
from kube.client import Response
from kube.errors import StatusError
from kube.transport import HttpsTransport
from tests.support.control import ApiUnderTest
from tests.support.fake_node import create, waiting
from tests.support.node import FastClock, NodeUnderTest, agent_node

NOT_READ = "services have not yet been read at least once, cannot construct envvars"


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Resources in this set cannot be read by anybody who uses HTTPS."""
    found: set[str] = set()
    real = HttpsTransport.request

    async def request(self: HttpsTransport, method: str, path: str, **options: Any) -> Response:
        if method == "GET" and found & set(path.split("/")):
            raise StatusError(500, "InternalError", "Internal error occurred: conversion webhook failed")
        return await real(self, method, path, **options)

    monkeypatch.setattr(HttpsTransport, "request", request)
    yield found
    found.clear()


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, broken: set[str]
) -> AsyncIterator[NodeUnderTest]:
    async with agent_node(tmp_path, runtime, api, clock=clock, start=False) as node:
        yield node


@pytest.mark.parametrize("links", [True, False])
async def test_a_pod_whose_services_cannot_be_listed_reports_it_and_starts_once_they_can(
    node: NodeUnderTest, broken: set[str], links: bool
) -> None:
    broken.add("services")
    await node.start()
    await create(node, "p", enableServiceLinks=links)
    await create(node, "deleted", enableServiceLinks=links)
    assert await node.event("p", "Failed") == f"Error: {NOT_READ}"
    await node.wait("p", lambda pod: waiting(pod) == "CreateContainerConfigError")
    await node.delete("deleted")
    await node.gone("deleted")
    broken.clear()
    await node.ready("p")


async def test_a_pod_whose_secret_cannot_be_read_reports_it_and_starts_once_it_can(
    node: NodeUnderTest, broken: set[str]
) -> None:
    await node.client.create(core_v1.Secret(metadata=meta_v1.ObjectMeta(name="keys", namespace="default")))
    broken.add("secrets")
    await node.start()
    volumes = [{"name": "keys", "secret": {"secretName": "keys"}}]
    await create(node, "p", volumes=volumes)
    await create(node, "deleted", volumes=volumes)
    message = await node.event("p", "FailedMount")
    assert message.startswith("failed to sync secret cache: default/keys: ") and "conversion webhook failed" in message
    await node.delete("deleted")
    await node.gone("deleted")
    broken.clear()
    await node.ready("p")
