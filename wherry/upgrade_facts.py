"""Facts of a machine and its cluster for `wherry upgrade --check`: read once, nothing is changed.

A worker may read its own node and the server's version only; what it may not read is left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kube import kubeconfig, resources
from kube.api import apiextensions_v1, apiregistration_v1, core_v1, discovery_v1, policy_v1
from kube.client import Client
from kube.errors import StatusError
from kube.transport import HttpsTransport
from kube.urls import host_port
from wherry import check, cluster, daemons, expiry, health, snapshot_catalog
from wherry.errors import WherryError
from wherry.expiry import Ending
from wherry.finding import Finding
from wherry.settings import Settings
from wherry.snapshot_catalog import Entry

MEMBER_SECONDS = 10.0
SLICE = "kubernetes"
"""Name of the EndpointSlice that the API servers write."""
METRIC = "apiserver_requested_deprecated_apis"
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Member:
    """An API server; `problem` is why its version and metrics are not known. `deprecated` has an API's name and release."""

    address: str
    version: str = ""
    deprecated: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    name: str
    version: str
    ready: bool
    control_plane: bool


@dataclass(slots=True)
class Facts:
    """Everything that the checks read. `problem` is why the API server could not be asked."""

    settings: Settings
    target: str
    own: bool
    """True if the target is the version of this program."""
    now: datetime
    version: str = ""
    problem: str = ""
    members: list[Member] = field(default_factory=list)
    nodes: list[NodeFacts] = field(default_factory=list)
    definitions: list[tuple[str, str, bool]] = field(default_factory=list)
    """CustomResourceDefinition, a version in which objects may be stored besides the current one, and whether it is served."""
    unavailable: list[str] = field(default_factory=list)
    """APIServices that are not available."""
    budgets: list[str] = field(default_factory=list)
    """Disruption budgets that allow no eviction."""
    unhealthy: list[str] = field(default_factory=list)
    missing: list[Finding] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)
    free: int = 0
    """Free bytes of the state folder's file system."""
    snapshots: list[Entry] = field(default_factory=list)
    snapshots_problem: str = ""


async def collect(settings: Settings, target: str, now: datetime, *, own: bool) -> Facts:
    """Read the facts of this machine, and of the cluster if its API server answers."""
    facts = Facts(settings, target, own, now)
    await _machine(facts)
    try:
        async with cluster.connect(settings) as client:
            facts.version = await _version(client)
            if settings.is_worker:
                facts.nodes = [_node(await client.get(core_v1.Node, settings.node_name))]
            else:
                await _cluster(facts, client)
    except (StatusError, WherryError, OSError) as error:
        facts.problem = getattr(error, "message", "") or str(error)
    return facts


async def _machine(facts: Facts) -> None:
    settings = facts.settings
    running = await daemons.running(settings)
    for name, pid in running.items():
        problem = await health.problem(settings, name) if pid else "it does not run"
        if problem:
            facts.unhealthy.append(f"{name}: {problem}")
    found = await asyncio.to_thread(lambda: list(check.findings(settings, running=True)))
    facts.missing = [finding for finding in found if finding.level == "error"]
    facts.endings = list(expiry.ending(settings, facts.now))
    folder = settings.layout.state
    facts.free = shutil.disk_usage(folder).free if folder.exists() else 0
    if not settings.is_worker:
        try:
            facts.snapshots = await snapshot_catalog.entries(settings)
        except WherryError as error:
            facts.snapshots_problem = str(error)


async def _cluster(facts: Facts, client: Client) -> None:
    facts.members = await _members(facts.settings, client)
    facts.nodes = [_node(node) async for node in _each(client, core_v1.Node)]
    async for definition in _each(client, apiextensions_v1.CustomResourceDefinition):
        facts.definitions += _stored(definition)
    async for service in _each(client, apiregistration_v1.APIService):
        conditions = service.status.conditions if service.status is not None else []
        if any(each.type == "Available" and each.status != "True" for each in conditions):
            facts.unavailable.append(service.metadata.name or "")
    async for budget in _each(client, policy_v1.PodDisruptionBudget):
        status = budget.status
        if status is not None and (status.expected_pods or 0) > 0 and not status.disruptions_allowed:
            facts.budgets.append(f"{budget.metadata.namespace}/{budget.metadata.name}")


def _each(client: Client, kind: type[T]) -> AsyncIterator[T]:
    return client.each(resources.of(kind).path(), kind)


async def _version(client: Client) -> str:
    try:
        return str(msgspec.json.decode(await client.call("GET", "/version"))["gitVersion"])
    except (ValueError, KeyError, TypeError) as error:
        raise WherryError(f"the API server does not report its version: {error}") from error


def _node(node: core_v1.Node) -> NodeFacts:
    ready, info = cluster.ready_condition(node), node.status.node_info
    return NodeFacts(
        node.metadata.name or "",
        (info.kubelet_version if info is not None else "") or "",
        ready is not None and ready.status == "True",
        CONTROL_PLANE in node.metadata.labels,
    )


def _stored(definition: apiextensions_v1.CustomResourceDefinition) -> Iterator[tuple[str, str, bool]]:
    """Yield the versions that a new server may have to read besides the one that is written now."""
    versions: dict[str, Any] = {each.name: each for each in definition.spec.versions}
    stored = definition.status.stored_versions if definition.status is not None else []
    for name in stored:
        version = versions.get(name)
        if version is None or not version.storage:
            yield definition.metadata.name or "", name, version is not None and version.served


async def _members(settings: Settings, client: Client) -> list[Member]:
    """Ask every API server for its version and for the deprecated APIs that were requested from it."""
    found = await client.list(
        discovery_v1.EndpointSlice, "default", label_selector="kubernetes.io/service-name=kubernetes"
    )
    # Those of the API servers, which repair them: the administrator's certificate authenticates to each address.
    slices = [each for each in found.items if each.metadata.name == SLICE]
    addresses = [
        host_port(address, port.port)
        for each in slices
        for port in each.ports
        if port.port is not None
        for endpoint in each.endpoints
        for address in endpoint.addresses
    ]
    return list(await asyncio.gather(*(_member(settings, address) for address in sorted({*addresses}))))


async def _member(settings: Settings, address: str) -> Member:
    try:
        access = dataclasses.replace(kubeconfig.load(settings.layout.admin_kubeconfig), server=f"https://{address}")
        client = Client(HttpsTransport(access, "wherry"))
        try:
            async with asyncio.timeout(MEMBER_SECONDS):
                version = await _version(client)
                text = (await client.call("GET", "/metrics", accept="text/plain")).decode()
        finally:
            await client.close()
    except TimeoutError:
        return Member(address, problem=f"no response within {MEMBER_SECONDS:g} s")
    except (StatusError, WherryError, OSError, kubeconfig.KubeconfigError) as error:
        return Member(address, problem=getattr(error, "message", "") or str(error))
    return Member(address, version, deprecated_apis(text))


def deprecated_apis(metrics: str) -> tuple[tuple[str, str], ...]:
    """Return the APIs that a server's metrics name as deprecated and requested, with the release that removes each."""
    from prometheus_client.parser import text_string_to_metric_families

    lines = [line for line in metrics.splitlines() if line.startswith(METRIC)]
    found = set()
    for family in text_string_to_metric_families("\n".join([*lines, ""])):
        for sample in family.samples:
            labels = sample.labels
            if sample.value and labels.get("resource"):
                group = f".{labels['group']}" if labels.get("group") else ""
                found.add(
                    (f"{labels['resource']}.{labels.get('version', '')}{group}", labels.get("removed_release", ""))
                )
    return tuple(sorted(found))
