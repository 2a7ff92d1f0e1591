"""States of an object's owners: existing, waiting for their dependents to be deleted, or gone.

An owner in the graph exists. Any other is requested live; each of several references to one name causes one request. References
to owners that are gone are cached: the dependents of one owner are many, and a UID does not come back.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

import msgspec

from control.controllers.garbage.graph import FOREGROUND, Graph, Item
from control.controllers.garbage.item_requests import ItemRequests
from control.controllers.garbage.metadata import Owner, Partial
from control.controllers.garbage.resource_monitors import ResourceMonitors
from control.controllers.step_counter import REQUEST_STEPS, StepCounter
from kube import names

MOST_ABSENT = 500
GONE, SOLID, WAITING = "gone", "solid", "waiting"


class OwnerStates:
    """Reads owners from the graph, and live if they are not in it."""

    def __init__(self, graph: Graph, requests: ItemRequests, monitors: ResourceMonitors) -> None:
        self._graph, self._requests, self._monitors = graph, requests, monitors
        self._absent: OrderedDict[bytes, None] = OrderedDict()
        """Digests of references to owners that are gone: their names and UIDs may have any length."""

    def forget_absent(self) -> None:
        """Drop the cached references to owners that are gone."""
        self._absent.clear()

    async def of(self, item: Item) -> dict[Owner, str]:
        """Return of each owner whether it is there, is waiting for its dependents to go, or is gone."""
        asked: dict[tuple[str, str, str], Partial | None] = {}
        counter, states = StepCounter(), dict[Owner, str]()
        for owner in item.owners:
            before = len(asked)
            states[owner] = await self._state(item, owner, asked)
            await counter.count(1 + REQUEST_STEPS * (len(asked) - before))
        return states

    async def _state(self, item: Item, owner: Owner, asked: dict[tuple[str, str, str], Partial | None]) -> str:
        """Return an owner's state; `asked` keeps the answers to live look-ups, of which there is one for each name."""
        known = self._graph.items.get(owner.uid)
        if known is not None and known.answers_to(owner, item.namespace):
            return WAITING if known.waits_for_dependents else SOLID
        resource = self._monitors.kinds.get((owner.api_version.rpartition("/")[0], owner.kind))
        if resource is None or (resource.namespaced and not item.namespace):
            return SOLID  # nobody can tell: an unknown kind, or a reference that may not be
        if names.path_segment(owner.name):
            return SOLID  # no object has such a name, and a request with it could reach another path, as a pod's proxy
        namespace = item.namespace if resource.namespaced else ""
        key = hashlib.sha256(msgspec.json.encode((resource.target, namespace, owner.name, owner.uid))).digest()
        if key in self._absent:
            return GONE
        place = resource.target, namespace, owner.name
        if place not in asked:
            asked[place] = await self._requests.find(resource, namespace, owner.name)
        live = asked[place]
        if live is None or live.metadata.uid != owner.uid:
            self._absent[key] = None
            if len(self._absent) > MOST_ABSENT:
                self._absent.popitem(last=False)
            return GONE
        return WAITING if live.metadata.deletion_timestamp and FOREGROUND in live.metadata.finalizers else SOLID
