"""A real API server for tests: its own certificates, data folder and port, served over TLS on loopback.

`async with api_server(tmp_path) as server:` gives an `ApiUnderTest`: HTTPS clients as any user, a kubeconfig for kubectl, and
the server's parts. The fixture form, for modules of tests, is `server` in the conftest of tests/contract.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import yaml

from control.assembly.api_server import ApiServer
from control.config import ControlConfig
from control.controllers import manager
from control.controllers.identities import MANAGER, SCHEDULER, account_user
from control.controllers.manager import ControllerConfig
from control.scheduler import main as scheduler
from kube import pki_layout
from kube.build import user_agent
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.kubeconfig import Access
from kube.process import Result, run
from kube.transport import HttpsTransport
from tests.support.permissions import Permissions

ADMIN = ("kubernetes-admin", ("system:masters",))


@dataclass
class Answer:
    """An HTTP answer with its body read."""

    status: int
    headers: Any
    body: bytes

    @property
    def json(self) -> Any:
        zipped = self.headers.get("Content-Encoding") == "gzip"  # as large bodies are
        return json.loads(gzip.decompress(self.body) if zipped else self.body)


class ApiUnderTest:
    """A running server and ways to talk to it."""

    def __init__(self, api: ApiServer, keys: pki_layout.ClusterPKI, directory: Path) -> None:
        self.api, self.keys, self.directory = api, keys, directory
        self.url = f"https://127.0.0.1:{api.listener.port}"
        self._sessions: dict[tuple[str, tuple[str, ...]], aiohttp.ClientSession] = {}
        self._clients: list[Client] = []
        self.permissions = Permissions(api.auth.authorizer)
        """Permissions that the cluster's components requested, and those that were denied."""

    # -- identities -----------------------------------------------------------------------------------------------
    def certificate(self, name: str, groups: tuple[str, ...] = ()) -> tuple[Path, Path]:
        stem = "user-" + name.replace(":", "_").replace("/", "_") + "-".join(("", *groups)).replace(":", "_")
        cert, key = self.directory / f"{stem}.crt", self.directory / f"{stem}.key"
        if not cert.exists():
            pair = self.keys.client(name, groups, datetime.now(UTC))
            cert.write_bytes(pair.cert_pem)
            key.write_bytes(pair.key_pem)
        return cert, key

    def tls(self, name: str = "", groups: tuple[str, ...] = ()) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "pki" / "ca.crt"))
        if name:
            context.load_cert_chain(*self.certificate(name, groups))
        return context

    def kubeconfig(self, name: str = ADMIN[0], groups: tuple[str, ...] = ADMIN[1]) -> Path:
        cert, key = self.certificate(name, groups)
        path = self.directory / f"{cert.stem}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.directory / "pki" / "ca.crt")}
        user = {"client-certificate": str(cert), "client-key": str(key)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    # -- components -----------------------------------------------------------------------------------------------
    def account(self, name: str) -> Client:
        """Return a client in the server's process that acts as a controller's service account."""
        return self.api.client(account_user(name), user_agent("kube-controller-manager", name))

    async def controllers(self, config: ControllerConfig | None = None, clock: Clock = SYSTEM) -> None:
        """Run all controllers as `wherry up` does, each as its service account, until cancelled."""
        client = self.api.client(MANAGER, user_agent("kube-controller-manager"))
        await manager.run(client, config or ControllerConfig(), clock, clients=self.account)

    async def scheduler(self) -> None:
        """Run the scheduler as itself until cancelled."""
        await scheduler.run(self.api.client(SCHEDULER, user_agent("kube-scheduler")))

    # -- requests -------------------------------------------------------------------------------------------------
    def session(self, name: str = ADMIN[0], groups: tuple[str, ...] = ADMIN[1]) -> aiohttp.ClientSession:
        key = (name, groups)
        if key not in self._sessions:
            connector = aiohttp.TCPConnector(ssl=self.tls(name, groups), limit=0)
            self._sessions[key] = aiohttp.ClientSession(self.url, connector=connector, auto_decompress=False)
        return self._sessions[key]

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: tuple[str, tuple[str, ...]] = ADMIN,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """Send a request as a user; a body that is not bytes is sent as JSON."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = aiohttp.client.URL(self.url + path, encoded=True)
        async with self.session(*user).request(method, url, data=body, headers=sent, allow_redirects=False) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    def client(self, name: str = ADMIN[0], groups: tuple[str, ...] = ADMIN[1]) -> Client:
        """Return a typed client over HTTPS."""
        cert, key = self.certificate(name, groups)
        access = Access(
            server=self.url,
            ca=(self.directory / "pki" / "ca.crt").read_bytes(),
            certificate=cert.read_bytes(),
            key=key.read_bytes(),
        )
        client = Client(HttpsTransport(access))
        self._clients.append(client)
        return client

    async def full(self, *levels: str) -> None:
        """Take all seats of priority levels, what others lend included, and let nobody wait."""
        fairness = self.api.pipeline.fairness
        async with asyncio.timeout(30):
            while not all(level.uid for level in fairness.levels.values()):
                await asyncio.sleep(0.02)  # those that are stored are about to take the place of the defaults
        fairness.queue_timeout = 0
        for name in levels:
            fairness.levels[name].executing = fairness.seats

    def roomy(self, *levels: str) -> None:
        """Take back what `full` did."""
        fairness = self.api.pipeline.fairness
        fairness.queue_timeout = 15
        for name in levels:
            fairness.levels[name].executing = 0

    async def kubectl(self, *arguments: str, input: str = "", check: bool = True, timeout: float = 120) -> Result:
        """Run the real kubectl as the cluster's administrator."""
        config = str(self.kubeconfig())
        cache = str(self.directory / "kubectl-cache")
        argv = ["kubectl", "--kubeconfig", config, "--cache-dir", cache, *arguments]
        return await run(argv, input=input, check=check, timeout=timeout)

    async def close(self) -> None:
        for session in self._sessions.values():
            await session.close()
        for client in self._clients:
            await client.close()


@contextlib.asynccontextmanager
async def api_server(directory: Path, clock: Clock = SYSTEM, **changes: Any) -> AsyncIterator[ApiUnderTest]:
    """Start a server with its state under `directory`; `changes` replace fields of its configuration.

    Controllers and scheduler run only where `enable_controllers` and `enable_scheduler` are set. Whatever the test is about, no
    component of the cluster may have been refused anything in the meantime.
    """
    pki_directory = directory / "pki"
    keys = await asyncio.to_thread(pki_layout.ensure, pki_directory, now=datetime.now(UTC), hosts=("127.0.0.1",))
    config = ControlConfig(
        data_dir=directory / "data",
        cert_file=pki_directory / "apiserver.crt",
        key_file=pki_directory / "apiserver.key",
        client_ca_file=pki_directory / "ca.crt",
        ca_key_file=pki_directory / "ca.key",
        service_account_key_file=pki_directory / "sa.key",
        kubelet_client_cert_file=pki_directory / "apiserver-kubelet-client.crt",
        proxy_client_cert_file=pki_directory / "front-proxy-client.crt",
        proxy_client_key_file=pki_directory / "front-proxy-client.key",
        requestheader_client_ca_file=pki_directory / "front-proxy-ca.crt",
        kubelet_client_key_file=pki_directory / "apiserver-kubelet-client.key",
        bind_address="127.0.0.1",
        port=0,
        shutdown_timeout=2.0,
        enable_controllers=False,
        enable_scheduler=False,
    )
    config = msgspec.structs.replace(config, **changes)
    async with ApiServer.open(config, clock) as api:
        under_test = ApiUnderTest(api, keys, directory)
        beside = [asyncio.create_task(work, name=name) for name, work in api.embedded_components()]
        try:
            yield under_test
            assert not under_test.permissions.refused, under_test.permissions.refused
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            await under_test.close()
