"""Creates the objects of a new cluster, and restores the required ones at every start.

Namespaces, default roles, system priority classes, the Service `kubernetes` with its endpoints, the ServiceCIDR, and
the ConfigMap that tells extension servers whom to believe. All are only added or completed, never taken back: what an
administrator changed stays.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any

import msgspec

from control import recorded_servers, start_steps
from control.auth import bootstrap_policy
from control.auth.joining_policy import joining_policy
from control.config import ControlConfig
from control.registry import creation, deletion, updating
from control.registry.context import SERVER, Context
from control.registry.registry import Registry
from control.server.lookup import BY_TARGET
from kube.errors import StatusError
from kube.gateway.names import NAMESPACE as GATEWAY_NAMESPACE
from kube.json_object import Object
from kube.resources import by_kind

log = logging.getLogger(__name__)
ATTEMPTS = 50
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_PRIORITIES = (
    (
        "system-node-critical",
        2000001000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2000000000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)


class Bootstrap:
    """Writes as the server itself, through the registry."""

    def __init__(
        self, registry: Registry, config: ControlConfig, port: int, done: Callable[[str], None] = lambda step: None
    ) -> None:
        self.registry, self.config, self.port = registry, config, port
        self._attempts = ATTEMPTS
        self._done = done
        """Called with each of start_steps that has been taken."""

    async def run(self) -> None:
        """Write what is missing; all at once, so that it costs a few commits and not one for each object."""
        namespaces = (*NAMESPACES, *([GATEWAY_NAMESPACE] if self.config.gateway else []))
        await _together(
            self._ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}) for name in namespaces
        )
        self._done(start_steps.NAMESPACES)
        roles = [
            each
            for each in (*bootstrap_policy.default_policy(), *joining_policy())
            if each["metadata"].get("namespace", namespaces[0]) in namespaces
        ]
        await _together(
            (
                self._step(start_steps.ROLES, *(self._role(wanted) for wanted in roles)),
                self._step(start_steps.PRIORITY_CLASSES, *(self._priority(*row) for row in _PRIORITIES)),
                self._step(start_steps.SERVICE_RANGE, self._service_range()),
                self._step(start_steps.AUTHORITIES, self._client_authority()),
                self._step(start_steps.KUBERNETES_SERVICE, self._kubernetes_service()),
            )
        )

    async def _step(self, name: str, *work: Coroutine[Any, Any, None]) -> None:
        await _together(work)
        self._done(name)

    # -- parts ----------------------------------------------------------------------------------------------------
    async def _role(self, wanted: Object) -> None:
        present = self._present(wanted)
        result = bootstrap_policy.reconcile(wanted, present)
        if result is None:
            return
        if present is not None and result.get("roleRef") != present.get("roleRef"):
            await self._delete(present)
            present = None
            result = wanted
        await (self._create(result) if present is None else self._replace(result))

    async def _priority(self, name: str, value: int, description: str) -> None:
        await self._ensure(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
                "description": description,
                "preemptionPolicy": "PreemptLowerPriority",
            }
        )

    async def _service_range(self) -> None:
        await self._ensure(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "ServiceCIDR",
                "metadata": {"name": "kubernetes"},
                "spec": {"cidrs": self.config.service_cidr.split(",")},
            }
        )

    async def _client_authority(self) -> None:
        name = "extension-apiserver-authentication"
        data = {"client-ca-file": self.config.client_ca_file.read_text()}
        if self.config.requestheader_client_ca_file is not None:
            data["requestheader-client-ca-file"] = self.config.requestheader_client_ca_file.read_text()
            data |= {
                f"requestheader-{name.replace('_', '-')}": json.dumps(getattr(self.config, f"requestheader_{name}"))
                for name in ("allowed_names", *(f"{part}_headers" for part in ("username", "uid", "group")))
            }
            data["requestheader-extra-headers-prefix"] = json.dumps(self.config.requestheader_extra_headers_prefix)
        obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "kube-system"}}
        present = self._present(obj)
        if present is None:
            await self._create({**obj, "data": data})
        elif any((present.get("data") or {}).get(key) != value for key, value in data.items()):
            await self._replace({**present, "data": {**(present.get("data") or {}), **data}})

    async def _kubernetes_service(self) -> None:
        """The Service is the first address of the range; its endpoints are the servers."""
        range_ = ipaddress.ip_network(self.config.service_cidr.split(",")[0])
        metadata = {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        }
        await self._ensure(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": metadata,
                "spec": {
                    "type": "ClusterIP",
                    "clusterIP": str(range_[1]),
                    "clusterIPs": [str(range_[1])],
                    "ipFamilyPolicy": "SingleStack",
                    "ipFamilies": [f"IPv{range_.version}"],
                    "sessionAffinity": "None",
                    "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": self.port}],
                },
            }
        )
        # Servers that share a store keep the endpoints together (server_addresses.py).
        if self.config.advertise_address and self.config.store != "etcd":
            await self.endpoints([self.config.advertise_address])

    async def endpoints(self, addresses: Sequence[str]) -> None:
        """Let the Service `kubernetes` lead to servers at these addresses, of one family."""
        ports = [{"name": "https", "port": self.port, "protocol": "TCP"}]
        await self._ensure_same(
            {
                "apiVersion": "v1",
                "kind": "Endpoints",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
                },
                "subsets": [{"addresses": [{"ip": address} for address in addresses], "ports": ports}],
            },
            "subsets",
        )
        await self._ensure_same(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "kubernetes",
                    "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"},
                },
                "addressType": f"IPv{ipaddress.ip_address(addresses[0]).version}",
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
                "ports": ports,
            },
            "endpoints",
            "ports",
        )
        try:
            await self._record(addresses)
        except StatusError as error:
            # A webhook may be away that must admit it; the server starts all the same, and its pods may run on it.
            log.warning("the addresses of the API servers cannot be recorded: %s", error)

    async def _record(self, addresses: Sequence[str]) -> None:
        present = self._present(recorded_servers.CONFIG_MAP)
        names = recorded_servers.of_certificate(self.config.cert_file, self.config.cluster_domain)
        if (wanted := recorded_servers.extended(present, (*addresses, *names))) is not None:
            await (self._create(wanted) if present is None else self._replace(wanted))

    # -- writing --------------------------------------------------------------------------------------------------
    def _present(self, obj: Object) -> Object | None:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        meta = obj["metadata"]
        entry = self.registry.peek(BY_TARGET[resource.target], meta.get("namespace", ""), meta["name"])
        return None if entry is None else entry.obj

    async def _ensure(self, obj: Object) -> None:
        while self._present(obj) is None:
            try:
                return await self._create(obj)
            except StatusError:
                if self.config.store != "etcd" or not self._attempts:
                    raise
                # Another server that starts at the same time is in the middle of it: an address may have been
                # claimed for a Service that is not stored yet.
                self._attempts -= 1
                await self.registry.clock.sleep(0.1)
                await self.registry.cache.wait_current()

    async def _ensure_same(self, obj: Object, *parts: str) -> None:
        present = self._present(obj)
        if present is None:
            await self._create(obj)
        elif any(present.get(part) != obj[part] for part in parts):
            await self._replace({**present, **{part: obj[part] for part in parts}})

    async def _create(self, obj: Object) -> None:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        fresh: Object = msgspec.json.decode(msgspec.json.encode(obj))
        try:
            await creation.create(self.registry, Context(SERVER), resource, obj["metadata"].get("namespace", ""), fresh)
        except StatusError as error:
            if not error.already_exists:
                raise

    async def _replace(self, obj: Object) -> None:
        resource = by_kind(obj["apiVersion"], obj["kind"])
        assert resource is not None
        data, meta = msgspec.json.encode(obj), obj["metadata"]

        async def change(old: Object | None) -> Object:
            fresh: Object = msgspec.json.decode(data)
            return fresh

        try:
            await updating.update(
                self.registry, Context(SERVER), resource, meta.get("namespace", ""), meta["name"], change
            )
        except StatusError as error:
            if error.code != 409:
                raise
            # Another server that starts at the same time has just written it.
            log.info("%s %s was changed by another client", resource.kind, meta["name"])

    async def _delete(self, obj: Object) -> None:
        from control.registry.deletion_plan import DeleteOptions

        resource, meta = by_kind(obj["apiVersion"], obj["kind"]), obj["metadata"]
        assert resource is not None
        await deletion.delete(
            self.registry,
            Context(SERVER),
            resource,
            meta.get("namespace", ""),
            meta["name"],
            DeleteOptions(grace_period=0),
        )


async def _together(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one, name="bootstrap")
