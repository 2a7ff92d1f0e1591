"""That joining which fails half-way is undone, and that the commands say who may run them where."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kube.bootstrap_tokens import Token
from wherry import certificate_bundle, check, cluster, join, membership, published, starting, storage
from wherry.discovery import Discovered
from wherry.errors import WherryError
from wherry.join import Credentials
from wherry.join_files import Identity
from wherry.main import app
from wherry.settings import Settings

SERVER = "https://192.0.2.1:6443"
WORKER = Credentials(SERVER, Token("abcdef", "0123456789abcdef"), "sha256:" + "ab" * 32)
MEMBER = Credentials(WORKER.server, WORKER.token, WORKER.pin, "ab" * 32)
SHARED = {
    "pod_cidr": "10.50.0.0/16",
    "service_cidr": "10.60.0.0/16",
    "cluster_dns": "10.60.0.10",
    "pod_network": "none",
    "store": "sqlite",
}


@pytest.fixture
def undone(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """Stand in for the cluster and the machine; return what was removed again."""
    taken: list[Settings] = []

    async def discover(server: str, token: Token, pin: str) -> Discovered:
        return Discovered(server, b"CA")

    async def read(client: Any) -> published.Published:
        return published.Published({"kind": "KubeletConfiguration"}, {"kind": "KubeProxyConfiguration"}, dict(SHARED))

    async def free(client: Any, name: str) -> None:
        return

    async def signed(client: Any, kind: Any, node_name: str) -> Identity:
        from kube import pki

        return Identity(pki.new_key(), b"CERTIFICATE")

    async def reset(settings: Settings) -> None:
        taken.append(settings)

    monkeypatch.setattr(check, "require", lambda settings, running: None)
    monkeypatch.setattr(join, "discover", discover)
    monkeypatch.setattr(published, "read", read)
    monkeypatch.setattr(join, "_require_free_name", free)
    monkeypatch.setattr(join, "_signed", signed)
    monkeypatch.setattr(join, "reset", reset)
    monkeypatch.setattr("wherry.containerd.write_configuration", lambda settings: None)
    return taken


def machine(path: Path) -> Settings:
    return Settings(prefix=str(path), node_name="n2", node_ip="192.0.2.2")


async def test_settings_published_by_the_cluster_are_used(
    undone: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def started(settings: Settings) -> None:
        return

    @contextlib.asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[None]:
        raise WherryError("the API server does not respond")
        yield

    monkeypatch.setattr(cluster, "connect", connect)
    monkeypatch.setattr(starting, "start_worker", started)
    settings = await join.join(machine(tmp_path), WORKER)
    assert (settings.role, settings.joined, settings.server) == ("worker", SERVER, SERVER)
    assert (settings.pod_cidr, settings.service_cidr, settings.cluster_dns) == (
        "10.50.0.0/16",
        "10.60.0.0/16",
        "10.60.0.10",
    )
    assert settings.pod_network == "none"
    assert settings.layout.settings.exists() and undone == []
    for path in (settings.layout.agent_kubeconfig, settings.layout.netproxy_kubeconfig):
        assert path.stat().st_mode & 0o777 == 0o600
        assert "abcdef" not in path.read_text()


@pytest.mark.parametrize("error", [WherryError("the node is not Ready"), OSError("no room"), asyncio.CancelledError()])
async def test_a_start_that_fails_or_is_interrupted_is_undone(
    error: BaseException, undone: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def failing(settings: Settings) -> None:
        raise error

    monkeypatch.setattr(starting, "start_worker", failing)
    with pytest.raises(type(error)):
        await join.join(machine(tmp_path), WORKER)
    assert [settings.node_name for settings in undone] == ["n2"]


@pytest.mark.parametrize("name", ["webhook.shop.svc", "n2.cluster.local", "kubernetes"])
async def test_a_machine_does_not_join_by_a_name_of_services(name: str, undone: list[Settings], tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), node_name=name, node_ip="192.0.2.2")
    with pytest.raises(WherryError, match=rf"^--node-name {name}: .*; choose another name$"):
        await join.join(settings, WORKER)
    assert undone == [] and not settings.layout.settings.exists()


async def test_what_fails_before_the_machine_is_touched_leaves_no_file(
    undone: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def unsigned(client: Any, kind: Any, node_name: str) -> Identity:
        raise WherryError("the cluster has not signed a certificate")

    monkeypatch.setattr(join, "_signed", unsigned)
    with pytest.raises(WherryError, match="has not signed"):
        await join.join(machine(tmp_path), WORKER)
    assert os.listdir(tmp_path) == [] and undone == []


async def test_a_cluster_in_sqlite_takes_no_second_member(undone: list[Settings], tmp_path: Path) -> None:
    with pytest.raises(WherryError, match=r"stored in SQLite.*`wherry store migrate --etcd-servers"):
        await join.join(machine(tmp_path), MEMBER)
    assert os.listdir(tmp_path) == [] and undone == []


async def test_a_member_that_cannot_reach_etcd_is_undone(
    undone: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def download(client: Any, key: str) -> certificate_bundle.Bundle:
        return certificate_bundle.Bundle({}, {"etcd_servers": "https://192.0.2.1:2379"})

    async def unreachable(settings: Settings) -> None:
        assert settings.etcd_servers == "https://192.0.2.1:2379"
        raise WherryError("etcd does not answer")

    monkeypatch.setitem(SHARED, "store", "etcd")
    monkeypatch.setattr(certificate_bundle, "download", download)
    monkeypatch.setattr(join, "write_member", lambda settings, bundle: settings)
    monkeypatch.setattr(storage, "reach", unreachable)
    with pytest.raises(WherryError, match="etcd does not answer"):
        await join.join(machine(tmp_path), MEMBER)
    assert [(s.node_name, s.role, s.server) for s in undone] == [("n2", "control-plane", "https://192.0.2.2:6443")]


@pytest.mark.parametrize(
    "command", [["join", SERVER], ["token", "create"], ["token", "list"], ["token", "delete", "x"]]
)
def test_joining_and_tokens_are_for_root(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership.os, "geteuid", lambda: 1000)
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, WherryError)
    assert str(result.exception) == "this needs root: run it with sudo"


def test_joining_a_machine_that_is_already_a_node_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(membership.os, "geteuid", lambda: 0)
    Settings(prefix=str(tmp_path), node_name="n7", role="worker", joined=SERVER).save()
    options = ["--token", str(WORKER.token), "--discovery-token-ca-cert-hash", WORKER.pin, "--prefix", str(tmp_path)]
    result = CliRunner().invoke(app, ["join", "https://192.0.2.99:6443", *options])
    assert str(result.exception).startswith(f"this machine already is node n7 of the cluster at {SERVER}: ")


async def test_a_worker_is_seen_through_its_own_nodes_eyes(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), role="worker", joined=SERVER)
    with pytest.raises(WherryError, match=r"agent\.kubeconfig: no such file"):
        async with cluster.connect(settings):
            pass


def test_an_unknown_server_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*arguments: Any, **options: Any) -> list[Any]:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(join.socket, "getaddrinfo", unknown)
    with pytest.raises(WherryError, match="knows no way to https://first:6443: check the name or address"):
        join.address_towards("https://first:6443")
