"""A cluster that other machines can join: a real API server with its controllers, its documents published, and a token."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kube import pki, pki_layout
from kube.api import core_v1
from kube.bootstrap_tokens import Token
from kube.client import Client
from kube.clock import SYSTEM
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from tests.support.control import ApiUnderTest, api_server
from wherry import published, tokens
from wherry.settings import Settings

INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"
WRONG_PIN = "sha256:" + "ab" * 32


class JoinableCluster:
    """A cluster that other machines can join, and a token."""

    def __init__(self, api: ApiUnderTest, settings: Settings, token: Token) -> None:
        self.api, self.settings, self.token = api, settings, token
        self.admin = api.client()
        self.ca = api.keys.ca.cert_pem
        self.pin = pki.ca_hash(api.keys.ca.certificate)

    def as_joining(self, token: Token | None = None) -> Client:
        access = Access(server=self.api.url, ca=self.ca, token=str(token or self.token))
        client = Client(HttpsTransport(access))
        self.api._clients.append(client)
        return client

    async def signatures(self) -> set[str]:
        data = (await self.admin.get(core_v1.ConfigMap, "cluster-info", "kube-public")).data
        return {key.removeprefix("jws-kubeconfig-") for key in data if key.startswith("jws-kubeconfig-")}


@contextlib.asynccontextmanager
async def joinable_cluster(path: Path) -> AsyncIterator[JoinableCluster]:
    keys = pki_layout.ensure(path / "pki", now=SYSTEM.now(), hosts=("127.0.0.1", "192.0.2.100"))
    async with api_server(path, enable_controllers=True) as api:
        assert api.keys.apiserver.cert_pem == keys.apiserver.cert_pem
        settings = Settings(
            prefix=str(path / "first"),
            node_name="n1",
            node_ip="127.0.0.1",
            api_port=int(api.url.rpartition(":")[2]),
            cluster_dns="10.96.0.10",
        )
        api.keys.ca.save(settings.layout.pki, "ca")
        client = api.client()
        await published.publish(client, settings)
        yield JoinableCluster(api, settings, await tokens.create(client))


async def until(look: Callable[[], Any], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await look():
            await asyncio.sleep(0.02)
