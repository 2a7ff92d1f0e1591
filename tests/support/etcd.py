"""Real etcd for tests: one member or three, on free loopback ports, with or without TLS, in a folder of the test's own.

A member is started, killed with SIGKILL and started again by name; what it had stored stays in its folder. Where machines
(host.py) are named, each has one member, on upstream's ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from control.storage.etcd.cluster import Tls
from control.storage.etcd.store import EtcdStore
from kube import pki
from tests.support.host import Host
from tests.support.ports import reserve

ETCD = shutil.which("etcd")
ETCDCTL = shutil.which("etcdctl")
needs_etcd = pytest.mark.skipif(ETCD is None, reason="etcd is missing (Debian: etcd-server)")
needs_etcdctl = pytest.mark.skipif(ETCDCTL is None, reason="etcdctl is missing (Debian: etcd-client)")
START_SECONDS = 30.0


@dataclass
class Member:
    """One etcd process and where it listens."""

    name: str
    client_port: int
    peer_port: int
    directory: Path
    address: str = "127.0.0.1"
    enter: list[str] = field(default_factory=list)
    """Command that enters the machine's namespaces, put before the process's own."""
    argv: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert self.process is None
        with (self.directory / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen([*self.enter, *self.argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process at once, as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


class Etcd:
    """A cluster of members."""

    def __init__(
        self,
        directory: Path,
        members: int,
        tls: bool,
        machines: Sequence[Host] = (),
        ports: Sequence[tuple[int, int]] = (),
    ) -> None:
        """`ports`: of clients and of peers for each member, by default free ones of this process's loopback."""
        self.directory, self.tls = directory, tls
        directory.mkdir(parents=True, exist_ok=True)
        self.scheme = "https" if tls else "http"
        self.ca_file, self.cert_file, self.key_file = (directory / name for name in ("ca.crt", "etcd.crt", "etcd.key"))
        if machines:
            places = enumerate(machines)
            self.members = [Member(f"m{i}", 2379, 2380, directory, host.address, host.enter) for i, host in places]
        else:
            free = reserve(2 * members) if not ports else []
            ports = ports or list(zip(free[::2], free[1::2], strict=True))
            self.members = [Member(f"m{i}", *ports[i], directory) for i in range(members)]
        if tls:
            self._certificates()
        whole = ",".join(f"{m.name}=http://{m.address}:{m.peer_port}" for m in self.members)
        for member in self.members:
            member.argv = self._argv(member, whole)

    def _certificates(self) -> None:
        now = datetime.now(UTC)
        ca = pki.new_ca("etcd-ca", now=now)
        # One pair for both sides, as a member is also its own gateway's client.
        names, usages = (
            ["127.0.0.1", "localhost", *(member.address for member in self.members)],
            (pki.SERVER, pki.CLIENT),
        )
        pair = pki.issue(ca, "etcd", usages=usages, sans=names, now=now)
        self.ca_file.write_bytes(ca.cert_pem)
        self.cert_file.write_bytes(pair.cert_pem)
        self.key_file.write_bytes(pair.key_pem)

    def _argv(self, member: Member, whole: str) -> list[str]:
        assert ETCD is not None
        url, peer = self._url(member), f"http://{member.address}:{member.peer_port}"
        argv = [ETCD, "--name", member.name, "--data-dir", str(self.directory / member.name), "--log-level", "warn"]
        argv += ["--listen-client-urls", url, "--advertise-client-urls", url]
        argv += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", whole]
        argv += ["--logger", "zap", "--heartbeat-interval", "50", "--election-timeout", "500"]
        if self.tls:
            argv += ["--cert-file", str(self.cert_file), "--key-file", str(self.key_file)]
            argv += ["--client-cert-auth", "--trusted-ca-file", str(self.ca_file)]
        return argv

    def _url(self, member: Member) -> str:
        return f"{self.scheme}://{member.address}:{member.client_port}"

    @property
    def servers(self) -> list[str]:
        return [self._url(member) for member in self.members]

    async def start(self) -> None:
        for member in self.members:
            member.start()
        for member in self.members:
            await self.wait_healthy(member)

    async def wait_healthy(self, member: Member) -> None:
        """Wait until a member answers linearizable reads."""
        context: ssl.SSLContext | bool = True
        if self.tls:
            context = ssl.create_default_context(cafile=str(self.ca_file))
            context.load_cert_chain(self.cert_file, self.key_file)
        url = f"{self._url(member)}/health"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
            async with asyncio.timeout(START_SECONDS):
                while True:
                    assert member.process is not None and member.process.poll() is None, self.log(member)
                    with contextlib.suppress(aiohttp.ClientError):
                        async with session.get(url) as answer:
                            if answer.status == 200:
                                return
                    await asyncio.sleep(0.02)

    def log(self, member: Member) -> str:
        return (self.directory / f"{member.name}.log").read_text()[-2000:]

    def stop(self) -> None:
        for member in self.members:
            member.kill()

    def etcdctl(self, *arguments: str) -> str:
        """Run the real etcdctl against the cluster and return what it prints."""
        assert ETCDCTL is not None
        argv = [ETCDCTL, "--endpoints", ",".join(self.servers)]
        if self.tls:
            argv += ["--cacert", str(self.ca_file), "--cert", str(self.cert_file), "--key", str(self.key_file)]
        done = subprocess.run([*argv, *arguments], env={"ETCDCTL_API": "3"}, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.asynccontextmanager
async def etcd(directory: Path, members: int = 1, tls: bool = False, quota: int = 0) -> AsyncIterator[Etcd]:
    """Start a cluster and wait until it serves; its processes end with the block. `quota` is of its space, in bytes."""
    if ETCD is None:
        pytest.skip("etcd is missing (Debian: etcd-server)")
    cluster = Etcd(directory, members, tls)
    if quota:
        for member in cluster.members:
            member.argv += ["--quota-backend-bytes", str(quota)]
    try:
        await cluster.start()
        yield cluster
    finally:
        cluster.stop()


async def open_etcd(cluster: Etcd, prefix: str = "/registry") -> EtcdStore:
    """Open the storage engine on a cluster."""
    tls = Tls(cluster.ca_file, cluster.cert_file, cluster.key_file) if cluster.tls else None
    return await EtcdStore.open(cluster.servers, tls, prefix)
