"""The connection to etcd while its TLS files are renewed, with a server that answers one call in etcd's place."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from control.storage.etcd.cluster import Cluster, Tls
from control.storage.etcd.messages import StatusRequest, StatusResponse
from control.storage.store import Unavailable
from kube import pki
from tests.support.ports import reserve

PATH = "/etcdserverpb.Maintenance/Status"


async def status(request: StatusRequest, context: Any) -> StatusResponse:
    found = StatusResponse()
    found.header.revision = 7
    return found


@contextlib.asynccontextmanager
async def member(port: int, authority: pki.KeyPair) -> AsyncIterator[None]:
    """Serve those who show a certificate of an authority, under a certificate of it."""
    leaf = pki.issue(authority, "etcd", usages=(pki.SERVER,), sans=["127.0.0.1"], now=datetime.now(UTC))
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        status, StatusRequest.FromString, lambda answer: answer.SerializeToString()
    )
    service, _, method = PATH.strip("/").partition("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    credentials = grpc.ssl_server_credentials([(leaf.key_pem, leaf.cert_pem)], authority.cert_pem, True)
    server.add_secure_port(f"127.0.0.1:{port}", credentials)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


def write(directory: Path, authority: pki.KeyPair) -> Tls:
    leaf = pki.issue(authority, "client", now=datetime.now(UTC))
    tls = Tls(directory / "ca.crt", directory / "client.crt", directory / "client.key")
    for file, text in zip((tls.ca_file, tls.cert_file, tls.key_file), (authority, leaf, leaf), strict=True):
        assert file is not None
        file.write_bytes(text.key_pem if file.suffix == ".key" else text.cert_pem)
    return tls


async def test_a_member_that_refuses_the_old_certificate_is_shown_the_one_on_disk(tmp_path: Path) -> None:
    before, after = (pki.new_ca(name, datetime.now(UTC)) for name in ("before", "after"))
    (port,) = reserve(1)
    cluster = Cluster([f"https://127.0.0.1:{port}"], write(tmp_path, before))
    try:
        async with member(port, before):
            assert (await cluster.call(PATH, StatusRequest(), StatusResponse)).header.revision == 7
        async with member(port, after):
            with pytest.raises(Unavailable):
                await cluster.call(PATH, StatusRequest(), StatusResponse, deadline=0.2)
            write(tmp_path, after)
            assert (await cluster.call(PATH, StatusRequest(), StatusResponse)).header.revision == 7
        (tmp_path / "client.key").unlink()  # as while it is written anew: what was read before is good still
        with pytest.raises(Unavailable):
            await cluster.call(PATH, StatusRequest(), StatusResponse, deadline=0.2)
        async with member(port, after):
            assert (await cluster.call(PATH, StatusRequest(), StatusResponse)).header.revision == 7
    finally:
        await cluster.close()
