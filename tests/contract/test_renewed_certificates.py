"""Certificates and authorities that are renewed while servers and clients run, as seen from the other side of a connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from agent.server import listeners as agent
from control.components import standalone
from control.scheduler.configuration import ExtenderConfig
from control.scheduler.extender import Extender
from kube import kubeconfig, pki
from kube.errors import StatusError
from kube.serving.aiohttp_runner import BoundedRunner
from kube.transport import HttpsTransport
from tests.support.control import ADMIN, ApiUnderTest, api_server

NOW = datetime.now(UTC)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        yield server


def write(directory: Path, name: str, authority: pki.KeyPair) -> bytes:
    """Write a new serving certificate (in place of the one that is there) and return its DER bytes."""
    pair = pki.issue(authority, name, usages=(pki.SERVER,), sans=["127.0.0.1"], now=NOW)
    pair.save(directory, name)
    return ssl.PEM_cert_to_DER_cert(pair.cert_pem.decode())


async def shown(port: int) -> bytes | None:
    """Return the certificate that a server shows on a new connection."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    try:
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(True)
        return found
    finally:
        writer.close()


@asynccontextmanager
async def kubelet_port(directory: Path) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is asked")

    listener = agent.Listener(
        address="127.0.0.1", port=0, cert_file=directory / "serving.crt", key_file=directory / "serving.key"
    )
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(agent.serve(app, listener, started.set_result))
    try:
        yield await started
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def health_port(directory: Path) -> AsyncIterator[int]:
    files = {"cert_file": directory / "serving.crt", "key_file": directory / "serving.key"}
    runner = BoundedRunner(web.Application())
    await runner.setup()
    try:
        await runner.listen("127.0.0.1", 0, standalone.serving(standalone.Options("scheduler", 0, **files)).current)
        yield runner.port
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("port", [kubelet_port, health_port], ids=["kubelet", "scheduler"])
async def test_a_renewed_serving_certificate_is_shown_to_the_next_client(tmp_path: Path, port: Any) -> None:
    authority = pki.new_ca("test", NOW)
    first = write(tmp_path, "serving", authority)
    async with port(tmp_path) as number:
        assert await shown(number) == first
        second = write(tmp_path, "serving", authority)
        assert await shown(number) == second != first
        (tmp_path / "serving.key").write_bytes(pki.encode_key(pki.new_key()))
        assert await shown(number) == second


async def test_the_api_server_shows_its_renewed_certificate_and_keeps_its_connections(api: ApiUnderTest) -> None:
    assert (await api.request("GET", "/api")).status == 200
    before = api.api.listener.table.authenticated
    renewed = write(api.directory / "pki", "apiserver", api.keys.ca)
    assert await shown(api.api.listener.port) == renewed
    assert (await api.request("GET", "/api")).status == 200
    assert api.api.listener.table.authenticated == before


async def test_a_client_authority_that_is_added_is_believed_and_one_that_is_removed_is_not(api: ApiUnderTest) -> None:
    other = pki.new_ca("other", NOW)
    bundle = api.directory / "pki" / "ca.crt"
    own = bundle.read_bytes()
    stranger = ("stranger", ADMIN[1])
    pki.issue(other, *stranger, now=NOW).save(api.directory, "user-stranger-system_masters")
    bundle.write_bytes(own + other.cert_pem)
    assert (await api.request("GET", "/api/v1/namespaces", user=stranger)).status == 200
    bundle.write_bytes(own)
    assert (await api.request("GET", "/api/v1/namespaces", user=stranger)).status == 401
    assert (await api.request("GET", "/api/v1/namespaces")).status == 200


@dataclass
class Asked:
    """A server that notes the serial numbers of its clients' certificates and closes each connection after its answer."""

    directory: Path
    authority: pki.KeyPair = field(default_factory=lambda: pki.new_ca("ca", NOW))
    serials: list[int] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def renew(self) -> int:
        """Write a new client certificate in place of the one that is there; return its serial number."""
        pair = pki.issue(self.authority, "client", now=NOW)
        pair.save(self.directory, "client")
        return pair.certificate.serial_number

    @asynccontextmanager
    async def serving(self, authority: pki.KeyPair) -> AsyncIterator[None]:
        """Serve with a certificate of an authority."""

        async def answer(request: web.Request) -> web.Response:
            assert request.transport is not None
            self.serials.append(int(request.transport.get_extra_info("peercert")["serialNumber"], 16))
            return web.json_response({}, headers={"Connection": "close"})

        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        write(self.directory, "server", authority)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        tls.load_verify_locations(cadata=self.authority.cert_pem.decode())
        tls.verify_mode = ssl.CERT_REQUIRED
        runner = BoundedRunner(application)
        await runner.setup()
        try:
            await runner.listen("127.0.0.1", self.port, lambda: tls)
            self.port = runner.port
            yield
        finally:
            await runner.cleanup()


async def test_a_client_with_a_kubeconfig_follows_its_certificate_and_authority(tmp_path: Path) -> None:
    requested, other = Asked(tmp_path), pki.new_ca("other", NOW)
    first = requested.renew()
    (tmp_path / "ca.crt").write_bytes(requested.authority.cert_pem)
    async with requested.serving(requested.authority):
        document = {
            "clusters": [{"name": "c", "cluster": {"server": requested.url, "certificate-authority": "ca.crt"}}],
            "users": [{"name": "u", "user": {"client-certificate": "client.crt", "client-key": "client.key"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
        transport = HttpsTransport(kubeconfig.load(tmp_path / "kubeconfig"))
        await transport.request("GET", "/")
        second = requested.renew()
        await transport.request("GET", "/")
        assert requested.serials == [first, second]
    async with requested.serving(other):
        with pytest.raises(StatusError, match="certificate verify failed"):
            await transport.request("GET", "/")
        (tmp_path / "ca.crt").write_bytes(other.cert_pem)
        await transport.request("GET", "/")
    assert requested.serials == [first, second, second]
    await transport.close()


async def test_an_extender_is_shown_a_renewed_certificate(tmp_path: Path) -> None:
    requested = Asked(tmp_path)
    first = requested.renew()
    (tmp_path / "ca.crt").write_bytes(requested.authority.cert_pem)
    files = {"ca_file": "ca.crt", "cert_file": "client.crt", "key_file": "client.key"}
    async with requested.serving(requested.authority):
        extender = Extender(
            ExtenderConfig(requested.url, **{name: str(tmp_path / file) for name, file in files.items()})
        )
        await extender._post("filter", {})
        second = requested.renew()
        await extender._post("filter", {})
        await extender.close()
    assert requested.serials == [first, second]
