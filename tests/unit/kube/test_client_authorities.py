"""The authorities that served ports name to clients, read off handshakes of TLS 1.2, which are not encrypted."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agent.server import listeners as agent_port
from bench.server import configuration
from control.server import serve as server_port
from kube import client_authorities, openssl, pki
from tests.support.handshake import shake

NOW = datetime.now(UTC)
SERVING = pki.new_ca("serving", NOW)


def first_answer(server: ssl.SSLContext) -> bytes:
    """Return what a server answers to a client's first message of TLS 1.2."""
    client = ssl.create_default_context(cadata=SERVING.cert_pem.decode())
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (client.wrap_bio(down, up, server_hostname="localhost"), server.wrap_bio(up, down, server_side=True))
    for end in ends:
        with pytest.raises(ssl.SSLWantReadError):
            end.do_handshake()
    return down.read()


def port_files(folder: Path) -> tuple[Path, Path]:
    pair = pki.issue(SERVING, "server", usages=(pki.SERVER,), sans=("localhost",), now=NOW)
    pair.save(folder, "server")
    return folder / "server.crt", folder / "server.key"


def authorities(folder: Path, *names: str) -> tuple[Path, list[bytes]]:
    """Return a file of new authorities, and their names as they are sent."""
    found = [pki.new_ca(name, NOW) for name in names]
    file = folder / f"{names[0]}.crt"
    file.write_bytes(b"".join(pair.cert_pem for pair in found))
    return file, [pair.certificate.subject.public_bytes() for pair in found]


def test_the_api_server_names_the_authorities_of_clients_and_of_proxies(tmp_path: Path) -> None:
    cert, key = port_files(tmp_path)
    (clients, one), (proxies, two) = authorities(tmp_path, "clients", "older"), authorities(tmp_path, "proxies")
    settings = msgspec.structs.replace(
        configuration(tmp_path, 0),
        cert_file=cert,
        key_file=key,
        client_ca_file=clients,
        requestheader_client_ca_file=proxies,
    )
    context = server_port.tls_context(settings)
    answer = first_answer(context)
    assert all(answer.count(name) == 1 for name in (*one, *two))
    assert shake(context, SERVING.cert_pem)[0] == "TLSv1.3"
    alone = msgspec.structs.replace(settings, requestheader_client_ca_file=None)
    assert two[0] not in first_answer(server_port.tls_context(alone))


def listener(folder: Path, clients: Path | None = None) -> agent_port.Listener:
    cert, key = port_files(folder)
    return agent_port.Listener(address="127.0.0.1", port=0, cert_file=cert, key_file=key, client_ca_file=clients)


def test_the_agent_names_the_authority_of_its_clients(tmp_path: Path) -> None:
    clients, names = authorities(tmp_path, "clients")
    context = agent_port.tls_context(listener(tmp_path, clients))
    assert first_answer(context).count(names[0]) == 1
    silent = agent_port.tls_context(listener(tmp_path))
    assert names[0] not in first_answer(silent) and silent.verify_mode == ssl.CERT_NONE


def test_names_that_fill_a_handshake_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients, names = authorities(tmp_path, "clients", "older")
    monkeypatch.setattr(client_authorities, "MOST_BYTES", sum(map(len, names)) - 1)
    context = agent_port.tls_context(listener(tmp_path, clients))
    answer = first_answer(context)
    assert not any(name in answer for name in names)
    assert context.verify_mode == ssl.CERT_OPTIONAL and len(context.get_ca_certs()) == 2


def test_without_access_to_openssl_certificates_are_still_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients, names = authorities(tmp_path, "clients")
    monkeypatch.setattr(openssl, "library", lambda: None)
    context = agent_port.tls_context(listener(tmp_path, clients))
    assert names[0] not in first_answer(context) and context.verify_mode == ssl.CERT_OPTIONAL
