"""Gather the facts of the running machine: its daemons' settings in force, its ports, the cluster's objects."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pwd
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from agent.configuration_files import load as load_kubelet
from agent.kubelet_configuration import ConfigError, shown
from control.admission.plugins import OFF_BY_DEFAULT, PLUGINS
from control.auth import authorization_configuration
from kube import bounded_answer, tls_settings
from kube.client import Client
from kube.errors import StatusError
from kube.json_object import Object
from wherry import cluster, daemons, units
from wherry.errors import WherryError
from wherry.security import container_runtime, ports
from wherry.security.facts import Etcd, Facts, Listening, Probed
from wherry.settings import USER, Settings

FLAGZ = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz"
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
PAGE = 500
ANSWER_LIMIT = 1 << 20
"""Maximum number of bytes of etcd's list of members."""
AUDIT_BYTES = 4 << 20
"""Bytes of the audit log's end that are read."""
_RBAC, _HOOKS = "/apis/rbac.authorization.k8s.io/v1", "/apis/admissionregistration.k8s.io/v1"
KINDS: dict[str, tuple[str, str, str]] = {
    "BootstrapToken": ("/api/v1/namespaces/kube-system/secrets", "type=bootstrap.kubernetes.io/token", ""),
    "CSIDriver": ("/apis/storage.k8s.io/v1/csidrivers", "", METADATA),
    "CertificateSigningRequest": ("/apis/certificates.k8s.io/v1/certificatesigningrequests", "", ""),
    "ClusterRole": (f"{_RBAC}/clusterroles", "", ""),
    "ClusterRoleBinding": (f"{_RBAC}/clusterrolebindings", "", ""),
    "ConfigMap": ("/api/v1/configmaps", "metadata.name=kube-root-ca.crt", ""),
    "Namespace": ("/api/v1/namespaces", "", ""),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1/networkpolicies", "", METADATA),
    "Pod": ("/api/v1/pods", "", ""),
    "Role": (f"{_RBAC}/roles", "", ""),
    "RoleBinding": (f"{_RBAC}/rolebindings", "", ""),
    "Service": ("/api/v1/services", "", METADATA),
    "ServiceAccount": ("/api/v1/serviceaccounts", "", ""),
    "TokenSecret": ("/api/v1/secrets", "type=kubernetes.io/service-account-token", METADATA),
    "ValidatingAdmissionPolicyBinding": (f"{_HOOKS}/validatingadmissionpolicybindings", "", METADATA),
    "ValidatingWebhookConfiguration": (f"{_HOOKS}/validatingwebhookconfigurations", "", METADATA),
}
"""Kind -> path, field selector, and the media type that leaves out what no check looks at (secrets above all)."""


async def facts(settings: Settings) -> Facts:
    """Ask everything; WherryError where daemons do not run or the API server does not answer."""
    running = await daemons.running(settings)
    if stopped := [daemon for daemon, pid in running.items() if not pid]:
        raise WherryError(f"{', '.join(stopped)} does not run: `wherry up` starts it, `wherry status` says more")
    sockets = tuple(each for daemon, pid in running.items() for each in ports.listening(daemon, pid))
    found = Facts(
        settings,
        daemon_files=_daemon_files(settings, running),
        owners=_owners(settings),
        listening=sockets,
        host_name=socket.gethostname().strip().lower(),
        kubelet=_kubelet_files(settings),
        probed=await _probe(settings, sockets),
        containerd=await container_runtime.query(settings),
    )
    if settings.is_worker:
        return found
    async with cluster.admin(settings) as client:
        try:
            return await _ask(client, found)
        except StatusError as error:
            raise WherryError(
                f"the API server cannot be queried: {error.message}; `wherry status` says more"
            ) from error


async def _ask(client: Client, found: Facts) -> Facts:
    settings = found.settings
    flags: dict[str, str] = json.loads(await client.call("GET", "/flagz", accept=FLAGZ))["flags"]
    kubelet = json.loads(await client.call("GET", f"/api/v1/nodes/{settings.node_name}/proxy/configz"))
    named = {name: await _objects(client, *where) for name, where in KINDS.items()}
    off = (OFF_BY_DEFAULT - _names(flags, "enable-admission-plugins")) | _names(flags, "disable-admission-plugins")
    profiling = await client.transport.request("GET", "/debug/pprof/")
    return dataclasses.replace(
        found,
        flags=flags,
        plugins=frozenset(PLUGINS) - off,
        authorizers=_authorizers(flags),
        kubelet=kubelet["kubeletconfig"],
        probed=dataclasses.replace(found.probed, api_profiling=profiling.status),
        etcd=await _etcd(settings) if settings.store == "etcd" else found.etcd,
        audit_users=await asyncio.to_thread(_audit_users, flags),
        objects=named,
    )


