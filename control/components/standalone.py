"""Controllers or scheduler as a process of their own, against any API server, as upstream's daemons of the name run.

They act as the user of a kubeconfig and hold upstream's lease while they work, so that one can take the other's place. With
--use-service-account-credentials each controller acts as its service account instead (controllers/account_clients.py).
Health, metrics and configuration are served over TLS where upstream's are (10257, 10259; secure_port.py), with a
certificate of their own unless one is given.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from control import features
from control.components import embedded_ports, secure_port
from control.components.access import OPEN_PATHS, ComponentAccess
from control.components.secure_port import MANAGER, PortSettings
from control.controllers.account_clients import AccountClients
from control.flags.command import FlagError
from kube import client_authorities, kubeconfig, pki, tls_settings
from kube.build import user_agent
from kube.client import Client, Transport
from kube.clock import SYSTEM, Clock
from kube.delegated_reviews import client_for_reviews
from kube.leases import Fenced, LeaderElector
from kube.serving.daemon import daemon
from kube.tls_files import TlsFiles
from kube.transport import HttpsTransport
from kube.uid import new_uid

if TYPE_CHECKING:
    from control.controllers.manager import ControllerConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one of the daemons. Empty names of files leave out what needs them."""

    name: str
    port: int
    kubeconfig: Path | None = None
    config: Path | None = None
    bind_address: str = "0.0.0.0"
    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    """Authorities of client certificates at the port; None: clients have tokens."""
    authentication_kubeconfig: Path | None = None
    """Access to the server that reviews tokens of the port's clients; None: that of `kubeconfig`."""
    authorization_kubeconfig: Path | None = None
    open_paths: tuple[str, ...] = OPEN_PATHS
    tls_cipher_suites: tuple[str, ...] = ()
    tls_min_version: str = "VersionTLS12"
    leader_elect: bool = True
    lease_name: str = ""
    lease_namespace: str = "kube-system"
    feature_gates: dict[str, bool] = field(default_factory=dict)
    allocate_node_cidrs: bool = False
    cluster_cidr: str = ""
    node_mask: int = 24
    root_ca_file: Path | None = None
    signing_cert_file: Path | None = None
    signing_key_file: Path | None = None
    service_account_key_file: Path | None = None
    controllers: tuple[str, ...] = ("*",)
    sections: dict[str, Any] = field(default_factory=dict)
    """Fields of the configuration file that flags stand for, over those of the file."""


def options(name: str, port: int, given: dict[str, Any]) -> Options:
    """Make options of the fields that flags gave; a dotted one is of the configuration file. Raises FlagError."""
    plain, sections = {}, dict[str, Any]()
    for path, value in given.items():
        section, dot, last = path.partition(".")
        if dot:
            sections.setdefault(section, {})[last] = value
        else:
            plain[path] = value
    found = dataclasses.replace(Options(name, port), **plain, sections=sections)
    if found.kubeconfig is None:
        raise FlagError("--kubeconfig is required: it contains the API server's address and this daemon's credentials")
    try:
        features.check(found.feature_gates)
    except ValueError as error:
        raise FlagError(f"--feature-gates: {error}") from error
    return found


@daemon
async def run(chosen: Options, stop: asyncio.Event, clock: Clock = SYSTEM) -> None:
    """Work, while holding the lease, until stopped. Raises KubeconfigError, OSError, and what a file provokes."""
    work = _controllers(chosen, clock) if chosen.name == MANAGER else _scheduler(chosen, clock)
    assert chosen.kubeconfig is not None
    transport = HttpsTransport(kubeconfig.load(chosen.kubeconfig), user_agent(chosen.name))
    client = Client(transport)
    try:
        async with _port(chosen, client, clock):
            running = asyncio.ensure_future(_elected(chosen, client, transport, work, clock))
            stopped = asyncio.ensure_future(stop.wait())
            await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            running.cancel()
            (result,) = await asyncio.gather(running, return_exceptions=True)
            if isinstance(result, Exception):
                raise result
    finally:
        await client.close()


Through = Callable[[Transport], Client]
"""Makes a client that writes while this process leads."""
Work = Callable[[HttpsTransport, Through], Awaitable[None]]


async def _elected(chosen: Options, client: Client, transport: HttpsTransport, work: Work, clock: Clock) -> None:
    if not chosen.leader_elect:
        return await work(transport, Client)
    identity = f"{socket.gethostname()}_{new_uid()}"
    name = chosen.lease_name or chosen.name
    elector = LeaderElector(client, name, identity, namespace=chosen.lease_namespace, clock=clock)
    await elector.run(lambda: work(transport, lambda through: Client(Fenced(through, elector))))


