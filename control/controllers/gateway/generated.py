"""The Services and EndpointSlices that are generated for Gateways, kept as they should be and deleted with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from control.controllers.gateway import plan
from control.controllers.gateway.owner import owner_of
from control.controllers.gateway.plan import Owner
from control.controllers.gateway.private_ports import PrivatePorts
from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.gateway.names import NAMESPACE, UID
from kube.informer import Change, Informer
from kube.object_names import name_of

GENERATED = "gateway"
"""Index of generated objects by the key of their Gateway, "" if they do not have it any more."""


class GeneratedObjects:
    """Follows generated objects and nodes. `affected` gets the keys of Gateways to be reconciled."""

    def __init__(
        self,
        client: Client,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        nodes: Informer[core_v1.Node],
        affected: Callable[[str], None],
    ) -> None:
        self._client, self._services, self._slices, self._nodes = client, services, slices, nodes
        self._affected = affected
        self._ports = PrivatePorts()
        self._owners: dict[str, str] = {}
        """Keys of the Gateways that have objects, by UID: somebody may have removed the annotation."""
        self._serving: tuple[tuple[str, tuple[str, ...]], ...] | None = None
        services.add_index(GENERATED, owner_of)
        slices.add_index(GENERATED, owner_of)
        services.subscribe(self._changed)
        slices.subscribe(self._changed)
        nodes.subscribe(self._node_changed)

    def restore(self) -> None:
        """Record the ports that the stored slices have, before any is given."""
        found = [each for each in self._slices.list() if owner_of(each)]
        for each in sorted(found, key=name_of):
            self._ports.restore(each.metadata.labels[UID], plan.ports_of(each), _namespace(owner_of(each)[0]))

    def has_service(self, key: str) -> bool:
        """Return whether a Gateway has a Service."""
        return self._services.has_index(GENERATED, key)

    @property
    def nodes(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Names and addresses of the nodes that serve."""
        if self._serving is None:
            self._serving = plan.serving(self._nodes.list())
        return self._serving

    def ports_of(self, owner: Owner) -> Collection[int]:
        """Return the ports of a Gateway that have a port of the nodes' gateways."""
        return self._ports.of(owner.uid).keys()

    async def ensure(self, owner: Owner, ports: Collection[int]) -> core_v1.Service | None:
        """Create or correct the objects of a Gateway; return its Service, None while it is being created or deleted.

        Raises NoPort, StatusError.
        """
        self._owners[owner.uid] = owner.key
        given = self._ports.assign(owner.uid, ports, _namespace(owner.key))
        numbers = {port: given[port] for port in ports}
        wanted = plan.service(owner, numbers)
        found = self._services.get(f"{NAMESPACE}/{owner.name}")
        if found is None:
            await self._create(wanted)
            return None
        if found.metadata.deletion_timestamp is not None:
            return None
        if (changed := plan.updated_service(found, wanted)) is not None:
            found = await self._client.update(changed)
        await self._ensure_slices(owner, plan.slices(owner, found, numbers, self.nodes))
        self._ports.release(owner.uid, ports)
        return found

    async def _ensure_slices(self, owner: Owner, wanted: list[discovery_v1.EndpointSlice]) -> None:
        names = {name_of(each) for each in wanted}
        for each in wanted:
            found = self._slices.get(f"{NAMESPACE}/{name_of(each)}")
            if found is None:
                await self._create(each)
            elif (changed := plan.updated_slice(found, each)) is not None:
                await self._client.update(changed)
        for found in self._slices.by_index(GENERATED, owner.key):
            if name_of(found) not in names:
                await self._delete(discovery_v1.EndpointSlice, found)

    async def remove(self, key: str, keep: str = "") -> None:
        """Delete the objects of a Gateway, but for those of the UID `keep`."""
        kept = {keep} if key else {keep, *self._owners}
        gone = [uid for uid, owner in self._owners.items() if owner == key and uid != keep]
        for found in self._services.by_index(GENERATED, key):
            if found.metadata.labels[UID] not in kept:
                await self._delete(core_v1.Service, found)
        for each in self._slices.by_index(GENERATED, key):
            uid = each.metadata.labels[UID]
            if uid not in kept:
                await self._delete(discovery_v1.EndpointSlice, each)
                gone.append(uid)
        for uid in gone:
            self._ports.release(uid)
            self._owners.pop(uid, None)

    async def _create(self, obj: core_v1.Service | discovery_v1.EndpointSlice) -> None:
        try:
            await self._client.create(obj)
        except StatusError as error:
            if not error.already_exists:  # it is not known yet; its event brings us back
                raise

    async def _delete(self, kind: type[Any], found: Any) -> None:
        if found.metadata.deletion_timestamp is None:
            await delete_if_present(self._client, kind, name_of(found), NAMESPACE, uid=found.metadata.uid or "")

    # -- changes --------------------------------------------------------------------------------------------------
    def _changed(self, change: Change[Any]) -> None:
        known = [each for each in (change.old, change.new) if each is not None]
        keys = {key for each in known for key in owner_of(each)}
        keys |= {self._owners.get(each.metadata.labels.get(UID, ""), "") for each in known} - {""}
        for key in keys:
            self._affected(key)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        if self._serving is not None and _facts(change.old) == _facts(None if change.type == "DELETED" else change.new):
            return
        self._serving = None
        for key in {key for each in self._services.list() for key in owner_of(each)}:
            self._affected(key)


def _facts(node: core_v1.Node | None) -> Iterable[object]:
    return plan.serving([node]) if node is not None else ()


def _namespace(key: str) -> str:
    """Return the namespace of a Gateway, "" for the gateway of all Ingresses, which is in none."""
    return key.rpartition("/")[0]
