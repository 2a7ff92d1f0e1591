"""Interfaces between the generic registry and the strategies of kinds: settings, other objects, outcomes of writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from typing import Protocol

import msgspec

from control.auth.user import UserInfo
from control.storage.store import Store
from kube.json_object import Object
from kube.port_ranges import API_SERVER

EVENT_TTL = 3600


class Outcome(Enum):
    """Outcome of a write; UNKNOWN if the store failed while it committed."""

    STORED = "stored"
    NOT_STORED = "not stored"
    UNKNOWN = "unknown"


Finish = Callable[[Outcome], Awaitable[None]]
"""Called once after a write that `allocate` prepared."""


class Stored(Protocol):
    """An object under its key, as JSON."""

    @property
    def key(self) -> str: ...

    @property
    def data(self) -> bytes: ...


class ReleaseContext(Protocol):
    """Access of a strategy to the request and other objects while it releases allocations."""

    @property
    def user(self) -> UserInfo: ...

    @property
    def dry_run(self) -> bool: ...

    @property
    def store(self) -> Store:
        """Store for state that is no object of a resource."""
        ...

    @property
    def now(self) -> datetime: ...

    async def current(self) -> None:
        """Wait until `objects` shows all that was written, by whichever server, before the call."""
        ...

    def find(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object | None:
        """Return an object from memory, None if it is not there."""
        ...

    def entries(self, group: str, version: str, plural: str) -> Sequence[Stored]:
        """Return all objects of a resource as `objects` does, none of them decoded."""
        ...

    def objects(self, group: str, version: str, plural: str) -> Iterable[Object]:
        """Return all objects of a resource, from the watch cache (or the store); they are read-only."""
        ...

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        """Delete another built-in object as the server itself; gone already is no error."""
        ...


class Context(ReleaseContext, Protocol):
    """Access of a strategy to the request and other objects while it allocates."""

    @property
    def size(self) -> int:
        """Weight of the object, which says where work on it is done (`control.event_loop.offload.run`)."""
        ...

    async def create(self, obj: Object) -> Object:
        """Create another built-in object, given by apiVersion and kind, as the server itself."""
        ...


class Settings(msgspec.Struct, frozen=True):
    """Settings of the cluster for strategies."""

    service_ranges: tuple[str, ...] = ("10.96.0.0/12",)
    """CIDRs of Services' addresses; the first one's family is the default."""
    node_ports: range = range(30000, 32768)
    shared_store: bool = False
    """Other servers write to the same store, so what this one has allocated is not all there is."""
    event_ttl: int = EVENT_TTL
    """Seconds that events are kept."""
    gates: frozenset[str] = frozenset()
    """Feature gates that are on although they are off by default (control/features.py)."""
    load_balancer_ports: str = ""
    """Ports that the built-in load balancer gives to Services, as kube.port_ranges reads them; "" if it is off."""
    api_port: int = API_SERVER
    """Port of the API servers, on the machines of the control plane."""


DEFAULT_SETTINGS = Settings()