def _controllers(chosen: Options, clock: Clock) -> Work:
    from control.controllers import configuration, manager

    document = configuration.read(chosen.config)
    for section, fields in chosen.sections.items():
        document[section] = {**(document.get(section) or {}), **fields}
    file = configuration.parse_document(document)
    unknown = {name.lstrip("-") for name in chosen.controllers} - {*manager.CONTROLLERS, "*"}
    if unknown:
        raise FlagError(f"--controllers: {sorted(unknown)[0]!r} is not in the list of known controllers")
    settings = manager.ControllerConfig(
        cluster_cidr=chosen.cluster_cidr if chosen.allocate_node_cidrs else "",
        node_mask=chosen.node_mask,
        root_ca=_text(chosen.root_ca_file),
        signing_cert=_text(chosen.signing_cert_file),
        signing_key=_text(chosen.signing_key_file),
        service_account_key=_text(chosen.service_account_key_file),
        service_load_balancer=False,
        autoscaling=file.autoscaling,
        lifecycle=file.lifecycle,
        controllers=chosen.controllers,
    )

    _check_signer(settings)

    async def work(transport: HttpsTransport, client: Through) -> None:
        if not file.service_account_credentials:
            return await manager.run(client(transport), settings, clock)
        assert chosen.kubeconfig is not None
        access = kubeconfig.load(chosen.kubeconfig)
        async with contextlib.aclosing(AccountClients(access, Client(transport), chosen.name, clock)) as accounts:
            await manager.run(client(transport), settings, clock, clients=lambda name: client(accounts.acting_as(name)))

    return work


def _scheduler(chosen: Options, clock: Clock) -> Work:
    from control.scheduler import configuration, main

    settings = configuration.parse(chosen.config.read_bytes()) if chosen.config is not None else None
    return lambda transport, client: main.run(client(transport), settings, clock)


def _check_signer(settings: ControllerConfig) -> None:
    """Refuse a signing certificate or key that cannot be read, before a controller is made of them. Raise FlagError."""
    if not settings.signing_key:
        return
    try:
        pki.decode_certificate(settings.signing_cert.encode())
    except pki.PKIError as error:
        raise FlagError(f"--cluster-signing-cert-file: {error}") from error
    try:
        pki.decode_key(settings.signing_key.encode())
    except pki.PKIError as error:
        raise FlagError(f"--cluster-signing-key-file: {error}") from error


def _text(path: Path | None) -> str:
    return path.read_text() if path is not None else ""


@contextlib.asynccontextmanager
async def _port(chosen: Options, client: Client, clock: Clock) -> AsyncIterator[None]:
    """Serve health, metrics and configuration where upstream does; port 0 serves none. Raises KubeconfigError, OSError."""
    if not chosen.port:
        yield
        return
    async with contextlib.AsyncExitStack() as stack:
        reviewers = []
        for path in (chosen.authentication_kubeconfig, chosen.authorization_kubeconfig):
            reviewer = client
            if path not in (None, chosen.kubeconfig):
                reviewer = Client(HttpsTransport(kubeconfig.load(path), user_agent(chosen.name)))
                stack.push_async_callback(reviewer.close)
            reviewers.append(client_for_reviews(reviewer))
        settings = PortSettings(
            component=chosen.name,
            port=chosen.port,
            access=ComponentAccess(reviewers[0], reviewers[1], clock, chosen.open_paths),
            tls=serving(chosen).current,
            address=chosen.bind_address,
            configuration=partial(embedded_ports.document, chosen.config),
            gates=chosen.feature_gates,
        )
        await stack.enter_async_context(secure_port.serving(settings))
        yield


def serving(chosen: Options) -> TlsFiles:
    """Return the settings of the given files, or of a certificate made here; raises OSError if they cannot be used."""
    if chosen.cert_file is not None and chosen.key_file is not None:
        more = [chosen.client_ca_file] if chosen.client_ca_file is not None else []
        files = TlsFiles(lambda: _tls(chosen), [chosen.cert_file, chosen.key_file, *more])
        files.current()
        return files
    own = _tls(chosen)
    return TlsFiles(lambda: own, [])


def _tls(chosen: Options) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(context, chosen.tls_cipher_suites, chosen.tls_min_version)
    if chosen.client_ca_file is not None:
        client_authorities.accept(context, chosen.client_ca_file)
    if chosen.cert_file is not None and chosen.key_file is not None:
        context.load_cert_chain(chosen.cert_file, chosen.key_file)
        return context
    name = f"{chosen.name}@{socket.gethostname()}"
    now = SYSTEM.now()
    pair = pki.issue(pki.new_ca(chosen.name, now), name, usages=(pki.SERVER,), sans=("localhost", "127.0.0.1"), now=now)
    with tempfile.NamedTemporaryFile() as file:  # the ssl module loads keys from files alone
        file.write(pair.key_pem + pair.cert_pem)
        file.flush()
        context.load_cert_chain(file.name)
    return context
