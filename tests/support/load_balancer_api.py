"""An API in memory for tests of the service load balancer: it checks addresses in the status of Services and lists events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from control.registry.load_balancer_points import validate_points
from kube.api import core_v1, discovery_v1, meta_v1, networking_v1
from kube.client import Response
from kube.errors import StatusError
from tests.support.clock import settle
from tests.support.lagging_api import LaggingAPI

OLD = "2026-01-01T00:00:00Z"


class LoadBalancerAPI(LaggingAPI):
    """`events` are (namespace, reason, message). Patches of Services in `refusing` get 500, those of finalizers in
    `conflicting` 409.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, str, str]] = []
        self.patches: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[str] = []
        """Errors of addresses that no Service may have."""
        self.refusing: set[str] = set()
        self.conflicting: set[str] = set()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        if method == "POST" and path.endswith("/events"):
            event = msgspec.json.decode(body, type=core_v1.Event)
            self.events.append((event.metadata.namespace or "", event.reason or "", event.message or ""))
        if method == "PATCH" and "/services/" in path:
            key = "/".join(path.removesuffix("/status").split("/")[-3::2])
            sent = msgspec.json.decode(body)
            self.patches.append((key, sent))
            if key in self.refusing:
                raise StatusError(500, "InternalError", "refused by the test")
            if key in self.conflicting and "finalizers" in (sent.get("metadata") or {}):
                raise StatusError(409, "Conflict", "somebody else was first")
            if errors := validate_points(sent, {}, with_mode=True):
                self.refused.append(str(errors[0]))
                raise StatusError(422, "Invalid", str(errors[0]))
        return await super().request(method, path, query=query, headers=headers, body=body, timeout=timeout)

    def node(
        self,
        name: str,
        *addresses: str,
        kubelet: int = 10250,
        ready: str = "True",
        created: str = OLD,
        pod_cidrs: tuple[str, ...] = (),
    ) -> core_v1.Node:
        """Create or replace a Node."""
        made = core_v1.Node(
            metadata=meta_v1.ObjectMeta(name=name, creation_timestamp=created),
            spec=core_v1.NodeSpec(pod_cidr=pod_cidrs[0] if pod_cidrs else None, pod_cidrs=list(pod_cidrs)),
            status=core_v1.NodeStatus(
                conditions=[core_v1.NodeCondition(type="Ready", status=ready)],
                addresses=[core_v1.NodeAddress(type="InternalIP", address=each) for each in addresses],
                daemon_endpoints=core_v1.NodeDaemonEndpoints(kubelet_endpoint=core_v1.DaemonEndpoint(port=kubelet)),
            ),
        )
        self.put(made)
        return made

    def service(
        self, key: str, *ports: int, given: tuple[str, ...] = (), finalizers: tuple[str, ...] = (), **spec: Any
    ) -> None:
        """Create or replace a Service."""
        namespace, _, name = key.partition("/")
        deleted = spec.pop("deleted", False)
        created, uid = spec.pop("created", OLD), spec.pop("uid", None)
        spec = {"type": "LoadBalancer", "ip_families": ["IPv4"], "selector": {"app": name}} | spec
        granted = [core_v1.PortStatus(port=each, protocol="TCP") for each in sorted(ports)]
        ingress = [core_v1.LoadBalancerIngress(ip=each, ip_mode="VIP", ports=granted) for each in given]
        self.put(
            core_v1.Service(
                metadata=meta_v1.ObjectMeta(
                    name=name,
                    namespace=namespace,
                    uid=uid,
                    finalizers=list(finalizers),
                    creation_timestamp=created,
                    deletion_timestamp=OLD if deleted else None,
                ),
                spec=core_v1.ServiceSpec(
                    ports=[core_v1.ServicePort(name=f"p{each}", port=each, protocol="TCP") for each in ports], **spec
                ),
                status=core_v1.ServiceStatus(load_balancer=core_v1.LoadBalancerStatus(ingress=ingress)),
            )
        )

    def service_range(self, name: str, *cidrs: str) -> None:
        """Create a ServiceCIDR."""
        self.put(
            networking_v1.ServiceCIDR(
                metadata=meta_v1.ObjectMeta(name=name), spec=networking_v1.ServiceCIDRSpec(cidrs=list(cidrs))
            )
        )

    def slice_on(self, key: str, *nodes: str) -> None:
        """Create a slice of a Service with a ready endpoint on each node."""
        namespace, _, name = key.partition("/")
        self.put(
            discovery_v1.EndpointSlice(
                metadata=meta_v1.ObjectMeta(
                    name=name, namespace=namespace, labels={"kubernetes.io/service-name": name}
                ),
                address_type="IPv4",
                endpoints=[discovery_v1.Endpoint(addresses=["10.244.0.9"], node_name=each) for each in nodes],
            )
        )

    def addresses(self, key: str) -> list[str]:
        """Return the addresses in the status of a Service."""
        found = self._service(key)
        balancer = found.status.load_balancer if found is not None else None
        return [each.ip or "" for each in (balancer.ingress if balancer is not None else ())]

    def ports(self, key: str) -> list[list[tuple[str, int]]]:
        """Return the ports that each address in the status of a Service lists."""
        found = self._service(key)
        balancer = found.status.load_balancer if found is not None else None
        return [
            [(port.protocol, port.port) for port in each.ports]
            for each in (balancer.ingress if balancer is not None else ())
        ]

    def record(self, key: str) -> list[str]:
        """Return the messages of all conditions of a Service."""
        found = self._service(key)
        return [each.message for each in found.status.conditions] if found is not None else []

    def ask(self, key: str, *ports: int) -> None:
        """Change the ports of a Service as its owner does: its status stays."""
        found = self._service(key)
        assert found is not None
        found.spec.ports = [core_v1.ServicePort(name=f"p{each}", port=each, protocol="TCP") for each in ports]
        self.put(found)

    def finalizers(self, key: str) -> list[str]:
        found = self._service(key)
        return list(found.metadata.finalizers) if found is not None else []

    def change(self, key: str, **metadata: Any) -> None:
        """Change metadata of a Service as its owner does."""
        found = self._service(key)
        assert found is not None
        for name, value in metadata.items():
            setattr(found.metadata, name, value)
        self.put(found)

    def hold_services(self) -> None:
        """Deliver no change of Services."""
        self.hold(core_v1.Service)

    def release_services(self) -> None:
        self.let_go(core_v1.Service)

    def remove_service(self, key: str) -> None:
        """Remove a Service at once."""
        found = self._service(key)
        assert found is not None
        self.remove(found)

    async def delete_service(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        await self.client().delete(core_v1.Service, name, namespace)
        await settle(100)

    def reasons(self, namespace: str) -> list[str]:
        """Return the reasons of all events about objects of a namespace, in order."""
        return [reason for where, reason, _ in self.events if where == namespace]

    def _service(self, key: str) -> core_v1.Service | None:
        namespace, _, name = key.partition("/")
        found: core_v1.Service | None = self.read(core_v1.Service, name, namespace)
        return found