async def _objects(client: Client, path: str, selector: str, accept: str) -> list[Object]:
    found: list[Object] = []
    query = {"limit": str(PAGE)} | ({"fieldSelector": selector} if selector else {})
    while True:
        page = json.loads(await client.call("GET", path, query=query, accept=accept or "application/json"))
        found += page.get("items") or []
        following = page["metadata"].get("continue")
        if not following:
            return found
        query["continue"] = following


def _names(flags: dict[str, str], flag: str) -> frozenset[str]:
    return frozenset(filter(None, flags.get(flag, "").strip("[]").split(",")))


def _authorizers(flags: dict[str, str]) -> tuple[str, ...]:
    file = flags.get("authorization-config")
    if not file:
        return tuple(filter(None, flags.get("authorization-mode", "").strip("[]").split(",")))
    return tuple(entry.type for entry in authorization_configuration.parse(Path(file).read_bytes()))


def _daemon_files(settings: Settings, running: Iterable[str]) -> tuple[Path, ...]:
    if units.uses_systemd(settings):
        return tuple(map(units.unit_file, running))
    return (settings.layout.run / "daemons.json",)


def _owners(settings: Settings) -> tuple[int, ...]:
    if units.uses_systemd(settings):
        try:
            return 0, pwd.getpwnam(USER).pw_uid
        except KeyError:
            pass
    return (0,)


def _kubelet_files(settings: Settings) -> Object:
    layout = settings.layout
    drop_ins = layout.kubelet_drop_ins if layout.kubelet_drop_ins.is_dir() else None
    try:
        return shown(load_kubelet(layout.kubelet_configuration, drop_ins)[0])
    except (ConfigError, OSError) as error:
        raise WherryError(f"the kubelet's configuration cannot be read: {error}") from error


async def _probe(settings: Settings, sockets: Iterable[Listening]) -> Probed:
    kubelet = next((each for each in sockets if each.port == settings.kubelet_port), None)
    own = kubelet.address if kubelet and kubelet.address not in ("0.0.0.0", "::") else settings.node_ip
    found = Probed(
        kubelet_anonymous=await ports.status(own, settings.kubelet_port, "/pods", ports.anybody()),
        kubelet_weak_suite=await ports.weak_suite(own, settings.kubelet_port),
    )
    if settings.is_worker:
        return found
    return dataclasses.replace(
        found,
        api_anonymous=await ports.status(settings.node_ip, settings.api_port, "/api", ports.anybody()),
        api_weak_suite=await ports.weak_suite(settings.node_ip, settings.api_port),
    )


def _audit_users(flags: dict[str, str]) -> frozenset[str]:
    """Return who the newest events are of; none where there is no log."""
    found = set()
    try:
        with open(flags.get("audit-log-path", ""), "rb") as file:
            file.seek(max(0, file.seek(0, 2) - AUDIT_BYTES))
            for line in file.read().splitlines()[1:]:
                try:
                    event: dict[str, Any] = msgspec.json.decode(line)
                except msgspec.DecodeError:
                    continue  # the last line may be half written
                found.add((event.get("impersonatedUser") or event.get("user") or {}).get("username", ""))
    except OSError:
        return frozenset()
    return frozenset(found)


async def _etcd(settings: Settings) -> Etcd:
    servers = [server.strip() for server in settings.etcd_servers.split(",") if server.strip()]
    peers = await _peers(settings, servers)
    own = bool(settings.etcd_cafile) and await asyncio.to_thread(
        lambda: Path(settings.etcd_cafile).read_bytes() != (settings.layout.pki / "ca.crt").read_bytes()
    )
    return Etcd(
        clients=tuple([await ports.etcd_port(url, settings.etcd_cafile) for url in servers]),
        peers=tuple([await ports.etcd_port(url, settings.etcd_cafile) for url in peers]),
        own_authority=own,
    )


async def _peers(settings: Settings, servers: list[str]) -> list[str]:
    """Return the peer addresses of etcd's members, as reported by one of them."""
    context: ssl.SSLContext | bool = True
    if urlsplit(servers[0]).scheme == "https":
        context = tls_settings.verifying(cafile=settings.etcd_cafile or None)
        if settings.etcd_certfile:
            context.load_cert_chain(settings.etcd_certfile, settings.etcd_keyfile)
    timeout = aiohttp.ClientTimeout(total=ports.SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        for server in servers:
            try:
                async with http.post(
                    f"{server}/v3/cluster/member/list", json={}, ssl=context, allow_redirects=False
                ) as answer:
                    found = json.loads(await bounded_answer.read(answer, ANSWER_LIMIT))
                    members = found.get("members") or []
                    return [url for member in members for url in member.get("peerURLs") or []]
            except (aiohttp.ClientError, TimeoutError, ValueError):
                continue
    return []
