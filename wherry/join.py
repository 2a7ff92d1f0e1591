"""`wherry join`: make this machine a node of a cluster that runs elsewhere.

First everything that can fail without leaving a trace: the machine is looked at, the cluster discovered (discovery.py), its
configuration read, and the node's and the proxy's certificates requested with the token; keys are made here and never leave the
machine. Only then is anything written and started; should that fail, it is all removed again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kube import bootstrap_tokens, certificates, pki
from kube.api import core_v1
from kube.bootstrap_tokens import Token
from kube.certificates import PROXY, PROXY_USER
from kube.client import Client
from kube.clock import SYSTEM
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.node_names import reserved
from kube.retry_after import RetryAfterTransport
from kube.transport import HttpsTransport
from wherry import (
    certificate_bundle,
    check,
    cluster,
    daemons,
    image_pulls,
    join_options,
    option_checks,
    published,
    starting,
    storage,
    units,
)
from wherry.certificate_bundle import Bundle
from wherry.discovery import Discovered, ca_pin, discover, server_url
from wherry.errors import OptionError, WherryError, wrong
from wherry.join_files import Identity, write_common, write_member, write_worker
from wherry.option_checks import complete
from wherry.progress import step
from wherry.reset import reset
from wherry.settings import Settings
from wherry.terminal import console, errors

CERTIFICATE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Options of the command: the cluster's address, the token, the hash of the CA to trust, and for a member of the control
    plane the key to the cluster's certificates."""

    server: str
    token: Token
    pin: str
    certificate_key: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that was got from the cluster; `identities` for a worker, `bundle` for a member of the control plane."""

    settings: Settings
    found: Discovered
    documents: published.Published
    identities: list[Identity]
    bundle: Bundle | None


def credentials(
    server: str, token: str, pin: str, *, control_plane: bool = False, certificate_key: str = ""
) -> Credentials:
    """Check the form of the arguments; raises OptionError with all problems."""
    given = {
        "server": server,
        "token": token,
        "discovery_token_ca_cert_hash": pin,
        "control_plane": control_plane,
        "certificate_key": certificate_key,
    }
    if found := [*join_options.missing(given), *join_options.problems(given)]:
        raise OptionError(found)
    return Credentials(server_url(server), bootstrap_tokens.parse(token), ca_pin(pin), certificate_key)


def require_valid(settings: Settings, role: str, arguments: Mapping[str, Any]) -> None:
    """Check all options before anything is asked or written, the address aside; raises OptionError with all problems."""
    found = [*join_options.missing(arguments), *join_options.problems(arguments)]
    found += option_checks.problems(msgspec.structs.replace(settings, role=role), None)
    if found:
        raise OptionError(found)


def address_towards(server: str) -> str:
    """Return the address that this machine uses towards a server; WherryError where there is no way to it."""
    parts = urlsplit(server)
    with contextlib.suppress(OSError):
        for family, kind, _, _, target in socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM):
            # Connecting a datagram socket sends nothing; it only asks the kernel for a route.
            with socket.socket(family, kind) as probe:
                probe.connect(target)
                address: str = probe.getsockname()[0]
                return address
    raise WherryError(f"this machine knows no way to {server}: check the name or address, and the network's routes")


async def join(wanted: Settings, given: Credentials) -> Settings:
    """Make this machine a node and wait until it is Ready; return the settings in force."""
    role = "control-plane" if given.certificate_key else "worker"
    wanted = msgspec.structs.replace(wanted, role=role, joined=given.server)
    address = wanted.node_ip or await asyncio.to_thread(address_towards, given.server)
    settings = complete(wanted, address)
    systemd = units.uses_systemd(settings)
    try:
        with step("check the machine"):
            if systemd:
                await units.prepare_machine()
            check.require(settings, running=False)
        prepared = await _prepare(settings, given)
        await check.prepare(prepared.settings)
        check.require_shared(prepared.settings)
    except BaseException:
        if systemd:
            await asyncio.shield(units.remove())
        raise
    try:
        settings = await _install(prepared)
    except BaseException:
        await _show_logs(settings)
        errors.print("  removing the installation again")
        await asyncio.shield(reset(prepared.settings))
        raise
    console.print(f"\nThis machine is node {settings.node_name}; `kubectl get nodes` on the first machine shows it.")
    await _report_image_problems(settings)
    return settings


async def _prepare(settings: Settings, given: Credentials) -> Prepared:
    """Ask the cluster for everything that is needed; nothing is written yet."""
    with step(f"discover the cluster at {given.server}"):
        found = await discover(given.server, given.token, given.pin)
    access = Access(server=found.server, ca=found.ca, token=str(given.token))
    client = Client(RetryAfterTransport(HttpsTransport(access, "wherry")))
    bundle: Bundle | None = None
    identities: list[Identity] = []
    try:
        with step("read the cluster's configuration"), _as_joining(given.token):
            documents = await published.read(client)
            settings = _shared(settings, documents.cluster)
            if given.certificate_key:
                bundle = await _bundle(client, settings, given.certificate_key)
                settings = msgspec.structs.replace(settings, **bundle.settings)
            settings = complete(settings, settings.node_ip)
            if why := reserved(settings.node_name, settings.cluster_domain):
                raise OptionError([wrong("node-name", settings.node_name, f"{why}; choose another name")])
            await _require_free_name(client, settings.node_name)
        if bundle is None:
            with step("have the certificates signed"), _as_joining(given.token):
                identities += await asyncio.gather(
                    _signed(client, certificates.CLIENT, settings.node_name), _signed(client, PROXY, "")
                )
    finally:
        await client.close()
    return Prepared(settings, found, documents, identities, bundle)


async def _install(prepared: Prepared) -> Settings:
    """Write everything and start it; return the settings in force."""
    settings, bundle = prepared.settings, prepared.bundle
    if bundle is None:
        with step("write certificates and configuration"):
            write_worker(settings, prepared.found, *prepared.identities)
            write_common(settings, prepared.documents)
        await starting.start_worker(settings)
        return settings
    with step("write certificates and configuration"):
        settings = write_member(settings, bundle)
        write_common(settings, prepared.documents)
    with step("reach etcd"):
        await storage.reach(settings)
    async with cluster.admin(settings) as administrator:
        await starting.start_member(settings, administrator)
    return settings


async def _bundle(client: Client, settings: Settings, key: str) -> Bundle:
    if settings.store != "etcd":
        raise WherryError(certificate_bundle.MIGRATE)
    return await certificate_bundle.download(client, key)


def _shared(settings: Settings, published_settings: dict[str, Any]) -> Settings:
    """Use the settings that the cluster publishes."""
    return msgspec.structs.replace(
        settings, **{k: v for k, v in published_settings.items() if k in published.SHARED_SETTINGS}
    )


async def _require_free_name(client: Client, name: str) -> None:
    try:
        node = await client.get(core_v1.Node, name)
    except StatusError as error:
        if error.not_found:
            return
        raise
    ready = cluster.ready_condition(node)
    if ready is not None and ready.status == "True":
        addresses = ", ".join(a.address for a in node.status.addresses if a.type == "InternalIP")
        raise WherryError(
            f"there is a node {name} ({addresses}) already, and it is alive: choose another name with --node-name, or "
            f"`kubectl delete node {name}` if it is this machine's old self"
        )


async def _signed(client: Client, kind: certificates.Kind, node_name: str) -> Identity:
    """Have a key's certificate signed: a node's, or without a name the proxy's."""
    key = pki.new_key()
    pem = pki.kubelet_client_request(key, node_name) if node_name else pki.new_request(key, PROXY_USER)
    try:
        async with asyncio.timeout(CERTIFICATE_SECONDS):
            return Identity(key, await certificates.request(client, kind, key, pem, clock=SYSTEM))
    except (TimeoutError, certificates.CertificateError) as error:
        why = str(error) or f"nothing came within {CERTIFICATE_SECONDS:g} s"
        raise WherryError(
            f"the cluster has not signed a certificate for {node_name or PROXY_USER}: {why}; `kubectl get csr` shows "
            "the request"
        ) from error


@contextlib.contextmanager
def _as_joining(token: Token) -> Any:
    """Explain errors of the API server to the user who joins."""
    try:
        yield
    except StatusError as error:
        if error.code == 401:
            raise WherryError(
                f"the cluster does not accept the token {token.id}: it has expired or was deleted; `wherry token create "
                "--print-join-command` on the first machine makes another"
            ) from error
        if error.code == 403:
            raise WherryError(f"the token {token.id} is not one that nodes join with: {error.message}") from error
        if error.not_found:
            raise WherryError(
                f"the cluster does not say how its nodes are configured ({error.message}): repeat `wherry up` on it"
            ) from error
        raise


async def _report_image_problems(settings: Settings) -> None:
    """Print a hint if the first pods of the node cannot pull their images; the machine has joined in any case."""
    with contextlib.suppress(WherryError, StatusError, OSError):
        async with cluster.connect(settings) as client:
            if await image_pulls.fail_on(client, settings.node_name, SYSTEM):
                console.print(image_pulls.HINT)


async def _show_logs(settings: Settings) -> None:
    """Print the agent's last words before they are removed."""
    for line in await daemons.last_lines(settings, "agent", 5):
        errors.print(f"  agent: {line}")
